// A design of a lab: controls that are moved until every target holds. Each try is an attempt; the engine says what became of it.
import { element } from "./dom.js";
import { control, markup } from "./lab_parts.js";

const written = (plan) => Object.entries(plan).map(([name, value]) => `${name}=${value}`).join(", ");

// What a plan is called in the table of tries: the labels of its controls with their values.
const spoken = (moves, plan) => moves.map((move) => `${move.label} ${plan[move.parameter]}`).join(", ");

function target(row) {
  const state = row.holds ? "holds" : row.miss || "does not hold";
  return element("tr", { "data-holds": String(row.holds) }, element("th", { scope: "row" }, row.label), element("td", {}, row.value),
    element("td", {}, row.bound), element("td", {}, state));
}

export function showTargets(body, targets) {
  const head = ["Target", "Your plan", "Wanted", ""].map((text) => element("th", { scope: "col" }, text));
  body.querySelector(".targets").replaceChildren(...(targets.length ? [element("table", {}, element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...targets.map(target)))] : []));
}

// `tries` are [{plan, message}]; the list is part of what the page keeps.
export function showTries(body, asked, tries) {
  const list = body.querySelector(".tries");
  list.hidden = !tries.length;
  list.querySelector("summary").textContent = `${tries.length} ${tries.length === 1 ? "plan" : "plans"} tried`;
  list.querySelector("ol").replaceChildren(...tries.map((one) => element("li", {}, `${spoken(asked.moves, one.plan)}: `, element("span", {}, one.message))));
}

// `plan` is where the controls stand; `moved` is told of each move, `check` is called with the plan as the engine reads it.
export function design(asked, plan, moved, check) {
  const name = `answer-${asked.id}`;
  const controls = asked.moves.map((move) => control({ ...move, id: `${asked.id}-${move.parameter}` }, plan[move.parameter] ?? move.value, (parameter, value) => {
    plan[parameter] = value;
    moved(plan);
  }));
  for (const move of asked.moves) plan[move.parameter] ??= move.value;
  const body = element("fieldset", { class: "question build", "data-question": asked.id, "aria-describedby": `${name}-feedback ${name}-hint` },
    markup("legend", asked.text),
    element("div", { class: "lab-controls" }, ...controls),
    element("button", { type: "submit" }, "Try this plan"),
    element("p", { class: "feedback", id: `${name}-feedback`, role: "status", "aria-live": "polite" }),
    element("div", { class: "targets scrolls", tabindex: 0, role: "group", "aria-label": "Targets" }),
    element("div", { class: "hint", id: `${name}-hint` }),
    element("details", { class: "tries", hidden: true }, element("summary", {}), element("ol", {})));
  return element("form", { autocomplete: "off", onsubmit: (event) => {
    event.preventDefault();
    check(written(plan), body, { ...plan });
  } }, body);
}
