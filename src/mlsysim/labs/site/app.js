// The first page: one design, evaluated as soon as the engine is there, and again when its batch changes.
import { Engine } from "./engine.js";

const DESIGN = {
  name: "Llama 3 70B, trained on 256 H100",
  workload: "Llama3_70B",
  system: "Research_256",
  batch_size: 256,
  seq_len: 4096,
  region: "Quebec",
  duration_days: 30,
};

const root = document.documentElement;
const status = document.getElementById("status");
const bar = document.getElementById("progress");
const form = document.getElementById("design");
const panel = document.getElementById("answer");

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

function fail(error) {
  status.setAttribute("role", "alert");
  status.textContent = error.message;
  bar.hidden = true;
  root.dataset.failed = "";
}

function line(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

function figure(value) {
  if (value && typeof value === "object") return `${Number(value.magnitude).toPrecision(4)} ${value.unit}`;
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value);
}

function show(evaluation) {
  panel.replaceChildren(line("h2", evaluation.scenario_name));
  for (const level of evaluation.levels) {
    panel.append(line("h3", `${level.level_name}: ${level.status}`), line("p", level.summary));
    const list = document.createElement("dl");
    for (const [name, metric] of Object.entries(level.metrics)) {
      list.append(line("dt", name.replaceAll("_", " ")), line("dd", `${figure(metric.value)} (wall ${metric.wall})`));
    }
    panel.append(list);
  }
  panel.hidden = false;
}

async function update() {
  delete root.dataset.ready;
  try {
    show(await engine.call("evaluate", { ...DESIGN, batch_size: form.elements.batch_size.valueAsNumber }));
    status.setAttribute("role", "status");
    status.textContent = "Evaluated in this browser; nothing was sent anywhere.";
  } catch (error) {
    if (error.kind !== "input") return fail(error);
    status.setAttribute("role", "alert");
    status.textContent = error.message;
  }
  root.dataset.ready = "";
}

const engine = new Engine({
  onProgress({ text, done, total }) {
    status.textContent = `${text}: ${megabytes(done)} of ${megabytes(total)} MB`;
    bar.value = total ? done / total : 0;
  },
});
window.engine = engine; // for the console: await engine.call("about")
form.elements.batch_size.value = DESIGN.batch_size;
form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
engine.ready.then(async () => {
  await update();
  bar.hidden = true;
  form.hidden = false;
}).catch(fail);
