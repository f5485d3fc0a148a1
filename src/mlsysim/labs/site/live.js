// A minute of traffic, moving: requests that wait, that are worked on, and how full the caches are, from the simulation.
// Where motion is not wanted the pictures stand still, and the reader moves the time by hand.
import { byId, element, unstyled } from "./dom.js";
import { markup } from "./lab_parts.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const BARS = { queue: "Waiting", batch: "Worked on", caches: "Caches filled" };
let seen = null;
let at = 0; // seconds
let playing = false;
let frame = 0;
let last = 0;

const speed = () => Number(byId("live-speed").value);
const end = () => seen.times.at(-1);

function draw() {
  const index = Math.max(0, seen.times.findLastIndex((time) => time <= at));
  for (const name of Object.keys(BARS)) {
    const value = seen[name]?.[index] ?? 0;
    const most = name === "caches" ? 1 : Math.max(1, ...seen.queue, ...seen.batch);
    const row = byId(`live-${name}`);
    row.querySelector(".fill").style.width = `${(100 * Math.min(1, value / most)).toFixed(2)}%`;
    row.querySelector("output").textContent = name === "caches" ? `${Math.round(100 * value)} %` : value.toLocaleString("en");
  }
  byId("live-time").value = at;
  byId("live-clock").textContent = `${at.toFixed(1)} s of ${end().toFixed(0)} s`;
  byId("live-time").setAttribute("aria-valuetext", byId("live-clock").textContent);
}

function tick(now) {
  if (!playing) return;
  at += ((now - last) / 1000) * speed();
  last = now;
  if (at >= end()) {
    at = end();
    pause();
  }
  draw();
  if (playing) frame = requestAnimationFrame(tick);
}

export function pause() {
  playing = false;
  cancelAnimationFrame(frame);
  byId("live-play").textContent = "Play";
}

function play() {
  if (at >= end()) at = 0;
  playing = true;
  byId("live-play").textContent = "Pause";
  last = performance.now();
  frame = requestAnimationFrame(tick);
}

byId("live-bars").replaceChildren(...Object.entries(BARS).map(([name, title]) => element("div", { class: "live-row", id: `live-${name}` },
  element("span", {}, title), element("span", { class: "track" }, element("span", { class: "fill", "data-kind": name })), element("output", {}))));
byId("live-play").addEventListener("click", () => (playing ? pause() : play()));
byId("live-time").addEventListener("input", () => {
  pause();
  at = byId("live-time").valueAsNumber;
  draw();
});

// null: there is nothing to play; {error}: why it cannot be.
export function showLive(found) {
  pause();
  byId("live").hidden = !found;
  if (!found) return;
  const traffic = found.kind === "traffic";
  byId("live-title").textContent = found.error ? "Over time" : traffic ? `${Math.round(found.over_time.times.at(-1))} seconds of this traffic` : "The run over time";
  byId("live-says").replaceChildren(...(found.error ? [found.error] : found.says).map((text) => element("li", {}, text)));
  byId("live-player").hidden = !traffic;
  byId("live-play").hidden = byId("live-speed").parentElement.hidden = still.matches;
  byId("live-charts").replaceChildren(...(found.charts ?? []).map((svg) => markup("figure", unstyled(svg), { class: "chart" })));
  if (!traffic) return;
  seen = found.over_time;
  at = 0;
  byId("live-time").max = end();
  byId("live-time").step = end() / 400;
  draw();
}
