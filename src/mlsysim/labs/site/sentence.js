// The plan as one sentence whose words are handles: pressed, a handle opens its control; dragged, or with the arrow keys, it moves along the
// control's stops while the answer follows.
import { element, put } from "./dom.js";
import { Sheet } from "./sheet.js";

const PIXELS = 16; // of dragging for each stop
const STILL = 5; // pixels within which a press is a press
const KEYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };

export function mount(root, { panel }) {
  const sheet = new Sheet(root.closest(".verdict"), panel);
  let shape = "";
  const find = (path) => root.querySelector(`[data-handle="${path}"]`);

  function handle({ text, control }) {
    const made = element("button", { type: "button", class: "handle", "data-handle": control, "aria-haspopup": "dialog", "aria-expanded": "false" }, text);
    let from = null; // where a drag began, and how many stops it has come
    let dragged = false;
    made.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || made.dataset.moves === undefined) return;
      from = { x: event.clientX, stops: 0 };
      dragged = false;
      made.setPointerCapture(event.pointerId);
    });
    made.addEventListener("pointermove", (event) => {
      if (!from) return;
      const moved = event.clientX - from.x;
      if (!dragged && Math.abs(moved) < STILL) return;
      dragged = true;
      made.classList.add("dragged");
      const stops = Math.trunc(moved / PIXELS);
      for (const way = Math.sign(stops - from.stops); from.stops !== stops; from.stops += way) panel.step(control, way);
    });
    const end = () => {
      from = null;
      made.classList.remove("dragged");
    };
    made.addEventListener("pointerup", end);
    made.addEventListener("pointercancel", end);
    made.addEventListener("click", () => {
      if (dragged) dragged = false; // the end of a drag is no press
      else if (sheet.path === control) sheet.close();
      else sheet.open(control, () => find(control));
    });
    made.addEventListener("keydown", (event) => {
      const way = KEYS[event.key];
      if (!way || made.dataset.moves === undefined) return;
      event.preventDefault();
      panel.step(control, way);
    });
    return made;
  }

  // What stays keeps its element: a handle may be under a finger.
  function show(pieces) {
    const live = pieces.map((piece) => (piece.control && panel.label(piece.control) !== null ? piece : { text: piece.text }));
    const now = live.map(({ control, text }) => control ?? text).join("|");
    if (now !== shape) {
      const focused = document.activeElement?.dataset?.handle;
      shape = now;
      root.replaceChildren(...live.map((piece) => (piece.control ? handle(piece) : piece.text)));
      if (focused) find(focused)?.focus();
    }
    for (const { control, text } of live) {
      const made = control && find(control);
      if (!made) continue;
      const moves = panel.scale(control) !== null;
      made.toggleAttribute("data-moves", moves);
      put(made, { textContent: text, "aria-label": `${text}, ${panel.label(control)}${moves ? "; arrow keys move it" : ""}`,
        title: moves ? `${panel.label(control)}: drag it, or press it` : panel.label(control) });
    }
    sheet.check();
  }
  return { show, close: () => sheet.close(false) };
}
