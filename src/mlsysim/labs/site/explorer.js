// The explorer: a design in the address, its answer on the page.
//
// Two engines: one answers while a control moves, the other searches in the background (cheapest change, sensitivities,
// layouts), so that a search never stands before the next answer. The second starts once the first has answered.
import * as beside from "./beside.js";
import { Brains } from "./brains.js";
import { anew, engine, fail, say as tell, searching } from "./page.js";
import { Newest, decode, encode, later } from "./state.js";
import { forTask, writtenDown } from "./controls.js";
import { Panel } from "./panel.js";
import { byId, painted } from "./dom.js";
import { whenOpen } from "./folds.js";
import { whole } from "./whole.js";
import { startExports } from "./exports.js";
import { CHARTS, chartCard, nameOf, showChange, showChart, showMetrics, showOrigins, showVerdict, spokenVerdict } from "./render.js";
import { show as showGauges } from "./gauges.js";
import * as heroChart from "./hero.js";
import * as sentenceLine from "./sentence.js";
import { Pinned } from "./pinned.js";
import * as timeBar from "./timebar.js";
import { showWhy } from "./why.js";
import { widths } from "./widths.js";

const root = document.documentElement;
const state = { plan: null, pin: null, models: {} };
const lists = {};
const kept = {}; // plans of the other tasks
let answer = null;
const pinned = new Pinned();
let deepened = null; // change and sensitivities, with the plan that they are of
const FOLDED = ["memory", "scorecard"]; // charts below a fold
const FIRST = "first"; // the design that a visit starts with
const PATIENCE = 600; // milliseconds after which a reader is told that the answer is under way
const HELD = 100; // milliseconds of an answer after which the layout that was found for it stays while other things move
const SLOW = 400; // milliseconds of an answer after which a curve has fewer stops, and none of them stands before the next answer
const brains = new Brains(state, lists, beside.teachTraces);
const { inBackground } = brains;
let elsewhere = true; // whether the plan comes from an address or a file, and not from the controls
let warm = false; // whether the first answer stands: what draws a curve is imported after it
let notice = ""; // why the design of the address is not shown
let editing = null; // the design that an edit builds on, with the layout that was found for it
let layout = null; // that was found for a design before, and stays while other things move

function say(text, alert = false) {
  tell(text, alert);
  root.toggleAttribute("data-stale", alert && notice === "");
}

// --- answers -------------------------------------------------------------------------------------------------------

const quick = new Newest(async (_, newest) => {
  const { plan } = state;
  const began = performance.now();
  const told = setTimeout(() => { if (newest()) say("Computing …"); }, PATIENCE);
  try {
    await brains.teach();
    const asked = engine.call("at_once", { plan });
    // The second engine draws the curve while the first finds the words; a design that is refused leaves the curve as it was.
    const shadow = ghost();
    const moved = warm && !elsewhere;
    if (moved) hero.show(plan, answer.task, shadow, asked.then(() => true, () => false));
    const found = await asked;
    clearTimeout(told);
    const milliseconds = Math.max(1, Math.round(performance.now() - began));
    brains.slow = found.took > SLOW;
    found.figures = answer?.figures ?? {}; // of the chip before, until its own come
    const rest = newest() || !answer ? engine.call("further", { plan, ...widths(), folded: byId("walls").open }) : null;
    if (elsewhere && state.plan === plan) state.plan = found.plan; // "2T" of an address is a number to a control
    edited(found);
    panel.know(controls(found));
    const soon = warm && newest();
    if (soon) hero.show(panel.plan, found.task, shadow);
    showWords(found);
    if (rest) await painted(); // what one looks at first
    if (rest) Object.assign(found, await rest);
    answer = found.metrics ? found : { ...answer, ...found };
    if (newest()) {
      showRest(found);
      const keeping = layout && state.plan.parallelism === layout ? " with the layout that was found before" : "";
      say(notice || `Computed in this browser in ${spent(milliseconds)}${keeping}; nothing was sent anywhere.`, notice !== "");
      notice = "";
      aloud(spokenVerdict(found));
      if (state.pin || pinned.of) await comparison();
      if (!soon || (state.pin && !shadow)) hero.show(panel.plan, found.task, ghost());
      warm = true;
      folded();
      deeper();
    }
  } catch (error) {
    if (error.kind !== "input") return fail(error);
    if (!answer) {
      // The very first design is a broken address: the default shows what a whole one is like.
      notice = `${error.message} The address is not a whole design; the first design is shown instead.`;
      Object.assign(state, await firstDesign());
      quick.ask();
    } else if (newest()) say(error.message, true);
  } finally {
    clearTimeout(told);
  }
  if (newest()) root.dataset.ready = "";
});

const aloud = later(900, (text) => { byId("spoken").textContent = text; });

const spent = (milliseconds) => (milliseconds < 1000 ? `${milliseconds} ms` : `${(milliseconds / 1000).toFixed(1)} s`);
const controls = ({ chosen, figures }) => ({ plan: editing ?? state.plan, chosen, figures, lists });

// What edits build on: a layout that took long to find stays while a hand moves other things; "Find the best layout" searches again.
function edited({ chosen, feasible, took = Infinity }) {
  editing = took > HELD && feasible ? writtenDown(state.plan, chosen) : state.plan;
  if (editing !== state.plan) brains.slow = false;
}

function showWords(found) {
  sentence.show(found.sentence);
  showVerdict(found);
  showGauges(byId("gauges"), found.gauges, why);
  time.show(found.time_bar, ghost()?.time_bar ?? null);
  const looked = deepened?.plan === state.plan; // of another width of the window what was found stays
  showChange(looked ? deepened.change : undefined, found.feasible);
  byId("chart-sensitivity").classList.toggle("waiting", !looked);
  if (root.dataset.view === "explore") document.title = `${found.subject} · mlsysim`;
}

// The form, and what stands further down.
function showRest(found) {
  panel.show(controls(found), elsewhere);
  elsewhere = false;
  whenOpen(byId("numbers"), () => showMetrics(found, why));
  showOrigins(found.origins);
  showCharts();
}

// Where a design is pinned, charts that have room for both show both.
function showCharts() {
  const charts = state.pin ? { ...answer.charts, ...pinned.charts } : answer.charts;
  const draw = (names) => { for (const name of names) showChart(byId(`chart-${name}`), charts[name]); };
  draw(Object.keys(CHARTS).filter((name) => name !== "sensitivity" && !FOLDED.includes(name)));
  whenOpen(byId("walls"), () => draw(FOLDED));
}

// What the closed fold holds comes once the hand rests, for whoever opens or prints it.
const folded = later(300, async () => {
  const { plan } = state;
  if (!answer.charts.scorecard) {
    const { charts } = await engine.call("further", { plan, ...widths() });
    if (state.plan !== plan) return;
    answer.charts = charts;
    showCharts();
  }
  root.dataset.folded = "";
});

async function why(metric) {
  try {
    showWhy(await engine.call("why", { plan: panel.plan, metric }));
  } catch (error) {
    say(error.message, true);
  }
}

// --- in the background ---------------------------------------------------------------------------------------------

// What each figure is worth comes first; the cheapest change may have to search layouts. A curve that is computed in the background goes before both.
const deep = new Newest(async (_, newest) => {
  const { plan } = state;
  const asked = (name, args) => brains.search(async () => {
    try {
      return await inBackground(name, { plan, ...args });
    } catch (error) {
      if (error.kind !== "input") console.error(error);
      return null;
    }
  });
  const current = () => newest() && state.plan === plan;
  if (brains.slow) await hero.whole();
  if (!current()) return;
  const held = editing ?? plan;
  const worth = await asked("sensitivity", { plan: held, width: widths().width });
  if (!current()) return;
  byId("chart-sensitivity").classList.remove("waiting");
  showChart(byId("chart-sensitivity"), worth?.chart ?? null);
  const found = deepened?.plan === plan ? deepened.change : await asked("cheapest", { held });
  if (!current()) return;
  deepened = { plan, change: found, sensitivities: worth?.changes ?? {} };
  showChange(found, answer.feasible);
  byId("apply").onclick = () => apply(found.plan);
  root.dataset.complete = "";
  await brains.search(() => beside.deeper(plan, widths().width, current));
});
const deeper = later(1000, () => deep.ask());

// A plan whose layout is to be searched is searched in the background and written down.
async function apply(plan) {
  await busy(byId("apply"), async () => {
    const settled = await inBackground("settle", { plan });
    elsewhere = true;
    change(settled);
  });
}

async function busy(button, action) {
  button.disabled = true;
  const words = button.textContent;
  button.textContent = "Searching …";
  try {
    await action();
  } catch (error) {
    say(error.message, true);
  } finally {
    button.disabled = false;
    button.textContent = words;
  }
}

// --- comparison ----------------------------------------------------------------------------------------------------

async function comparison() {
  await pinned.compare(state, widths().width);
  showCharts();
  if (state.pin) time.show(answer.time_bar, ghost()?.time_bar ?? null);
}

// --- edits and the address -----------------------------------------------------------------------------------------

const address = later(250, () => {
  const hash = `#${encode(state)}`;
  if (root.dataset.view === "explore" && hash !== location.hash) history.pushState(null, "", hash);
  beside.placed(hash);
});
addEventListener("popstate", address.cancel); // who goes back just after an edit goes back

function ask() {
  for (const pending of [folded, deeper]) pending.cancel();
  for (const mark of ["ready", "folded", "complete", "live", "machines"]) delete root.dataset[mark];
  return quick.ask();
}

function change(plan, path = null) {
  hero.moved(path);
  anew();
  if (path && !path.startsWith("parallelism.") && editing && editing !== state.plan) layout = plan.parallelism;
  state.plan = editing = plan;
  panel.plan = plan;
  address();
  ask();
}

const firstDesign = async () => ({ plan: (await beside.written(FIRST)).plan, pin: null, models: {} });

// Without a design in the address the last one is shown again, and at first the tutorial's.
async function restore() {
  const found = decode(location.hash) ?? (state.plan ? state : await firstDesign());
  Object.assign(state, found);
  editing = null;
  if (!decode(location.hash)) history.replaceState(null, "", `#${encode(state)}`);
  elsewhere = true;
  beside.placed(location.hash);
  anew();
  hero.forget();
  showChart(byId("chart-sensitivity"), null);
  beside.forget();
  byId("comparison").hidden = !state.pin;
  return ask();
}

const panel = new Panel(byId("design"), {
  change,
  choose(task) {
    kept[state.plan.task] = state.plan;
    const next = kept[task] ?? forTask(state.plan, task, { chosen: answer?.chosen ?? {} });
    change({ ...next, workload: { ...next.workload, model: state.plan.workload.model } });
  },
  search: () => busy(panel.search, async () => {
    const { plan } = state;
    const found = await inBackground("search_layout", { plan });
    if (state.plan === plan) change(found); // a design that came meanwhile stays
  }),
  near: (path) => hero.near(path),
});

// The middle of the page: a sentence with handles, the bar of time, and the curve along the control that was moved last.
const sentence = sentenceLine.mount(byId("sentence"), { panel });
const time = timeBar.mount(byId("time"), { why });
const hero = heroChart.mount(byId("hero"), { ask: brains.alongside, learn: (stops) => engine.call("ahead", stops), panel,
  width: () => widths().wide, slow: () => brains.slow });
const ghost = () => (state.pin && pinned.of === state.pin && pinned.told ? { ...pinned.told, plan: state.pin, lists } : null);

for (const [name, title] of Object.entries(CHARTS)) byId(FOLDED.includes(name) ? "wide-charts" : "charts").append(chartCard(name, title));

byId("pin").addEventListener("click", async () => {
  state.pin = state.plan;
  address();
  await comparison();
  hero.show(panel.plan, answer.task, ghost());
});
byId("unpin").addEventListener("click", () => {
  state.pin = null;
  address();
  comparison().then(() => {
    time.show(answer.time_bar, null);
    hero.show(panel.plan, answer.task, null);
  });
  byId("pin").focus();
});
byId("swap").addEventListener("click", () => {
  const { pin } = state;
  state.pin = state.plan;
  change(pin);
});

async function guarded(action) {
  try {
    await action();
  } catch (error) {
    say(error.message, true);
  }
}
startExports({
  state,
  guarded,
  say,
  fileName: () => nameOf(answer?.subject ?? "design"),
  searched: (plan) => (deepened?.plan === plan ? { change: deepened.change, sensitivities: deepened.sensitivities } : {}),
  curve: () => hero.csv(),
});

// --- the page itself -----------------------------------------------------------------------------------------------

byId("why-close").addEventListener("click", () => byId("why").close());
byId("why").addEventListener("click", (event) => { if (event.target === byId("why")) byId("why").close(); });
let lastWidths = "";
addEventListener("resize", later(200, () => {
  const now = JSON.stringify(widths());
  if (answer && root.dataset.view === "explore" && now !== lastWidths) ask();
  lastWidths = now;
}));

// --- the view ------------------------------------------------------------------------------------------------------

beside.mount({
  state,
  inBackground,
  guarded,
  change(plan) {
    elsewhere = true;
    change(plan);
  },
  visit(hash) {
    byId("imported").hidden = true;
    history.pushState(null, "", hash);
    restore().catch(fail);
  },
  addModel(item, text) {
    state.models = { ...state.models, [item.key]: text };
    brains.knows(item.key);
    if (lists.models && !lists.models.some(({ key }) => key === item.key)) lists.models = [item, ...lists.models];
  },
});

export async function mount() {
  if (root.dataset.lists === undefined) fillLists().catch(fail);
  const early = await beside.writtenBefore(decode(location.hash) ? location.hash : null, FIRST);
  if (early) {
    byId("content").hidden = false;
    Object.assign(state, decode(location.hash) ?? { plan: early.plan });
    answer = early.answer;
    edited(answer);
    panel.know(controls(answer));
    showWords(answer);
    showRest(answer);
    root.dataset.early = "";
  }
  await engine.ready;
  byId("content").hidden = false; // so that the charts know how wide they may be
  await restore();
  lastWidths = JSON.stringify(widths());
  searching();
  await takeDropped();
}

export const { takeDropped } = beside;

export function unmount() {
  beside.leave();
  byId("why").close();
}

// What the menus offer was written when the site was built; imported models come first.
async function fillLists() {
  const found = await (await whole(await fetch("lists.json.gz"))).json();
  for (const [what, items] of Object.entries(found)) {
    const mine = Array.isArray(items) ? (lists[what] ?? []).filter(({ key }) => !items.some((item) => item.key === key)) : [];
    lists[what] = Array.isArray(items) ? [...mine, ...items] : items;
  }
  if (answer) panel.show(controls(answer));
  root.dataset.lists = "";
}
