// The chart along the control that was last moved: every point is the answer at that stop. The dot is the design; dragging it moves the control.
//
// The stops around the design are asked for in the background, a few at a time, nearest first, until none is left or something newer is asked.
import { element, put } from "./dom.js";
import { chartCard, showChart } from "./render.js";
import { Newest, later } from "./state.js";

const AROUND = 8; // stops to either side
const FEW = 3; // of a design whose answer takes long
const REST = 400; // milliseconds after which the hand is taken to rest
const WHILE_MOVING = 0.05; // seconds of a call until then: the next stop never waits for long
const FIRST = {
  training: ["accelerators", "workload.batch_size"],
  serving: ["serving.qps", "serving.concurrency", "serving.tpot", "serving.ttft", "accelerators", "serving.output_tokens"],
  inference: ["workload.batch_size", "workload.seq_len"],
  rl: ["accelerators", "rl.prompts"],
};
const WAYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };

const same = (one, other) => one === other || JSON.stringify(one) === JSON.stringify(other);

// The options of a menu, written where there are others.
function offer(menu, items, chosen) {
  const now = [...menu.options];
  if (items.length !== now.length || items.some(({ path, label }, k) => now[k].value !== path || now[k].text !== label)) {
    menu.replaceChildren(...items.map(({ path, label }) => element("option", { value: path }, label)));
  }
  put(menu, { value: chosen });
}

export function mount(root, { ask, learn, panel, width, slow }) {
  let path = null; // of the control
  let metric = "";
  let frame = { path: null, low: 0, high: 0 }; // the window of stops stays while one moves within it
  let asking = null; // what was asked before the answer to the design: it is not asked again with it
  let drawn = null; // {values, at, found}
  let dragging = false;
  let drawing = null; // until the curve has all its points
  const axis = element("select", { id: "hero-control", onchange: () => follow(axis.value) });
  const goal = element("select", { id: "hero-metric", onchange: () => { metric = goal.value; draw(); } });
  const moves = element("span", { hidden: true }, element("label", { for: goal.id }, " It moves "), goal); // once it is known what
  const card = chartCard("hero", "The curve");
  const place = card.querySelector(".chart");
  const dot = element("button", { type: "button", class: "grip", role: "slider", id: "hero-dot", hidden: true });
  const waits = element("span", { class: "muted", role: "status" });
  card.classList.add("hero");
  card.prepend(element("div", { class: "hero-head" },
    element("h2", {}, element("label", { for: axis.id }, "What if "), axis, " were different?", moves)));
  card.querySelector(".card-tools").prepend(waits);
  card.querySelector(".card-tools").append(element("button", { type: "button", class: "small", id: "save-curve", "aria-label": "Save the curve as CSV" }, "CSV"));
  const over = element("div", { class: "over" });
  place.replaceWith(over);
  over.append(place, dot);
  root.replaceChildren(card);
  let now = { plan: null, pin: null };

  function scale() {
    return path === null ? null : panel.scale(path);
  }

  // Values of the stops around the design, and where it is among them: its own value may lie between two stops.
  function around(found) {
    const at = found.nearest(found.stops, found.value);
    const inside = frame.path === path && at >= frame.low && at <= frame.high;
    const edge = at === frame.low || at === frame.high;
    if (!inside || (edge && !dragging)) {
      const far = slow() ? FEW : AROUND;
      frame = { path, low: Math.max(0, at - far), high: Math.min(found.stops.length - 1, at + far) };
    }
    const values = found.stops.slice(frame.low, frame.high + 1);
    if (!values.includes(found.value)) values.push(found.value);
    values.sort((one, other) => one - other);
    return { values, at: values.indexOf(found.value) };
  }

  const curve = new Newest(async ([asked, sure], newest) => {
    try {
      const began = performance.now();
      for (let left = 1, first = true; left > 0; first = false) {
        // At first what is known, then more at a time.
        const rests = performance.now() - began > REST;
        const found = await ask("curve", rests ? asked : { ...asked, moment: first ? 0 : WHILE_MOVING });
        if (!(await sure) || !newest() || !same(asked.plans[asked.at], now.plan)) return;
        left = found.left;
        render(asked, found);
      }
    } catch (error) {
      if (error.kind !== "input") throw error;
    }
  });

  // While the hand rests, the engine that answers computes the stops too, one at a time: a move to one of them is answered at once.
  let preparing = null;
  // Not of a design whose answer takes long: a stop would stand before the next answer.
  async function prepare({ plans, at }) {
    const asked = preparing = { plans, at };
    for (let left = 1; left > 0 && !slow() && preparing === asked && same(plans[at], now.plan);) left = await learn(asked);
  }
  const ahead = later(REST, prepare);

  // `sure` tells whether the design has an answer.
  function draw(sure = true) {
    ahead.cancel();
    const found = scale();
    card.hidden = !found || found.value === null;
    if (card.hidden) return;
    const { values, at } = around(found);
    const plans = values.map((value, k) => (k === at ? now.plan : panel.planAt(path, value)));
    const ghosts = now.pin && now.pin.plan.task === now.plan.task ? values.map((value) => panel.planAt(path, value, now.pin)) : null;
    const question = { values, plans, at, title: found.label, unit: found.unit, metric, ghosts, width: width() };
    const early = sure !== true;
    if (!early && same(question, asking)) return void (asking = null);
    asking = early ? question : null;
    card.dataset.left = "";
    if (!drawn) waits.textContent = "Computing …";
    const begins = curve.idle;
    const asked = curve.ask(question, sure);
    if (begins) drawing = asked;
  }

  function render(asked, found) {
    drawn = { ...asked, found };
    showChart(place, found.svg || null);
    card.hidden = false;
    card.dataset.left = found.left;
    waits.textContent = found.left ? `${found.left} more to compute` : found.svg ? "" : found.reasons[asked.at] ?? "";
    moves.hidden = !found.metrics.length;
    offer(goal, found.metrics, found.metric);
    put(asked.at);
    if (!found.left) ahead(asked);
  }

  // Over the drawn dot, with a target that a finger can hit.
  function put(at) {
    const svg = place.querySelector("svg");
    const size = svg?.viewBox.baseVal;
    const spot = svg && drawn.found.places[at];
    dot.hidden = !spot;
    if (!spot) return;
    over.style.maxWidth = svg.style.maxWidth;
    dot.style.left = `${100 * spot[0] / size.width}%`;
    dot.style.top = `${100 * spot[1] / size.height}%`;
    const text = `${drawn.values[at].toLocaleString("en")} ${drawn.unit}`.trim();
    for (const [name, value] of [["label", drawn.title], ["valuemin", 0], ["valuemax", drawn.values.length - 1], ["valuenow", at],
      ["valuetext", drawn.found.reasons[at] ? `${text}: ${drawn.found.reasons[at]}` : text]]) dot.setAttribute(`aria-${name}`, value);
  }

  function nearest(event) {
    const svg = place.querySelector("svg");
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const far = drawn.found.places.map(([left]) => Math.abs(left - x));
    return far.indexOf(Math.min(...far));
  }

  function go(at) {
    if (at < 0 || at >= drawn.values.length || at === drawn.at) return;
    drawn.at = at;
    put(at);
    panel.set(path, drawn.values[at]);
  }

  const begin = (event) => {
    if (event.button !== 0 || !drawn?.found.places.length) return;
    dragging = true;
    dot.setPointerCapture(event.pointerId);
    go(nearest(event));
  };
  dot.addEventListener("pointerdown", begin);
  place.addEventListener("pointerdown", (event) => { if (event.target.closest("svg")) begin(event); });
  dot.addEventListener("pointermove", (event) => { if (dragging) go(nearest(event)); });
  const end = () => { dragging = false; };
  for (const name of ["pointerup", "pointercancel"]) dot.addEventListener(name, end);
  dot.addEventListener("keydown", (event) => {
    const way = WAYS[event.key];
    if (!way) return;
    event.preventDefault();
    go(drawn.at + way);
  });

  function follow(other) {
    if (other === path) return;
    path = other;
    axis.value = other;
    draw();
  }

  return {
    // Another design: the control of its task leads again, and the curve of the one before goes.
    forget() {
      path = null;
      metric = "";
      now = { plan: null, pin: null };
      drawn = asking = null;
      showChart(place, null);
      dot.hidden = moves.hidden = true;
    },
    whole: () => drawing,
    // The control that was moved leads, where it has stops.
    moved(other) {
      if (other && panel.scale(other)?.value != null) path = other;
    },
    // The hand is on a control: its next stop to either side.
    near: later(REST / 4, (other) => {
      if (!drawn) return;
      if (other === path) return void (drawn.found.left || ahead(drawn));
      const found = panel.scale(other);
      if (!found || found.value === null) return;
      const at = found.nearest(found.stops, found.value);
      const beside = [at - 1, at + 1].filter((k) => k in found.stops).map((k) => panel.planAt(other, found.stops[k]));
      prepare({ plans: [now.plan, ...beside], at: 0 });
    }),
    // The stops of the curve as a table: those that are still to be computed are computed for it.
    csv() {
      const { values, plans, title, unit } = drawn;
      return ask("curve_csv", { values, plans, title, unit, metric: drawn.found.metric });
    },
    show(plan, task, pin, sure = true) {
      now = { plan, pin };
      const known = panel.scales();
      if (!known.some((each) => each.path === path)) {
        path = (FIRST[task] ?? []).find((each) => known.some((other) => other.path === each)) ?? known[0]?.path ?? null;
        metric = "";
      }
      offer(axis, known.map((each) => ({ path: each.path, label: each.label.toLowerCase() })), path);
      draw(sure);
    },
  };
}
