// What stands beside the answer: other machines, the design over time, undo and redo, files in and out.
//
// The explorer tells of what happens (`placed`, `deeper`) and lends what it has (`mount`).
import { byId, download } from "./dom.js";
import { engine } from "./page.js";
import { showLive, pause } from "./live.js";
import { showMachines } from "./machines.js";
import { remember, startPast } from "./past.js";
import { nameOf } from "./render.js";

const root = document.documentElement;
const LARGEST = 50_000_000;
let page = null; // {state, change, visit, inBackground, addModel, guarded}

// Traces of this visit by their path: an engine knows them for as long as it runs.
const traces = new Map();
const taught = new WeakMap();

export async function teachTraces(brain) {
  const known = taught.get(brain) ?? taught.set(brain, new Set()).get(brain);
  for (const [path, { name, text }] of traces) {
    if (known.has(path)) continue;
    await brain.call("keep_trace", { name, text });
    known.add(path);
  }
}

export function mount(lent) {
  page = lent;
  startPast(page.visit);
}

export const placed = remember;
export const leave = pause;

// After the cheapest change was looked for: what takes longest comes last, and stops when the design changes.
export async function deeper(plan, width, current) {
  const call = (name, args) => page.inBackground(name, args);
  let found = null;
  try {
    found = await call("live", { plan, width });
  } catch (error) {
    if (error.kind !== "input") throw error;
    found = { error: error.message };
  }
  if (!current()) return;
  showLive(found);
  await showMachines(plan, { call, current, choose: (next) => page.change(next) });
}

// --- files ---------------------------------------------------------------------------------------------------------

async function take(file) {
  if (!file) return;
  if (file.size > LARGEST) throw new Error(`${file.name} has ${file.size.toLocaleString("en")} bytes, more than any file that is read here.`);
  const text = await file.text();
  const { plan, models } = page.state;
  const found = await engine.call("take_file", { name: file.name, text, plan });
  let says = found.says;
  if (found.kind === "model") {
    const item = await engine.call("take_model", { text, name: file.name });
    page.addModel(item, text);
    const unread = item.unread.length ? [`Not read: ${item.unread.join(", ")}.`] : [];
    says = [`${file.name} was taken for a model, ${item.name}: ${item.note}.`, ...item.warnings, ...unread].join(" ");
    found.plan = { ...plan, workload: { ...plan.workload, model: item.key } };
  } else if (found.kind === "trace") traces.set(found.path, { name: file.name, text });
  else page.state.models = { ...models, ...found.models };
  byId("imported").textContent = says;
  byId("imported").hidden = false;
  page.change(found.plan);
}

byId("import").addEventListener("change", (event) => {
  page.guarded(() => take(event.target.files[0])).then(() => { event.target.value = ""; });
});
addEventListener("dragover", (event) => {
  if (![...event.dataTransfer.types].includes("Files")) return;
  event.preventDefault();
  root.dataset.dropping = "";
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) delete root.dataset.dropping; });
addEventListener("drop", (event) => {
  event.preventDefault();
  delete root.dataset.dropping;
  if (root.dataset.view === "explore" && page?.state.plan) page.guarded(() => take(event.dataTransfer.files[0]));
});
byId("export-csv").addEventListener("click", () => page.guarded(async () =>
  download(`${nameOf(document.title.replace(" · mlsysim", ""))}.csv`, "text/csv", await engine.call("numbers_csv", { plan: page.state.plan }))));

// --- before Python has started -------------------------------------------------------------------------------------

// What was written for the scenario at this address when the site was built; null for any other.
export async function writtenBefore(hash) {
  if (root.dataset.engine !== undefined) return null;
  const link = [...document.querySelectorAll(".scenario h3 a")].find((one) => one.getAttribute("href") === hash);
  if (!link) return null;
  try {
    return await (await fetch(`gallery/${link.closest(".scenario").dataset.scenario}.json`)).json();
  } catch {
    return null; // the engine will say it
  }
}
