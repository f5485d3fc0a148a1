// The form of a design: a row for each control, built once, kept in step with the plan.
import { ALL, CONTROLS, GROUPS, isShown, planWith, valueOf } from "./controls.js";
import { Combobox } from "./combobox.js";
import { element, put } from "./dom.js";

const TASKS = { training: "Training", serving: "Serving", inference: "One pass", rl: "RL" };
const CLOSED = ["chip", "more"];
const CLOSED_ON_PHONES = ["chip", "parallelism", "place", "more"];

const idOf = (control) => control.path.replaceAll(/[._]/g, "-");

function nearestStop(stops, value) {
  if (value === null) return 0;
  let best = 0;
  stops.forEach((stop, k) => {
    const far = (other) => (other === null ? Infinity : Math.abs(Math.log((other + 1e-9) / (value + 1e-9))));
    if (far(stop) < far(stops[best])) best = k;
  });
  return best;
}

// A count that is doubled from stop to stop is doubled from where it is: what divides 12,288 seldom divides 16,384.
function doublings(control, stops, value) {
  const doubles = control.integer && stops.length > 2 && stops.every((stop, k) => k === 0 || stop === 2 * stops[k - 1]);
  if (!doubles || value === null || stops.includes(value)) return stops;
  let first = value;
  while (first % 2 === 0 && first / 2 >= stops[0]) first /= 2;
  return Array.from({ length: Math.floor(Math.log2(stops.at(-1) / first)) + 1 }, (_, k) => first * 2 ** k);
}

function spoken(control, value, context) {
  const unit = typeof control.unit === "function" ? control.unit(context) : control.unit ?? "";
  return value === null ? control.none ?? "" : `${value.toLocaleString("en")} ${unit}`.trim();
}

// As it stands in a field: what has more digits than fit there as 1.56e13.
function digits(value) {
  if (value === null || value === undefined) return "";
  return Math.abs(value) < 1e9 ? String(value) : value.toExponential().replace("e+", "e");
}

export class Panel {
  #rows = [];
  #context;
  #change;
  #task;
  #groups = {};

  // `change(plan, path)` is told of every edit and of its control, `choose(task)` of another task, `search()` of the button that searches layouts, `near(path)`
  // of a control that a hand or the focus comes to.
  constructor(form, { change, choose, search, near }) {
    this.#change = change;
    const closed = matchMedia("(max-width: 40rem)").matches ? CLOSED_ON_PHONES : CLOSED;
    form.replaceChildren(this.#tasks(choose));
    for (const [name, title] of Object.entries(GROUPS)) {
      const body = element("div", { class: "rows" });
      const box = element("details", { class: "group-box", "data-group": name, open: !closed.includes(name) },
        element("summary", {}, element("h2", {}, title)), body);
      if (name === "parallelism") {
        this.search = element("button", { type: "button", id: "auto", onclick: search }, "Find the best layout");
        body.append(element("div", { class: "row-button" }, this.search));
      }
      if (name === "chip") {
        body.append(element("div", { class: "row-button" }, element("button", {
          type: "button", id: "reset-chip",
          onclick: () => {
            const { chip, ...hardware } = this.#context.plan.hardware;
            this.#change({ ...this.#context.plan, hardware });
          },
        }, "Back to the zoo's figures")));
      }
      this.#groups[name] = box;
      form.append(box);
    }
    for (const control of CONTROLS) {
      const row = this.#row(control);
      this.#rows.push({ control, ...row });
      this.#groups[control.group].querySelector(".rows").append(row.root);
      for (const name of ["pointerenter", "focusin"]) row.root.addEventListener(name, () => near(control.path));
    }
  }

  #tasks(choose) {
    const radios = ALL.map((task) => {
      const input = element("input", { type: "radio", name: "task", id: `task-${task}`, value: task, onchange: () => choose(task) });
      return element("label", { for: `task-${task}` }, input, element("span", {}, TASKS[task]));
    });
    this.#task = element("fieldset", { class: "segments" }, element("legend", {}, "Task"), ...radios);
    return this.#task;
  }

  #edit(control, value) {
    if (!this.#context) return;
    this.#change(planWith(control, value, this.#context), control.path); // comes back as `plan`
  }

  // --- for others that move a control: handles in a sentence, a curve ----------------------------------------------

  #shown(path) {
    const row = this.#context && this.#rows.find(({ control }) => control.path === path);
    return row && isShown(row.control, this.#context) && (row.control.enabled?.(this.#context) ?? true) ? row : null;
  }

  // What can be moved along stops now: label, unit, stops, value; null for what is hidden, disabled or no number.
  scale(path, context = this.#context) {
    const control = this.#shown(path)?.control;
    if (control?.kind !== "slider") return null;
    const told = (what) => (typeof what === "function" ? what(context) : what);
    const value = valueOf(control, context);
    const stops = doublings(control, told(control.stops).filter((stop) => stop !== null), value);
    return { path, label: control.label, unit: told(control.unit) ?? "", stops, value, nearest: nearestStop };
  }

  scales() {
    return this.#rows.map(({ control }) => this.scale(control.path)).filter((found) => found !== null && found.value !== null);
  }

  label(path) {
    return this.#shown(path)?.control.label ?? null;
  }

  // The plan with another value of a control; that of another design where a context is given.
  planAt(path, value, context = this.#context) {
    return planWith(this.#rows.find(({ control }) => control.path === path).control, value, context);
  }

  set(path, value) {
    const row = this.#shown(path);
    if (!row) return;
    this.#edit(row.control, value);
    this.#showRow(row, true);
  }

  step(path, way) {
    const found = this.scale(path);
    if (!found) return;
    const at = nearestStop(found.stops, found.value) + way;
    if (at >= 0 && at < found.stops.length && found.stops[at] !== found.value) this.set(path, found.stops[at]);
  }

  // The row of a control, in another place for a while; the function that is returned brings it home.
  lend(path, place) {
    const row = this.#shown(path);
    if (!row) return null;
    const home = document.createComment(path);
    row.root.replaceWith(home);
    place.replaceChildren(row.root);
    return () => home.replaceWith(row.root);
  }

  #row(control) {
    const id = idOf(control);
    const makers = { slider: () => this.#slider(control, id), menu: () => this.#menu(control, id),
      search: () => this.#search(control, id), output: () => this.#output(control, id), text: () => this.#text(control, id) };
    const made = makers[control.kind]();
    if (control.meaning) made.root.title = control.meaning;
    made.root.dataset.control = control.path;
    return made;
  }

  #slider(control, id) {
    const unit = element("span", { class: "unit", id: `${id}-unit` });
    const range = element("input", { type: "range", id: `${id}-range`, "aria-label": control.label, min: 0, step: 1 });
    const number = element("input", { type: "number", id, inputmode: control.integer ? "numeric" : "decimal",
      step: control.integer ? 1 : "any", min: control.least ?? (control.integer ? 1 : 0), "aria-describedby": unit.id,
      placeholder: control.none ? "none" : "" });
    let stops = [];
    range.addEventListener("input", () => {
      const value = stops[range.valueAsNumber];
      number.value = digits(value);
      range.setAttribute("aria-valuetext", spoken(control, value, this.#context));
      this.#edit(control, value);
    });
    number.addEventListener("input", () => {
      const empty = number.value.trim() === "";
      if (empty ? !control.none : !number.validity.valid) return;
      this.#edit(control, empty ? null : number.valueAsNumber);
    });
    number.addEventListener("blur", () => this.#context && this.#showRow(this.#rows.find((row) => row.control === control)));
    const root = element("div", { class: "control slider" }, element("label", { for: id }, control.label),
      element("span", { class: "field" }, number, unit), range);
    const show = (value, context, force) => {
      stops = typeof control.stops === "function" ? control.stops(context) : control.stops;
      put(range, { max: String(stops.length - 1), "aria-valuetext": spoken(control, value, context) });
      if (force || document.activeElement !== range) put(range, { value: String(nearestStop(stops, value)) });
      if (force || document.activeElement !== number) put(number, { value: digits(value) });
      put(unit, { textContent: typeof control.unit === "function" ? control.unit(context) : control.unit ?? "" });
    };
    return { root, show, inputs: [range, number] };
  }

  #menu(control, id) {
    const select = element("select", { id, onchange: () => this.#edit(control, select.value === "" ? null : select.value) });
    let drawn = null;
    const show = (value, { lists }) => {
      const options = control.options ?? lists[control.list] ?? (value === null ? [] : [{ key: value, name: value }]);
      if (drawn !== options) {
        drawn = options;
        const none = control.none ? [element("option", { value: "" }, control.none)] : [];
        select.replaceChildren(...none, ...options.map(({ key, name }) => element("option", { value: key }, name)));
      }
      // A plan may use another of the names that the zoo knows.
      if (value !== null && !options.some(({ key }) => key === value)) {
        const folded = (text) => text.toLowerCase().replaceAll(/[\W_]/g, "");
        const same = options.find(({ key }) => folded(key) === folded(value) || folded(key).endsWith(folded(value)));
        if (same) value = same.key;
        else select.append(element("option", { value }, value));
      }
      put(select, { value: value ?? "" });
    };
    return { root: element("div", { class: control.wide ? "control search" : "control menu" }, element("label", { for: id }, control.label), select), show,
      inputs: [select] };
  }

  #search(control, id) {
    const box = new Combobox({ id, label: control.label, choose: (item) => this.#edit(control, item) });
    let drawn = null;
    const show = (value, { lists }) => {
      if (lists[control.list] && drawn !== lists[control.list]) {
        drawn = lists[control.list];
        box.items = drawn;
      }
      box.show(value ?? "");
    };
    return { root: element("div", { class: "control search" }, element("label", { for: id }, control.label), box.root), show,
      inputs: [box.input] };
  }

  #text(control, id) {
    const input = element("input", { type: "text", id, placeholder: control.example ?? "", autocomplete: "off",
      onchange: () => this.#edit(control, input.value.trim() === "" ? null : input.value.trim()) });
    const show = (value, context, force) => {
      if (force || document.activeElement !== input) put(input, { value: String(value ?? "") });
    };
    return { root: element("div", { class: "control menu" }, element("label", { for: id }, control.label), input), show,
      inputs: [input] };
  }

  #output(control, id) {
    const output = element("output", { id });
    const show = (value) => put(output, { textContent: value === null ? "" : value.toLocaleString("en") });
    return { root: element("div", { class: "control menu" }, element("label", { for: id }, control.label), output), show, inputs: [] };
  }

  #showRow({ control, root, show, inputs }, force = false) {
    const shown = isShown(control, this.#context);
    put(root, { hidden: !shown });
    if (!shown) return;
    show(valueOf(control, this.#context), this.#context, force);
    const enabled = control.enabled?.(this.#context) ?? true;
    for (const input of inputs) put(input, { disabled: !enabled });
  }

  // context: {plan, chosen, figures, lists}, for whoever asks for a control before the rows are written.
  know(context) {
    this.#context = context;
  }

  // What is being edited keeps its text, unless it comes from elsewhere.
  show(context, elsewhere = false) {
    this.know(context);
    for (const input of this.#task.querySelectorAll("input")) input.checked = input.value === context.plan.task;
    for (const row of this.#rows) this.#showRow(row, elsewhere);
    this.#showGroups();
  }

  // What an edit builds on.
  get plan() {
    return this.#context.plan;
  }

  // Another plan that is not answered yet: further edits build on it, and rows come and go with it.
  set plan(plan) {
    if (!this.#context) return;
    this.#context = { ...this.#context, plan };
    for (const row of this.#rows) if (row.root.hidden === isShown(row.control, this.#context)) this.#showRow(row);
    this.#showGroups();
  }

  #showGroups() {
    for (const [name, box] of Object.entries(this.#groups)) {
      put(box, { hidden: !this.#rows.some((row) => row.control.group === name && !row.root.hidden) });
    }
  }
}
