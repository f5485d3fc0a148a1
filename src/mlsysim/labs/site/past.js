// Undo and redo: the designs of this visit in a row, and where the reader stands in it. The browser's own back button goes with it.
import { byId, element } from "./dom.js";

const MOST = 200;
const past = { states: [], at: -1 };
let go = () => {};

const undo = element("button", { type: "button", class: "small", id: "undo", title: "Undo (Ctrl+Z)", "aria-label": "Undo", onclick: () => step(-1) }, "↶");
const redo = element("button", { type: "button", class: "small", id: "redo", title: "Redo (Ctrl+Shift+Z)", "aria-label": "Redo", onclick: () => step(1) }, "↷");

function step(by) {
  const next = past.at + by;
  if (next < 0 || next >= past.states.length) return;
  past.at = next;
  show();
  go(past.states[next]);
}

function show() {
  undo.disabled = past.at <= 0;
  redo.disabled = past.at >= past.states.length - 1;
}

// Another address of a design: what was undone is forgotten, but for an address that is a neighbour, to which one has gone.
export function remember(address) {
  const { states, at } = past;
  if (states[at] === address) return;
  if (states[at - 1] === address) past.at = at - 1;
  else if (states[at + 1] === address) past.at = at + 1;
  else {
    states.splice(at + 1, Infinity, address);
    if (states.length > MOST) states.shift();
    past.at = states.length - 1;
  }
  show();
}

const written = (target) => target.matches?.("input:not([type=range]):not([type=radio]), textarea, select");

export function startPast(visit) {
  go = visit;
  byId("tools").prepend(undo, redo);
  show();
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || document.documentElement.dataset.view !== "explore" || written(event.target)) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    step(key === "y" || event.shiftKey ? 1 : -1);
  });
}
