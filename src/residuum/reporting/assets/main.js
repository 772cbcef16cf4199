// Start everything, draw figures when the reader comes near them, and make the page ready for paper when it is printed.

const NEAR = "800px"; // above and below the window

startTheme(document.getElementById("theme"));
document.querySelectorAll("details.table").forEach(startTable);
const figures = Array.from(document.querySelectorAll(".panel"), figureOf);
drawWhenNear();

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
  for (const details of document.querySelectorAll("details")) details.open = true;
  showForPrint();
  drawAll(PAPER);
});
window.addEventListener("afterprint", () => {
  showAgain();
  drawAll();
});
