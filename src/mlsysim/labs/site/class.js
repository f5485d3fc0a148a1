// A class from its result codes: what the engine counts, as tables.
import { byId, download, element } from "./dom.js";
import { engine, fail } from "./page.js";

const root = document.documentElement;
const AT = ["at once", "at the 2nd try", "at the 3rd", "later", "open"];
let csv = "";

const text = (tag, said, attributes = {}) => element(tag, attributes, said);

// Counts as a bar of parts, and in words.
function bar(counts, students) {
  const said = counts.map((count, index) => (count ? `${count} ${AT[index]}` : "")).filter(Boolean).join(", ");
  return [element("div", { class: "attempts", role: "img", "aria-label": said }, ...counts.map((count, index) =>
    count ? element("span", { "data-at": index, style: `flex-grow: ${count / students}` }, String(count)) : null)),
  text("small", said, { class: "muted", "aria-hidden": "true" })];
}

function task(one, students) {
  const slips = Object.entries(one.slips).map(([name, count]) => `${count} × ${name}`).join(", ");
  return element("tr", {}, element("th", { scope: "row" }, text("code", one.id), text("div", one.text.replaceAll("**", ""), { class: "muted" })),
    element("td", {}, ...bar([...one.at, one.open], students)), text("td", slips || "none"));
}

function prediction(one) {
  return element("details", {}, element("summary", {}, `${one.text.replaceAll("**", "")} (${one.said.length})`),
    element("ul", { class: "said" }, ...one.said.map((said) => element("li", {}, text("strong", said.student || "no id"), ": ", text("q", said.said),
      said.came ? text("div", said.came, { class: "muted" }) : null))));
}

function lab(one) {
  const students = `${one.students} ${one.students === 1 ? "student" : "students"}`;
  const head = element("tr", {}, ...["Question", "Solved", "Miscon\u00adceptions met"].map((name) => text("th", name, { scope: "col" })));
  return element("section", { class: "card", "data-lab": one.lab }, text("h2", one.title),
    text("p", `${students}, ${Number(one.mean_score.toPrecision(3))} of ${one.points} points on average`),
    element("div", { class: "scrolls", tabindex: 0, role: "group", "aria-label": `Questions of ${one.title}` }, element("table", { class: "class-tasks" },
      element("thead", {}, head), element("tbody", {}, ...one.tasks.map((each) => task(each, one.students))))),
    one.predictions.length ? text("h3", "Predictions") : null, ...one.predictions.map(prediction));
}

function notes(found) {
  if (!found.length) return null;
  return element("section", { class: "card", id: "class-notes" }, text("h2", "Codes with a note"),
    element("ul", {}, ...found.map((one) => element("li", {}, text("strong", one.student || "no id"), `: ${one.note}`))));
}

async function show() {
  const files = await Promise.all([...byId("class-files").files].map((file) => file.text()));
  const pasted = [byId("class-codes").value, ...files].map((part) => part.trim()).filter(Boolean).join("\n");
  root.dataset.busy = "";
  try {
    const found = await engine.call("class_view", { text: pasted, key: byId("class-key").value });
    csv = found.csv;
    byId("class-view").replaceChildren(...[notes(found.notes), ...found.labs.map(lab)].filter(Boolean));
    const refused = found.notes.filter((one) => !one.counts).length;
    byId("class-said").textContent = `${found.codes} ${found.codes === 1 ? "code" : "codes"} read` + (refused ? `; ${refused} ${refused === 1 ? "does not count, and says" : "do not count, and say"} why below.` : ".");
    byId("class-csv").hidden = false;
  } catch (error) {
    if (error.kind !== "input") return fail(error);
    byId("class-view").replaceChildren();
    byId("class-csv").hidden = true;
    byId("class-said").textContent = error.message;
  } finally {
    delete root.dataset.busy;
  }
}

byId("class-form").addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
byId("class-csv").addEventListener("click", () => download("class.csv", "text/csv", csv));

export async function mount() {
  await engine.ready;
  root.dataset.ready = "";
}

export function unmount() {}
