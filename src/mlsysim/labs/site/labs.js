// The list of labs: written when the site was built, so that it needs no engine; and how far this browser has got.
import { byId, element } from "./dom.js";
import { readState, studentName } from "./lab_state.js";

let read = null;

// What was written about the labs when the site was built: {key, labs}.
export function labsOfSite() {
  read ??= fetch("labs.json", { cache: "no-cache" }).then((answer) => answer.json()).catch((error) => {
    throw new Error(`The list of labs could not be loaded (${error.message}). Build the site again with \`mlsysim labs build DIR\`.`);
  });
  return read;
}

function entry(lab) {
  const state = readState(lab.id, studentName());
  const solved = Object.values(state.solved).filter(Boolean).length;
  const far = solved === lab.questions ? "done" : solved ? `${solved} of ${lab.questions} questions right` : "";
  return element("li", {},
    element("h2", {}, element("a", { href: `#lab/${lab.id}` }, `${lab.number}. ${lab.title}`)),
    element("p", {}, lab.summary),
    element("p", { class: "muted" }, `${lab.minutes} minutes, ${lab.walls.length > 1 ? "walls" : "wall"} ${lab.walls.join(", ")}`),
    far ? element("p", { class: "done" }, far) : null);
}

export async function mount() {
  const { labs } = await labsOfSite();
  byId("list").replaceChildren(...labs.map(entry));
  document.documentElement.dataset.ready = "";
}

export function unmount() {}
