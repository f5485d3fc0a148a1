// The list of labs: written when the site was built, so that it needs no engine; and how far this browser has got.
import { byId, element, wallsOf } from "./dom.js";
import { readState, studentName } from "./lab_state.js";

let read = null;

// What was written about the labs when the site was built: {key, tracks, labs}.
export function labsOfSite() {
  read ??= fetch("labs.json", { cache: "no-cache" }).then((answer) => answer.json()).catch((error) => {
    throw new Error(`The list of labs could not be loaded (${error.message}). Build the site again with \`mlsysim labs build DIR\`.`);
  });
  return read;
}

// How far this browser has got with a lab.
function far(lab) {
  const solved = Object.values(readState(lab.id, studentName()).solved).filter(Boolean).length;
  return { solved: Math.min(solved, lab.questions), done: solved >= lab.questions };
}

function entry(lab, titles) {
  const { solved, done } = far(lab);
  const picture = element("div", { class: "picture", "aria-hidden": "true" });
  picture.innerHTML = lab.picture; // drawn by mlsysim.plot when the site was built
  const before = lab.after.map((id) => titles[id]).join(", ");
  return element("li", { "data-lab": lab.id }, picture, element("div", { class: "about" },
    element("h3", {}, element("a", { href: `#lab/${lab.id}` }, `${lab.number}. ${lab.title}`)),
    element("p", {}, lab.summary),
    element("p", { class: "muted" }, `${lab.minutes} minutes, ${lab.questions} questions, ${wallsOf(lab.walls)}`),
    before ? element("p", { class: "muted" }, `After: ${before}`) : null,
    solved ? element("p", { class: done ? "done" : "muted" }, done ? "done" : `${solved} of ${lab.questions} questions right`) : null));
}

function track([id, title], labs, titles) {
  const mine = labs.filter((lab) => lab.track === id);
  const done = mine.filter((lab) => far(lab).done).length;
  return element("section", { "aria-labelledby": `track-${id}` }, element("h2", { id: `track-${id}` }, title),
    element("p", { class: "muted" }, `${done} of ${mine.length} labs done`), element("ol", { class: "labs" }, ...mine.map((lab) => entry(lab, titles))));
}

export async function mount() {
  const { labs, tracks } = await labsOfSite();
  const titles = Object.fromEntries(labs.map((lab) => [lab.id, lab.title]));
  byId("list").replaceChildren(...Object.entries(tracks).map((one) => track(one, labs, titles)));
  document.documentElement.dataset.ready = "";
}

export function unmount() {}
