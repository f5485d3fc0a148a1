// One document, five views; the address behind the # says which. Python starts once and stays.
//
//   #gallery (or nothing)     scenarios with answers that were written when the site was built
//   #explore, #task=...&...   a design and its answer
//   #labs, #lab/roofline      the list of labs, and one of them
//   #class                    a class from its result codes
//
// A view is a module with
//   mount(root, { engine, rest })   the reader came to an address of this view; `root` is its part of the document and
//                                   stays between visits, `rest` is what the address says behind the view's name
//   unmount()                       the reader goes to another view
// It marks the end of its work with `data-ready` on the root of the document.
import { byId } from "./dom.js";
import { dropped, engine, fail, say } from "./page.js";

const root = document.documentElement;
const VIEWS = {
  gallery: { title: "Gallery", nav: "gallery" },
  explore: { title: "Explore", nav: "explore", module: () => import("./explorer.js") },
  labs: { title: "Labs", nav: "labs", module: () => import("./labs.js") },
  lab: { title: "Lab", nav: "labs", module: () => import("./lab.js") },
  class: { title: "A class", nav: "labs", module: () => import("./class.js") },
};
const sections = Object.fromEntries([...document.querySelectorAll("[data-view]")].map((one) => [one.dataset.view, one]));
const links = [...byId("nav").querySelectorAll("[data-to]")];
const scrolled = {}; // where the reader was in each view
let current = "gallery";
let shown = null; // the module of the current view

export function route(hash) {
  const text = hash.replace(/^#/, "");
  const lab = /^lab\/(\w*)$/.exec(text);
  if (lab) return { name: "lab", rest: lab[1] };
  if (text.includes("=")) return { name: "explore", rest: hash };
  return { name: text in VIEWS ? text : "gallery", rest: "" };
}

function enter(name) {
  scrolled[current] = scrollY;
  if (name !== current) {
    shown?.unmount?.();
    shown = null;
    sections[current].hidden = true;
    sections[name].hidden = false;
    current = name;
  }
  root.dataset.view = name;
  for (const link of links) {
    if (link.dataset.to === VIEWS[name].nav) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// What the address cannot mean is said; the other views go on.
const stopped = (error) => (error.kind === "input" ? say(error.message, true) : fail(error));

async function go(event) {
  const { name, rest } = route(location.hash);
  const other = name !== current;
  delete root.dataset.ready;
  enter(name);
  const view = VIEWS[name];
  if (other || !event) document.title = `${view.title} · mlsysim`;
  if (other) {
    if (root.dataset.engine !== undefined && root.dataset.failed === undefined) say("");
    scrollTo(0, (name === "gallery" || name === "labs") && scrolled[name] || 0);
    sections[name].querySelector("h1")?.focus({ preventScroll: true });
  }
  if (!view.module) {
    root.dataset.ready = "";
    return;
  }
  const module = await view.module();
  if (current !== name) return; // the reader has gone on
  shown = module;
  await module.mount(sections[name], { engine, rest });
}

addEventListener("popstate", (event) => go(event).catch(stopped));

// A file on the gallery or the explorer goes to the explorer, which says what it is.
const takesFiles = (event) => ["gallery", "explore"].includes(current) && [...event.dataTransfer.types].includes("Files");
addEventListener("dragover", (event) => {
  if (!takesFiles(event)) return;
  event.preventDefault();
  root.dataset.dropping = "";
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) delete root.dataset.dropping; });
addEventListener("drop", (event) => {
  delete root.dataset.dropping;
  event.preventDefault(); // a browser would leave the page for the file
  if (!takesFiles(event)) return;
  [dropped.file] = event.dataTransfer.files;
  if (current === "explore") shown?.takeDropped();
  else location.hash = "#explore";
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part behind # is the address of a view
  (sections[current].querySelector("[data-content]") ?? sections[current].querySelector("h1")).focus();
});
go(null).catch(stopped);
