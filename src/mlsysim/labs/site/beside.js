// What stands beside the answer: other machines, the design over time, undo and redo, files in and out.
//
// The explorer tells of what happens (`placed`, `deeper`) and lends what it has (`mount`).
import { byId } from "./dom.js";
import { keep, kept } from "./kept.js";
import { dropped, engine, say } from "./page.js";
import { showLive, pause } from "./live.js";
import { showMachines } from "./machines.js";
import { remember, startPast } from "./past.js";
import { whole } from "./whole.js";

const root = document.documentElement;
const LARGEST = 50_000_000;
let page = null; // {state, change, visit, inBackground, addModel, guarded}

// Traces of this visit by their path: an engine knows them for as long as it runs. One of an earlier visit is asked of the browser.
const traces = new Map();
const taught = new WeakMap();

export async function teachTraces(brain) {
  for (const plan of [page.state.plan, page.state.pin]) {
    const path = plan?.serving?.trace;
    const found = path && !traces.has(path) ? await kept(path) : null;
    if (found) traces.set(path, found);
  }
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

// Another design: nothing that was found for the one before stays beside it.
export function forget() {
  pause();
  for (const part of ["machines", "live"]) byId(part).hidden = true;
}

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
  root.dataset.live = "";
  try {
    await showMachines(plan, { call, current, choose: (next) => page.change(next) });
  } catch (error) {
    if (error.kind !== "input") throw error; // an address that was only begun runs on nothing; its own answer says so
  }
}

// --- files ---------------------------------------------------------------------------------------------------------

async function take(file) {
  if (!file) return;
  byId("imported").hidden = true; // what is said of a file before
  if (file.size > LARGEST) throw new Error(`${file.name} has ${file.size.toLocaleString("en")} bytes, more than any file that is read here.`);
  say(`Reading ${file.name} …`);
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
  } else if (found.kind === "trace") {
    traces.set(found.path, { name: file.name, text });
    await keep(found.path, traces.get(found.path));
  } else page.state.models = { ...models, ...found.models };
  byId("imported").textContent = says;
  byId("imported").hidden = false;
  page.change(found.plan);
}

byId("import").addEventListener("change", (event) => {
  page.guarded(() => take(event.target.files[0])).then(() => { event.target.value = ""; });
});
// What was dropped anywhere: the page waits with it until there is a design.
export async function takeDropped() {
  const { file } = dropped;
  dropped.file = null;
  if (file) await page.guarded(() => take(file));
}

// --- before Python has started -------------------------------------------------------------------------------------

// A design and its answer as they were written when the site was built.
export const written = async (name) => (await whole(await fetch(`gallery/${name}.json.gz`))).json();

// That of the scenario at this address, or the one of that name where the address has no design; null for any other.
export async function writtenBefore(hash, name) {
  if (root.dataset.engine !== undefined) return null;
  const link = [...document.querySelectorAll(".scenario h3 a")].find((one) => one.getAttribute("href") === hash);
  if (hash !== null && !link) return null;
  try {
    return await written(link ? link.closest(".scenario").dataset.scenario : name);
  } catch {
    return null; // the engine will say it
  }
}
