// One lab: predict, compute, build, explain. The engine grades; this page keeps what the student did.
import { byId, download, element, wallsOf } from "./dom.js";
import { design, showTargets, showTries } from "./lab_design.js";
import { chart, control, given, lock, markup, question, tell, values } from "./lab_parts.js";
import { labsOfSite } from "./labs.js";
import { readState, rememberStudent, studentName, writeState } from "./lab_state.js";
import { engine, fail, say as told } from "./page.js";

const root = document.documentElement;
const IDLE = "Everything is computed and graded in this browser; nothing is sent anywhere.";
let name = "";
let student = studentName();
let siteKey = "";
let list = [];
let lab = null;
let state = null;
let latest = 0;

const asked = (stage) => lab.questions.filter((one) => one.stage === stage);
const save = () => writeState(lab.id, student, state);

// What a combination of controls cannot do is said; the page goes on.
const say = (problem) => told(problem || IDLE, Boolean(problem));

// The page's one number of work under way: tests and screen readers wait for its end.
let under = 0;
async function busy(work) {
  under += 1;
  root.dataset.busy = "";
  try {
    return await work();
  } finally {
    under -= 1;
    if (!under) delete root.dataset.busy;
  }
}

async function open() {
  lab = await busy(() => engine.call("lab_open", { name, student }));
  state = readState(lab.id, student, lab.version);
  document.title = `${lab.title} · mlsysim`;
  byId("title").textContent = `${lab.number}. ${lab.title}`;
  byId("facts").textContent = `${lab.minutes} minutes, ${wallsOf(lab.walls)}, ${lab.points} points`;
  byId("objectives").replaceChildren(...lab.objectives.map((html) => markup("li", html)));
  byId("student").value = student;
  byId("who-note").textContent = lab.practice
    ? "Without an id this is practice: the numbers are the same for everybody and there is no result code."
    : `The numbers of this lab are those of ${student}. Your answers stay in this browser.`;
  byId("introduction").innerHTML = lab.introduction;
  byId("task").innerHTML = lab.task;
  byId("predict-questions").replaceChildren(...asked("predict").map((one) => question(one, state.predictions[one.id], null)));
  for (const stage of ["compute", "build", "explain"]) {
    byId(`${stage}-questions`).replaceChildren(...asked(stage).map((one) => {
      if (one.kind === "design") return building(one);
      const made = question(one, state.answers[one.id], (answer, body) => busy(() => check(one, answer, body)).catch(fail));
      if (state.solved[one.id]) settle(made.firstChild, "Right.");
      return made;
    }));
  }
  byId("controls").replaceChildren(...lab.controls.map((spec) => control(spec, state.moved[spec.parameter] ?? spec.value, move)));
  byId("reflection").hidden = !lab.reflect;
  byId("reflect-label").textContent = lab.reflect;
  byId("reflect").value = state.reflection;
  byId("lab").hidden = false;
  if (state.kept) await unlocked();
  else locked();
  progress();
}

// A design stays open when its targets hold: you can look for a better plan.
function building(one) {
  state.plans[one.id] ??= {};
  const made = design(one, state.plans[one.id], save, (answer, body, plan) => busy(() => check(one, answer, body, plan)).catch(fail));
  showTries(made.firstChild, one, state.tries[one.id] ?? []);
  if (state.solved[one.id]) tell(made.firstChild, "right", "Every target holds; you can look for a better plan.");
  return made;
}

function locked() {
  for (const id of ["compute", "build", "explain", "result"]) byId(id).hidden = true;
  byId("keep").hidden = false;
  byId("explanation").hidden = true;
}

async function unlocked() {
  for (const body of byId("predict-questions").children) lock(body);
  byId("keep").hidden = true;
  for (const id of ["compute", "build", "result"]) byId(id).hidden = false;
  await busy(async () => {
    await compute();
    await finish();
  });
}

function settle(body, message) {
  tell(body, "right", message);
  lock(body);
}

function progress() {
  const tried = (stage) => asked(stage).every((one) => state.attempts[one.id]);
  const all = lab.questions.filter((one) => one.stage !== "predict").every((one) => state.solved[one.id]);
  const now = !state.kept ? 0 : all ? 4 : !tried("compute") ? 1 : !tried("build") ? 2 : 3;
  byId("explain").hidden = now < 3;
  [...byId("steps").children].forEach((item, index) => {
    item.toggleAttribute("data-done", index < now);
    if (index === now) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  });
}

async function compute() {
  const own = (latest += 1);
  const width = Math.max(320, Math.min(byId("lab-charts").clientWidth - 2, 760));
  const found = await engine.call("lab_compute", { name, student, predictions: state.predictions, moved: state.moved, width });
  if (own !== latest) return; // a later move of a control is under way
  byId("compared").replaceChildren(...Object.values(found.compared).map((text) => element("li", {}, text)));
  byId("values").replaceChildren(...values(found.values));
  byId("lab-charts").replaceChildren(...found.charts.map(chart));
  byId("lab-spoken").textContent = found.values.map((item) => `${item.label} ${item.text}`).join("; ");
}

function move(parameter, value) {
  state.moved[parameter] = value;
  save();
  busy(compute).then(() => say("")).catch((error) => (error.kind === "input" ? say(error.message) : fail(error)));
}

async function check(one, answer, body, plan = null) {
  const grade = await engine.call("lab_answer", { name, student, question: one.id, answer });
  if (grade.counts && !state.solved[one.id]) state.attempts[one.id] = (state.attempts[one.id] ?? 0) + 1;
  if (grade.slip) state.slips[one.id] ??= grade.slip;
  if (plan) {
    (state.tries[one.id] ??= []).push({ plan, message: grade.message });
    showTargets(body, grade.targets);
    showTries(body, one, state.tries[one.id]);
  }
  if (grade.correct) {
    state.answers[one.id] = answer;
    state.solved[one.id] = true;
    if (plan) tell(body, "right", grade.message);
    else settle(body, grade.message);
  } else {
    tell(body, "wrong", grade.message, grade.hint);
  }
  save();
  progress();
  await finish();
}

async function finish() {
  const { predictions, answers, attempts, slips, reflection } = state;
  const found = await engine.call("lab_finish", { name, student, predictions, answers, attempts, slips, reflection, site_key: siteKey });
  byId("score").textContent = found.complete
    ? `Complete: ${found.score} of ${found.points} points.`
    : `${found.score} of ${found.points} points so far; ${found.open.length} ${found.open.length > 1 ? "questions are" : "question is"} open.`;
  byId("code-line").hidden = !found.code;
  byId("code").textContent = found.code;
  byId("code").dataset.full = found.full_code;
  byId("confronted").replaceChildren(...found.confronted.map((one) => element("div", { class: "confronted" },
    markup("div", one.asked, { class: "muted" }),
    element("div", {}, element("h4", {}, "You wrote, before anything was computed"), element("blockquote", {}, one.said)),
    element("div", {}, element("h4", {}, "What came out"), markup("div", one.came)))));
  byId("explanation").hidden = !found.complete;
  byId("explanation-text").innerHTML = found.explanation;
}

byId("predict").addEventListener("submit", (event) => {
  event.preventDefault();
  busy(async () => {
    let first = null;
    for (const [index, body] of [...byId("predict-questions").children].entries()) {
      const one = asked("predict")[index];
      const answer = given(body);
      const refusal = await engine.call("lab_predict", { name, question: one.id, answer });
      tell(body, refusal ? "wrong" : "", refusal);
      if (refusal) first ??= body;
      else state.predictions[one.id] = answer;
    }
    save();
    if (first) return first.querySelector("input, textarea").focus();
    state.kept = true;
    save();
    await unlocked();
    progress();
    byId("compute-title").focus();
  }).catch(fail);
});

byId("who").addEventListener("submit", (event) => {
  event.preventDefault();
  student = byId("student").value.trim();
  rememberStudent(student);
  busy(open).catch(fail);
});

byId("reflect").addEventListener("input", () => {
  state.reflection = byId("reflect").value;
  save();
});
byId("reflect").addEventListener("change", () => busy(finish).catch(fail)); // the saved code carries it
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("code").textContent);
  byId("copy").textContent = "Copied";
});
byId("save-result").addEventListener("click", () => {
  const cell = `"${student.replaceAll('"', '""')}"`;
  download(`${lab.id}-${student.replace(/[^\w.@-]+/g, "_")}.csv`, "text/csv", `student,code\n${cell},${byId("code").dataset.full}\n`);
});
byId("print").addEventListener("click", () => print());
byId("again").addEventListener("click", () => {
  if (!confirm("Forget the predictions and answers of this lab and start again?")) return;
  state = { ...readState("", ""), version: lab.version };
  save();
  busy(open).then(() => byId("lab").focus()).catch(fail);
});

// A phone that is turned, or a window that is dragged, gets charts of its new width.
let drawn = 0;
new ResizeObserver(([{ contentRect }]) => {
  const before = drawn;
  drawn = contentRect.width;
  if (before && drawn && Math.abs(drawn - before) > 40 && state?.kept) busy(compute).catch(fail);
}).observe(byId("lab-charts"));

// --- the view ------------------------------------------------------------------------------------------------------

export async function mount(_, { rest }) {
  const before = name;
  name = rest;
  if (before !== name) byId("lab").hidden = true;
  const [site] = await Promise.all([labsOfSite(), engine.ready]);
  siteKey = site.key;
  list = site.labs;
  if (byId("lab").hidden) told("Opening the lab …");
  await busy(open);
  const next = list[list.findIndex((one) => one.id === name) + 1];
  byId("next").hidden = !next;
  if (next) byId("next").href = `#lab/${next.id}`;
  if (next) byId("next").textContent = `Next: ${next.title}`;
  say("");
  if (before && before !== name) scrollTo(0, 0);
  byId("title").focus({ preventScroll: true });
  root.dataset.ready = "";
}

export function unmount() {}
