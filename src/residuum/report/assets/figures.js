// Figures: plotly draws the view that the reader chose, in the colours of the theme.

// What pictures and print have, whatever the theme: light colours, and on paper the width of a page in pixels.
const PAPER = { ink: "#1b2027", card: "#ffffff", quiet: "#545d69", rule: "#dde1e7", width: 660 };
const FONT_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

function figureOf(panel) {
  const views = new Map(dataOf(panel).map((view) => [view.key, view]));
  const figure = { panel, views, plot: panel.querySelector(".plot"), select: panel.querySelector("select") };
  figure.select?.addEventListener("change", () => chooseInSection(figure));
  for (const button of panel.querySelectorAll("button[data-format]")) {
    button.addEventListener("click", () => download(figure, button.dataset.format));
  }
  themeListeners.push(() => draw(figure));
  new ResizeObserver(() => fitNames(figure)).observe(figure.plot);
  return figure;
}

function viewOf(figure) {
  return figure.views.get(figure.select ? figure.select.value : figure.panel.dataset.first);
}

// The figures of a run follow one another: who looks at CKA in the map wants CKA in the curves.
function chooseInSection(chosen) {
  const section = chosen.panel.closest("section");
  for (const figure of figures.filter((other) => section.contains(other.panel))) {
    if (figure.select && figure.views.has(chosen.select.value)) {
      figure.select.value = chosen.select.value;
      draw(figure);
    }
  }
}

function draw(figure, colours = coloursOf(figure.panel)) {
  const view = viewOf(figure);
  figure.panel.querySelector(".note").textContent = view.note;
  const layout = themed(view.layout, colours);
  layout.uirevision = view.key;
  layout.dragmode = isTouched() ? false : "zoom"; // else a finger could not scroll past a figure
  const traces = isNarrow() ? view.data.map((trace) => ({ ...trace, texttemplate: "" })) : view.data;
  if (colours.width) Object.assign(layout, { width: colours.width, height: colours.width * heightOf(figure) });
  return Plotly.react(figure.plot, traces, layout, settingsOf(figure)).then(() => fitNames(figure));
}

function heightOf(figure) {
  return figure.panel.classList.contains("square") ? 1.1 : 0.55;
}

function coloursOf(panel) {
  const style = getComputedStyle(panel);
  const quiet = getComputedStyle(panel.querySelector("figcaption")).color;
  return { ink: style.color, quiet, card: style.backgroundColor, rule: style.borderTopColor };
}

function isNarrow() {
  return window.innerWidth < 640;
}

function isTouched() {
  return window.matchMedia("(pointer: coarse)").matches;
}

function themed(plain, colours) {
  const layout = structuredClone(plain);
  layout.font = { family: FONT_FAMILY, size: isNarrow() ? 11 : 13, color: colours.ink };
  layout.paper_bgcolor = colours.card;
  layout.plot_bgcolor = colours.card;
  layout.hoverlabel = { bgcolor: colours.card, bordercolor: colours.ink, font: { color: colours.ink }, align: "left" };
  layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: colours.quiet, activecolor: colours.ink };
  for (const axis of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    Object.assign(layout[axis], { gridcolor: colours.rule, zerolinecolor: colours.ink, linecolor: colours.rule });
  }
  return layout;
}

function settingsOf(figure) {
  const image = (format) => ({
    name: `Download as ${format.toUpperCase()}`,
    icon: format === "png" ? Plotly.Icons.camera : Plotly.Icons.disk,
    click: () => download(figure, format),
  });
  return {
    responsive: true,
    displaylogo: false,
    displayModeBar: isTouched() ? false : "hover",
    modeBarButtons: [[image("png"), image("svg")], ["zoom2d", "pan2d", "resetScale2d"]],
  };
}

// Names of models that are wider than their block lose their middle. Two labels a model, in the order of `meta.models`.
function fitNames(figure) {
  const models = viewOf(figure).layout.meta?.models ?? [];
  const drawn = figure.plot._fullLayout;
  if (!drawn || !models.length) return;
  const cell = drawn.xaxis._length / Math.abs(drawn.xaxis.range[1] - drawn.xaxis.range[0]);
  const changes = {};
  drawn.annotations.forEach((label, place) => {
    const model = models[Math.floor(place / 2)];
    const text = escaped(shortened(model.name, Math.floor((model.layers * cell) / (0.58 * label.font.size))));
    if (label.text !== text) changes[`annotations[${place}].text`] = text;
  });
  if (Object.keys(changes).length) Plotly.relayout(figure.plot, changes);
}

function shortened(name, room) {
  const letters = Array.from(name);
  if (letters.length <= room) return name;
  const kept = Math.max(room - 1, 1);
  return `${letters.slice(0, Math.ceil(kept / 2)).join("")}…${letters.slice(letters.length - Math.floor(kept / 2)).join("")}`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

// A picture is for a paper or a slide: always in the light colours, on white.
async function download(figure, format) {
  const view = viewOf(figure);
  const name = [tableName(view.table), ...Object.values(view.where)].join("-");
  if (format === "csv") {
    const table = tableOf(view.table);
    saveText(csvOf(table, rowsWhere(table, view.where)), `${name}.csv`, "text/csv");
    return;
  }
  const { width, height } = figure.plot.getBoundingClientRect();
  const picture = { data: view.data, layout: themed(view.layout, PAPER) };
  saveUrl(await Plotly.toImage(picture, { format, width, height, scale: format === "png" ? 3 : 1 }), `${name}.${format}`);
}

function tableName(id) {
  return document.getElementById(id).dataset.name;
}
