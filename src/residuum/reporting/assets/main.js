// Start everything, show one section at a time, draw figures when the reader comes near them, and prepare for print.

const NEAR = "800px"; // above and below the window

startTheme(document.getElementById("theme"));
document.querySelectorAll("details.table").forEach(startTable);
const figures = Array.from(document.querySelectorAll(".panel"), figureOf);
const pages = Array.from(document.querySelectorAll("main > section"));
window.addEventListener("hashchange", showPage);
for (const page of pages) page.addEventListener("beforematch", () => found(page));
startSearch(document.getElementById("search"));
showPage();
drawWhenNear();

// A search of the browser leads to a hidden section; an address that names something inside of it stays.
function found(page) {
  if (!page.contains(document.getElementById(location.hash.slice(1)))) location.hash = page.id;
}

// The search leaves the links of sections that hold every word, and Enter opens the first of them.
function startSearch(field) {
  const words = (page) => page.textContent.toLowerCase();
  const texts = new Map(pages.map((page) => [page, page.cloneNode(true)]));
  for (const copy of texts.values()) copy.querySelectorAll("script").forEach((script) => script.remove());
  const links = Array.from(document.querySelectorAll(".bar nav a"));
  const pageOf = (link) => pages.find((page) => page.contains(document.getElementById(link.hash.slice(1))));
  field.hidden = false;
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const holds = new Set(pages.filter((page) => wanted.every((word) => words(texts.get(page)).includes(word))));
    for (const link of links) link.classList.toggle("missed", !holds.has(pageOf(link)));
    const count = `${holds.size} of ${pages.length} sections`;
    document.getElementById("found").textContent = wanted.length ? count : "";
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") links.find((link) => !link.classList.contains("missed"))?.click();
  });
}

// The section that the address names, or that holds what it names; the search of the browser still finds the others.
function showPage() {
  const target = document.getElementById(location.hash.slice(1));
  const shown = pages.find((page) => page.contains(target)) ?? pages[0];
  for (const page of pages) {
    if (page === shown) page.removeAttribute("hidden");
    else page.setAttribute("hidden", "until-found");
  }
  for (const link of document.querySelectorAll(".bar nav a")) {
    const names = link.hash.slice(1) === (target?.id ?? shown.id) || link.hash.slice(1) === shown.id;
    if (names) {
      link.setAttribute("aria-current", "page");
      showInBar(link);
    } else link.removeAttribute("aria-current");
  }
  if (target && target !== shown) target.scrollIntoView();
  else window.scrollTo(0, 0);
}

// The bar may be longer than the screen: scroll it, and never the page.
function showInBar(link) {
  for (const box of [link.closest("nav"), link.closest(".bar")]) {
    const [inner, outer] = [link.getBoundingClientRect(), box.getBoundingClientRect()];
    box.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
    box.scrollTop += inner.top - outer.top - (outer.height - inner.height) / 2;
  }
}

// A report of many runs has hundreds of figures; to draw all of them at once would keep the reader waiting.
function drawWhenNear() {
  const waiting = new Map(figures.map((figure) => [figure.panel, figure]));
  const observer = new IntersectionObserver(
    (entries) => {
      const near = entries.filter((entry) => entry.isIntersecting);
      near.forEach((entry) => observer.unobserve(entry.target));
      Promise.all(near.map((entry) => draw(waiting.get(entry.target)))).then(isDrawn);
    },
    { rootMargin: NEAR },
  );
  waiting.forEach((_, panel) => observer.observe(panel));
  if (!figures.length) isDrawn();
}

function isDrawn() {
  document.documentElement.classList.add("drawn");
}

function drawAll(colours) {
  return Promise.all(figures.map((figure) => draw(figure, colours))).then(() => undefined);
}

window.addEventListener("beforeprint", () => {
  for (const page of pages) page.removeAttribute("hidden");
  for (const details of document.querySelectorAll("details")) details.open = true;
  showForPrint();
  drawAll(PAPER);
});
window.addEventListener("afterprint", () => {
  showAgain();
  showPage();
  drawAll();
});
