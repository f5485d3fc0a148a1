// The parts of a lab's page: questions, controls, values, charts. They know nothing of the engine.
import { element, unstyled } from "./dom.js";

// Texts of labs are written by mlsysim.labs.runner and charts by mlsysim.plot; both escape everything they were given.
export function markup(tag, html, attributes = {}) {
  const made = element(tag, attributes);
  made.innerHTML = html;
  return made;
}

const EXAMPLES = { USD: "such as $1,000", percent: "such as 10 %", "": "a number" };

// A question with its field, its options or its lines; `check` is called with the answer, null for predictions, which are kept together.
export function question(asked, answer, check) {
  const name = `answer-${asked.id}`;
  const feedback = element("p", { class: "feedback", id: `${name}-feedback`, role: "status", "aria-live": "polite" });
  const hint = element("div", { class: "hint", id: `${name}-hint` });
  const described = `${name}-feedback ${name}-hint`;
  const button = check ? element("button", { type: "submit" }, "Check") : null;
  const text = { class: "asked", id: `${name}-text` };
  let body;
  if (asked.options.length) {
    const options = asked.options.map((option) => element("label", {},
      element("input", { type: "radio", name, value: option.value, checked: option.value === answer }), element("span", {}, option.text)));
    body = element("fieldset", { class: "question", "data-question": asked.id, "aria-describedby": described },
      markup("legend", asked.text), element("div", { class: "options" }, ...options), button, feedback, hint);
  } else if (asked.kind === "words") {
    const field = element("textarea", { name, id: name, rows: 3, maxlength: 2000, "aria-labelledby": `${name}-text`, "aria-describedby": described });
    field.value = answer ?? "";
    body = element("div", { class: "question", "data-question": asked.id }, markup("div", asked.text, text), field, feedback, hint);
  } else {
    const field = element("input", { type: "text", name, id: name, value: answer ?? "", maxlength: 60, "aria-labelledby": `${name}-text`,
      "aria-describedby": described, placeholder: EXAMPLES[asked.unit] ?? `such as 10 ${asked.unit}`, autocapitalize: "off", spellcheck: "false" });
    body = element("div", { class: "question", "data-question": asked.id },
      markup("div", asked.text, text), element("div", { class: "answer" }, field, button), feedback, hint);
  }
  if (!check) return body;
  return element("form", { autocomplete: "off", onsubmit: (event) => {
    event.preventDefault();
    check(given(body), body);
  } }, body);
}

export function given(body) {
  const field = body.querySelector("input[type=text], textarea") ?? body.querySelector("input:checked");
  return field ? field.value.trim() : "";
}

export function tell(body, state, message, hint = "") {
  body.dataset.state = state;
  body.querySelector(".feedback").textContent = message;
  body.querySelector(".hint").innerHTML = hint;
  for (const field of body.querySelectorAll("input:not([type=range]), textarea")) field.setAttribute("aria-invalid", String(state === "wrong"));
}

export function lock(body, locked = true) {
  for (const field of body.querySelectorAll("input, button, textarea, select")) field.disabled = locked;
}

// A slider over a list of numbers, or a menu over a list of names.
export function control(spec, value, moved) {
  const id = `control-${spec.id ?? spec.parameter}`;
  const label = element("label", { for: id }, spec.label);
  if (!spec.slides) {
    const menu = element("select", { id, onchange: () => moved(spec.parameter, menu.value) },
      ...spec.values.map((option) => element("option", { value: option, selected: option === value }, option.replaceAll("_", " "))));
    return element("div", { class: "control menu" }, label, menu);
  }
  const words = (index) => Number(spec.values[index]).toLocaleString("en-US");
  const start = Math.max(spec.values.indexOf(value), 0);
  const shown = element("output", { for: id }, words(start));
  const slider = element("input", { id, type: "range", min: 0, max: spec.values.length - 1, step: 1, value: start, "aria-valuetext": words(start),
    oninput: () => {
      const index = Number(slider.value);
      shown.textContent = words(index);
      slider.setAttribute("aria-valuetext", words(index));
      moved(spec.parameter, spec.values[index]);
    } });
  return element("div", { class: "control slider" }, label, shown, slider);
}

export function values(items) {
  return items.map((item) => element("div", { "data-value": item.name }, element("dt", {}, item.label),
    element("dd", {}, item.text, item.wall ? element("small", {}, ` wall ${item.wall}`) : null)));
}

export function chart(drawn) {
  if (drawn.kind === "chart") return markup("figure", unstyled(drawn.svg), { class: "chart" });
  const head = element("tr", {}, ...drawn.head.map((text) => element("th", { scope: "col" }, text)));
  const rows = drawn.rows.map((cells, index) => element("tr", drawn.here[index] ? { "aria-current": "true" } : {},
    element("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((text) => element("td", {}, text))));
  return element("figure", { class: "table" }, element("figcaption", {}, drawn.title), element("div", { class: "scrolls", tabindex: 0,
    role: "group", "aria-label": drawn.title }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))));
}
