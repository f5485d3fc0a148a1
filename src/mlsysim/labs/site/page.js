// The one page that all views share: its engines and its line of status. Python starts once, when this module is first imported.
import { Engine } from "./engine.js";
import { byId } from "./dom.js";
import { later } from "./state.js";

const root = document.documentElement;
const status = byId("status");
const bar = byId("progress");
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

// What cannot go on: the engine did not start, or has a defect.
export function fail(error) {
  status.setAttribute("role", "alert");
  status.textContent = error.message;
  bar.hidden = true;
  root.dataset.failed = "";
}

// A line of status; `alert` for what the reader can change.
export function say(text, alert = false) {
  status.setAttribute("role", alert ? "alert" : "status");
  if (status.textContent !== text) status.textContent = text;
}

export const engine = new Engine({
  onProgress({ text, done, total }) {
    bar.hidden = false;
    say(`${text}: ${megabytes(done)} of ${megabytes(total)} MB`);
    bar.value = total ? done / total : 0;
  },
});
engine.ready.then(() => {
  bar.hidden = true;
  say("Ready: everything is computed in this browser, and nothing is sent anywhere.");
  root.dataset.engine = "";
}).catch(fail);
window.engine = engine; // for the console: await engine.call("about")

// A second engine for searches, so that none stands before the next answer; started when it is first asked for.
let second = null;
export const searching = () => (second ??= new Engine());

// Another design: a search for the one before that takes longer than a start gives way to a fresh engine.
const START = 4000; // milliseconds
export function anew() {
  const [at, when] = [second, performance.now()];
  if (!at?.oldest) return;
  later(START, () => {
    if (second !== at || !(at.oldest?.since <= when)) return;
    at.stop();
    second = new Engine();
  })();
}

// A file that was dropped, until the explorer takes it.
export const dropped = { file: null };
