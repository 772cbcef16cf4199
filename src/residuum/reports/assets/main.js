// Start everything, and make the page ready for paper when it is printed.

startTheme(document.getElementById("theme"));
document.querySelectorAll("details.table").forEach(startTable);
const figures = Array.from(document.querySelectorAll(".panel"), figureOf);
Promise.all(figures.map((figure) => draw(figure))).then(() => document.documentElement.classList.add("drawn"));

window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const figure of figures) draw(figure, PAPER);
});
window.addEventListener("afterprint", () => figures.forEach((figure) => draw(figure)));
