// What has to happen before any module may run: the reader's choice of colours, and a word to those who opened the file
// itself, because a browser loads neither modules nor workers from file://.
const THEMES = ["auto", "light", "dark"];
const theme = document.getElementById("theme");

function remembered() {
  try {
    return localStorage.getItem("mlsysim-theme");
  } catch {
    return null; // a browser may refuse storage
  }
}

function wear(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  theme.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[name];
  theme.setAttribute("aria-label", `Colours: ${name}; press for ${THEMES[(THEMES.indexOf(name) + 1) % 3]}`);
}

let worn = THEMES.includes(remembered()) ? remembered() : "auto";
wear(worn);
theme.addEventListener("click", () => {
  worn = THEMES[(THEMES.indexOf(worn) + 1) % 3];
  wear(worn);
  try {
    localStorage.setItem("mlsysim-theme", worn);
  } catch {
    // it holds until the page is left
  }
});

if (location.protocol === "file:") {
  const status = document.getElementById("status");
  status.setAttribute("role", "alert");
  status.textContent = "A browser does not run this page from a file. Serve the folder: run `mlsysim labs open` with its " +
    "path, or put it on any static host.";
  document.documentElement.dataset.failed = "";
}
