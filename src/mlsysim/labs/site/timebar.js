// Where the time goes: one bar by wall, one scale for this design and the pinned one. A part opens into its operators, as the ledger has them.
import { element } from "./dom.js";

const share = (value) => `${(100 * value).toFixed(3)}%`;
const LETTER = 7.5; // pixels, with room to spare; a part that is too narrow for its name is named below

function line(name, bar, { longest, pixels }, press, open) {
  const wide = (part) => part.seconds / longest;
  const named = (part) => `${part.label} ${(100 * part.share).toFixed(part.share < 0.1 ? 1 : 0)} %`;
  const fits = (part) => wide(part) * pixels > LETTER * (named(part).length + 2);
  const parts = bar.parts.map((part) => {
    const text = named(part);
    return element(press ? "button" : "span", {
      type: press ? "button" : null, class: `slice s${part.series % 8}`, style: `width:${share(wide(part))}`, title: `${text}, ${part.text}`,
      "aria-label": press ? `${text}, ${part.text}: operators` : null, "aria-expanded": press ? String(open === part.wall) : null,
      "data-wall": part.wall, onclick: press ? () => press(part.wall) : undefined,
    }, fits(part) ? element("span", { class: "slice-name" }, text) : null);
  });
  const names = bar.parts.filter((part) => !fits(part)).map((part) => element("li", {},
    element("i", { class: `swatch s${part.series % 8}`, "aria-hidden": "true" }), `${part.label} ${part.text}`));
  return element("div", { class: "time-line", "data-line": name },
    element("div", { class: "time-head" }, element("b", {}, name), ` ${bar.text}`, bar.interval ? element("small", {}, ` (${bar.interval})`) : null),
    element("div", { class: "stack tall" }, ...parts), press && names.length ? element("ul", { class: "names" }, ...names) : null);
}

function operators(part, path, why) {
  const columns = ["Operator", "On the critical path", "Hidden beside it", "Operations", "Memory traffic", "Sent", "Form"];
  const rows = part.operators.map((each) => element("tr", {}, element("th", { scope: "row" }, each.label),
    ...[each.text, each.hidden, each.flop, each.moved, each.sent].map((text) => element("td", { class: "number" }, text)),
    element("td", { class: "form" }, each.equation)));
  return element("div", { class: "operators" },
    element("p", {}, element("b", {}, `${part.label}: ${part.text}`), ` of ${part.operators.length === 1 ? "one line" : `${part.operators.length} lines`} of the ledger. `,
      element("button", { type: "button", class: "small", "aria-haspopup": "dialog", onclick: () => why(path) }, "Equation with its numbers")),
    element("div", { class: "scroll" }, element("table", {}, element("caption", { class: "hidden" }, `Operators of ${part.label}`),
      element("thead", {}, element("tr", {}, ...columns.map((text) => element("th", { scope: "col" }, text)))), element("tbody", {}, ...rows))));
}

export function mount(root, { why }) {
  let open = null;
  let held = [null, null];
  let drawn = "";
  let pixels = 0;
  new ResizeObserver(([entry]) => {
    if (pixels !== (pixels = Math.round(entry.contentRect.width))) draw();
  }).observe(root);

  function press(wall) {
    open = open === wall ? null : wall;
    draw();
    root.querySelector(`button[data-wall="${wall}"]`)?.focus();
  }

  function draw() {
    const [bar, pinned] = held;
    root.closest("section").hidden = !bar;
    if (!bar) drawn = "";
    if (!bar) return root.replaceChildren();
    const now = JSON.stringify([bar, pinned, open, pixels]);
    if (now === drawn) return;
    drawn = now;
    const scale = { longest: Math.max(bar.seconds, pinned?.seconds ?? 0), pixels };
    const part = bar.parts.find(({ wall }) => wall === open);
    root.replaceChildren(line("this design", bar, scale, press, open), ...(pinned ? [line("pinned", pinned, scale)] : []),
      ...(bar.note ? [element("p", { class: "muted" }, bar.note)] : []), ...(part ? [operators(part, bar.path, why)] : []));
  }
  return {
    show(bar, pinned) {
      const focused = document.activeElement?.closest?.("[data-wall]")?.dataset.wall;
      const again = focused && root.contains(document.activeElement);
      held = [bar, pinned];
      draw();
      if (again) root.querySelector(`button[data-wall="${focused}"]`)?.focus();
    },
  };
}
