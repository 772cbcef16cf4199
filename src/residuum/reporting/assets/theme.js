// Light or dark: as the system says, unless the reader chose. Listeners redraw what has colours of its own.

const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
const themeListeners = [];

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemIsDark.matches;
}

function startTheme(button) {
  const kept = keptTheme();
  if (kept) document.documentElement.dataset.theme = kept;
  button.hidden = false;
  labelTheme(button);
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    keepTheme(theme);
    themeChanged(button);
  });
  systemIsDark.addEventListener("change", () => themeChanged(button));
}

function themeChanged(button) {
  labelTheme(button);
  themeListeners.forEach((listener) => listener());
}

function labelTheme(button) {
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
}

// A page opened from a file may have no storage; the choice then lasts as long as the page.
function keptTheme() {
  try {
    const theme = localStorage.getItem("residuum-theme");
    return theme === "light" || theme === "dark" ? theme : null;
  } catch {
    return null;
  }
}

function keepTheme(theme) {
  try {
    localStorage.setItem("residuum-theme", theme);
  } catch {
    return;
  }
}
