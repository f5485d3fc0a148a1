// The dialog that says where a number comes from.
import { byId, element } from "./dom.js";

function list(entries, named = (name) => name.replaceAll("_", " ")) {
  return element("dl", { class: "pairs" }, ...entries.flatMap(([name, text]) =>
    [element("dt", {}, named(name)), element("dd", {}, text)]));
}

function equation(found) {
  const inputs = Object.entries(found.inputs);
  return element("div", { class: "equation" },
    element("p", { class: "formula" }, found.text),
    inputs.length ? list(inputs, (symbol) => symbol) : null,
    element("p", { class: "result" }, `= ${found.value}`));
}

export function showWhy(found) {
  byId("why-title").textContent = `${found.label}: ${found.text}`;
  const about = [`Wall ${found.wall}${found.wall_name ? ` (${found.wall_name})` : ""}.`];
  if (found.interval) about.push(`90 % interval: ${found.interval}.`);
  const equations = found.equations.length
    ? found.equations.map(equation)
    : [element("p", {}, "A figure from the zoo or the plan, or a plain sum or ratio of other numbers in this answer.")];
  byId("why-body").replaceChildren(
    element("p", {}, about.join(" ")),
    ...equations,
    element("h3", {}, "Sources"),
    list(Object.entries(found.sources)),
    element("details", {}, element("summary", {}, "What is assumed"), list(Object.entries(found.assumptions))));
  const dialog = byId("why");
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}
