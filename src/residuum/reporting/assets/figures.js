// Figures: plotly draws the view that the reader chose, in the colours of the theme.

// What pictures and print have, whatever the theme and the screen: light colours, and a width and a height at most in pixels.
const PAPER = { ink: "#1b2027", card: "#ffffff", quiet: "#545d69", rule: "#dde1e7", width: 650, height: 840 };
const PICTURE_WIDTH = 760;
const LAYER_PIXELS = 17;
const plotlyReady = unpackPlotly();
const FONT_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

function figureOf(panel) {
  const views = new Map(dataOf(panel).map((view) => [view.key, view]));
  const figure = { panel, views, plot: panel.querySelector(".plot"), select: panel.querySelector("select") };
  figure.select?.addEventListener("change", () => chooseInSection(figure));
  for (const button of panel.querySelectorAll("button[data-format]")) {
    button.addEventListener("click", () => download(figure, button.dataset.format));
  }
  themeListeners.push(() => figure.drawn && draw(figure));
  new ResizeObserver(() => figure.drawn && fit(figure)).observe(figure.plot);
  return figure;
}

function fit(figure) {
  return figure.narrow === isNarrow() ? fitLabels(figure) : draw(figure);
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
  figure.drawn = true;
  figure.narrow = isNarrow();
  figure.panel.querySelector(".note").textContent = view.note;
  figure.panel.querySelector(".held").textContent = heldOf(view);
  figure.plot.style.height = view.height && !colours.width && !isSquare(figure) ? `${view.height}px` : "";
  const layout = themed(view.layout, colours);
  layout.uirevision = view.key;
  layout.dragmode = isTouched() ? false : "zoom"; // else a finger could not scroll past a figure
  const traces = figure.narrow ? view.data.map((trace) => ({ ...trace, texttemplate: "" })) : view.data;
  if (colours.width) Object.assign(layout, { width: colours.width, height: heightFor(figure, colours.width) });
  return plotlyReady
    .then(() => Plotly.react(figure.plot, traces, layout, settingsOf(figure)))
    .then(() => fitLabels(figure));
}

// plotly stands in the page as gzip; its text is in the content security policy, by its hash.
async function unpackPlotly() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

// What the reader has to know before the CSV is taken for all of the figure's rows.
function heldOf(view) {
  const table = tableOf(view.table);
  if (view.points || table.rows === table.total) return "";
  const { rows } = rowsOf(view);
  const count = (n) => n.toLocaleString("en");
  const part = `The CSV has ${count(rows.length)} of ${count(view.rows)} rows; the folder of the run has all.`;
  return rows.length < view.rows ? part : "";
}

function isSquare(figure) {
  return figure.panel.classList.contains("square");
}

function heightFor(figure, width) {
  return isSquare(figure) ? width + 86 : Math.max(0.55 * width, Math.min(viewOf(figure).height ?? 0, PAPER.height));
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
  layout.hoverlabel = { bgcolor: colours.card, bordercolor: colours.ink, align: "left" };
  layout.hoverlabel.font = { family: FONT_FAMILY, size: 13, color: colours.ink };
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

// The labels of a map have the room of their cells: names of models take two lines, numbers of layers are left out.
// `meta.models` has all of them; the annotations are two names a model, in its order.
function fitLabels(figure) {
  const models = viewOf(figure).layout.meta?.models;
  const drawn = figure.plot._fullLayout;
  if (!drawn || !models) return;
  const cell = drawn.xaxis._length / Math.abs(drawn.xaxis.range[1] - drawn.xaxis.range[0]);
  const digits = (model) => String(model.layers.at(-1)).length;
  const layers = models.flatMap((model) =>
    labelled(model.layers, Math.ceil((LAYER_PIXELS * (3 + digits(model))) / 4 / cell)),
  );
  const names = drawn.annotations.map((label, i) => {
    const model = models[Math.floor(i / 2)];
    return inLines(model.name, Math.floor((model.layers.length * cell) / (0.55 * label.font.size)));
  });
  const now = [drawn.xaxis.ticktext, drawn.annotations.map((label) => label.text)];
  if (JSON.stringify(now) === JSON.stringify([layers, names])) return;
  const changes = { "xaxis.ticktext": layers, "yaxis.ticktext": layers };
  names.forEach((name, i) => (changes[`annotations[${i}].text`] = name));
  Plotly.relayout(figure.plot, changes);
}

// Every `step`th layer, but none so late that the first of the next model would touch it.
function labelled(layers, step) {
  const free = (i) => i % step === 0 && (i === 0 || layers.length - i >= step / 2);
  return layers.map((layer, i) => (free(i) ? String(layer) : ""));
}

// A name that is too long has two lines, of which each loses its middle, or its end, where it is still too long.
function inLines(name, room) {
  const place = name.lastIndexOf(" ");
  const split = place > 0 && Array.from(name).length > room;
  const parts = split ? [name.slice(0, place), name.slice(place + 1).replace(/^\(+|\)+$/g, "")] : [name];
  const cut = (part) => (room > 5 ? shortened(part, room) : Array.from(part).slice(0, room).join(""));
  return parts.map((part) => escaped(cut(part))).join("<br>");
}

function shortened(name, room) {
  const letters = Array.from(name);
  if (letters.length <= room) return name;
  const kept = Math.max(room - 1, 1);
  const [first, last] = [letters.slice(0, Math.ceil(kept / 2)), letters.slice(letters.length - Math.floor(kept / 2))];
  return `${first.join("")}…${last.join("")}`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

// A picture is for a paper or a slide: always in the light colours, on white.
async function download(figure, format) {
  const view = viewOf(figure);
  const name = [tableName(view.table), ...Object.values(view.where).filter((value) => !Array.isArray(value))].join("-");
  if (format === "csv") {
    const { table, rows } = rowsOf(view);
    saveText(csvOf(table, rows), `${name}.csv`, "text/csv");
    return;
  }
  const picture = { data: view.data, layout: themed(view.layout, PAPER) };
  const size = { width: PICTURE_WIDTH, height: heightFor(figure, PICTURE_WIDTH), scale: format === "png" ? 3 : 1 };
  await plotlyReady;
  saveUrl(await Plotly.toImage(picture, { format, ...size }), `${name}.${format}`);
}

function tableName(id) {
  return document.getElementById(id).dataset.name;
}
