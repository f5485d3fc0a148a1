// The controls of a design, as data: which field of the plan each moves, by which stops, and for which tasks.
//
// Those that the page is drawn around stand here. Every other key of a plan gets a plain one from its description
// (plan_keys.js, made when the site is built), so that no key is without one.
//
// A control reads the plan, and where the plan leaves its field open what the engine chose (`chosen` of the answer); it
// writes a changed copy of the plan. Units stay in Python: numbers here are in the unit that is shown.
import { FREE, KEYS } from "./plan_keys.js";
import { get, set } from "./state.js";

export const ALL = ["training", "serving", "inference", "rl"];

function powers(from, to) {
  const stops = [];
  for (let value = from; value <= to; value *= 2) stops.push(value);
  return stops;
}

// Geometric stops, `each` to a doubling, rounded to three digits.
function geometric(from, to, each = 4) {
  const count = Math.round(Math.log2(to / from) * each);
  return Array.from({ length: count + 1 }, (_, k) => Number((from * 2 ** (k / each)).toPrecision(3)));
}

function around(value) {
  return geometric(value / 8, value * 8, 8).map((stop, k) => (k === 24 ? value : stop));
}

function range(from, to, step) {
  const count = Math.round((to - from) / step);
  return Array.from({ length: count + 1 }, (_, k) => Number((from + k * step).toPrecision(6)));
}

// --- hardware ------------------------------------------------------------------------------------------------------

function onSystem(plan, on) {
  const before = plan.hardware ?? {};
  const fabric = before.fabric ?? /@\s*([^@+]+?)\s*$/.exec(before.on ?? "")?.[1];
  const { name, nodes, accelerators, ...rest } = before;
  return { ...plan, hardware: { ...rest, on, ...(fabric ? { fabric } : {}) } };
}

function withAccelerators(plan, count, { chosen }) {
  const number = chosen.system_kind === "node" ? Math.max(1, Math.round(count / chosen.per_node)) : count;
  return pooled(onSystem(plan, `${number}x${chosen.system}`), count, chosen);
}

// Those that only generate stay the same share of the fleet, in whole nodes.
function pooled(plan, count, chosen) {
  const split = Number(get(plan, "rl.split"));
  if (!split || !chosen.accelerators) return plan;
  const unit = count > chosen.per_node ? chosen.per_node : 1;
  const share = Math.max(unit, Math.round(split / chosen.accelerators * count / unit) * unit);
  const generators = Math.min(share, Math.max(count - unit, 1));
  // A found layout that does not divide the others is searched anew.
  const degrees = ["tp", "pp", "cp"].map((name) => get(plan, `parallelism.${name}`) ?? 1);
  const divides = (count - generators) % degrees.reduce((all, degree) => all * degree) === 0;
  return set(divides ? plan : unlaid(plan), "rl.split", String(generators));
}

export function withSystem(plan, item, { chosen }) {
  let changed = set(set(plan, "hardware.fabric", null), "hardware.chip", null);
  changed = { ...changed, hardware: { ...changed.hardware, on: (changed.hardware?.on ?? "").replace(/@.*/, "") } };
  if (item.kind !== "chip") return onSystem(changed, item.key);
  const size = item.per_node;
  const now = plan.task === "inference" ? 1 : chosen.accelerators ?? 1;
  return onSystem(changed, `${now < size ? now : Math.max(1, Math.round(now / size)) * size}x${item.key}`);
}

function fleetStops({ chosen }) {
  const size = chosen.per_node ?? 8;
  const nodes = chosen.system_kind === "node" || size > 8;
  return [...(nodes ? [] : powers(1, 4)), ...powers(nodes ? size : 8, 131072)];
}

const figure = (name, label, tasks = ALL) => ({
  path: `hardware.chip.${name}`, group: "chip", label, kind: "slider", tasks,
  shown: ({ figures }) => name in figures,
  unit: ({ figures }) => figures[name]?.unit ?? "",
  stops: ({ figures }) => around(figures[name]?.zoo ?? 1),
  read: (plan, { figures }) => figures[name]?.now,
  write: (plan, value, { figures }) =>
    set(plan, `hardware.chip.${name}`, value === figures[name].zoo ? null : `${value} ${figures[name].unit}`),
});

// --- parallelism ---------------------------------------------------------------------------------------------------

const LAYOUT = ["tp", "pp", "cp", "ep", "virtual_stages", "micro_batch", "zero", "recompute"];
const SERVED = ["tp", "pp", "ep", "attention_dp"];
const POOLS = ["split", "generator_tp", "generator_pp", "generator_ep"];

function automatic(plan) {
  const split = plan.parallelism ?? {};
  if (split.mode) return split.mode === "auto";
  return !Object.keys(split).some((name) => !FREE.includes(name));
}

// Of some keys of a part of a plan those for which something was found.
const found = (chosen, part, keys) => Object.fromEntries(keys.map((key) => [key, chosen[`${part}.${key}`]]).filter(([, value]) => value !== undefined));

const unlaid = (plan) => LAYOUT.reduce((now, key) => set(now, `parallelism.${key}`, null), plan);

// The plan with the layout that was found for it written down, and of post-training its pools.
export function writtenDown(plan, chosen) {
  const { split, ...pools } = plan.task === "rl" ? found(chosen, "rl", POOLS) : {};
  const given = plan.rl ?? {};
  const searched = split && given.split === "auto" ? { split: String(split) } : {};
  const open = { ...Object.fromEntries(Object.entries(pools).filter(([key]) => !(key in given))), ...searched };
  return laidOut(Object.keys(open).length ? { ...plan, rl: { ...given, ...open } } : plan, chosen);
}

function laidOut(plan, chosen) {
  if (plan.task === "inference" || !automatic(plan)) return plan;
  const { mode, ...given } = plan.parallelism ?? {};
  const split = found(chosen, "parallelism", plan.task === "serving" ? SERVED : LAYOUT);
  if (split.pp === 1) delete split.virtual_stages;
  return Object.keys(split).length ? { ...plan, parallelism: { ...split, ...given } } : plan;
}

// A degree of a training layout: a searched layout is written down first; the data-parallel degree is what is left.
function split(name) {
  return (plan, value, { chosen }) => {
    if (plan.task === "serving") return set(plan, `parallelism.${name}`, value);
    const { mode, dp, ...before } = writtenDown(plan, chosen).parallelism ?? {};
    const kept = { ...before, [name]: value };
    if ((kept.pp ?? 1) === 1) delete kept.virtual_stages;
    return { ...plan, parallelism: kept };
  };
}

const degree = (name, label, most, more = {}) => ({
  path: `parallelism.${name}`, group: "parallelism", label, kind: "slider", integer: true, stops: powers(1, most),
  tasks: ["training", "rl"], write: split(name), ...more,
});

// Accelerators that only generate: eighths of the fleet in whole nodes, as many as there are.
function shares({ chosen }) {
  const total = chosen.accelerators ?? 0;
  const unit = total > chosen.per_node ? chosen.per_node : 1;
  const stops = range(1, 7, 1).map((eighth) => Math.max(unit, Math.round(total * eighth / 8 / unit) * unit));
  return [null, ...new Set(stops)].filter((count) => count === null || count < total);
}

// --- serving -------------------------------------------------------------------------------------------------------

export function load(plan) {
  return get(plan, "serving.qps") ? "rate" : get(plan, "serving.concurrency") ? "clients" : get(plan, "serving.trace") ? "trace" : "limits";
}

// Percentiles: a minute of requests is played, as many of them as a browser plays in a moment, with calibrated steps.
const steady = (plan) => set(set(plan, "serving.seed", null), "serving.requests", null);
const played = (plan) => (get(plan, "serving.seed") ?? null) !== null;
// A limit on a percentile is simulated whatever is chosen.
const percentiles = (plan) => Object.keys(get(plan, "serving.slo") ?? {}).some((name) => /_p\d/.test(name));
const minute = (plan) => {
  const requests = Math.min(1000, Math.max(20, Math.round(60 * get(plan, "serving.qps"))));
  const calibrated = typeof get(plan, "hardware.efficiency") === "number" ? set(plan, "hardware.efficiency", null) : plan;
  return set(set(calibrated, "serving.seed", get(plan, "serving.seed") ?? 0), "serving.requests", requests);
};

const limit = (name, label, stops, unit, more = {}) => ({
  path: `serving.${name}`, group: "serving", label, kind: "slider", unit, stops: [null, ...stops], none: "no limit",
  tasks: ["serving"], read: (plan, { chosen }) => (get(plan, `serving.${name}`) ? chosen[`serving.${name}`] : null),
  write: (plan, value) => set(plan, `serving.${name}`, value === null ? null : `${value} ${unit}`), ...more,
});

const money = (name, label, stops, unit, more) => ({
  path: `ops.${name}`, group: "place", label, kind: "slider", unit, stops: [null, ...stops], none: "no limit",
  read: (plan, { chosen }) => (get(plan, `ops.${name}`) ? chosen[`ops.${name}`] : null),
  write: (plan, value) => set(plan, `ops.${name}`, value === null ? null : `${value} ${more.written}`), ...more,
});

const firstOrder = (plan, { chosen }) => typeof (get(plan, "hardware.efficiency") ?? chosen["hardware.efficiency"]) === "number";

// --- from the schema -----------------------------------------------------------------------------------------------

const named = (keys) => keys.map((key) => ({ key, name: key }));
const choices = (path) => named(KEYS.find((key) => key.path === path).choices);

// A plain control for a key: a menu where its values are known, a slider for counts and shares, and text for the rest.
function plain({ path, label, meaning, tasks, kind, choices: words, list, least, most, example }) {
  const control = { path, group: "more", label, meaning, tasks, none: "not said" };
  if (words) return { ...control, kind: "menu", options: named(words) };
  if (list) return { ...control, kind: "menu", list };
  if (kind === "flag") {
    return { ...control, kind: "menu", options: [{ key: "true", name: "yes" }, { key: "false", name: "no" }],
      read: (plan) => get(plan, path)?.toString() ?? null,
      write: (plan, value) => set(plan, path, value === null ? null : value === "true") };
  }
  if (kind === "whole") {
    const stops = [null, ...(least === 0 ? [0] : []), ...powers(1, Math.min(most ?? 65536, 65536))];
    return { ...control, kind: "slider", integer: true, least: least ?? 1, stops };
  }
  if (kind === "share") return { ...control, kind: "slider", stops: [null, ...range(0.05, 1, 0.05)] };
  if (kind === "number") return { ...control, kind: "slider", stops: [null, ...geometric(0.125, 8192, 2)] };
  return { ...control, kind: "text", example };
}

// --- the list ------------------------------------------------------------------------------------------------------

export const GROUPS = {
  workload: "Workload",
  serving: "Traffic",
  hardware: "Hardware",
  chip: "Edit the chip",
  parallelism: "Parallelism",
  place: "Place, time and money",
  more: "More settings",
};

const DRAWN = [
  { path: "workload.model", group: "workload", label: "Model", kind: "search", list: "models", tasks: ALL,
    // How experts are split says nothing about another model.
    write: (plan, item) => set(set(plan, "workload.model", item.key), "parallelism.ep", null) },
  { path: "workload.batch_size", group: "workload", label: "Batch", unit: "samples", kind: "slider", integer: true,
    stops: powers(1, 65536), tasks: ["training", "inference"] },
  { path: "workload.seq_len", group: "workload", label: "Sequence", unit: "tokens", kind: "slider", integer: true,
    stops: powers(128, 1048576), tasks: ["training", "inference"], shown: ({ chosen }) => !chosen.fixed_shape },
  { path: "workload.precision", group: "workload", label: "Precision", kind: "menu", list: "precisions", tasks: ALL },
  { path: "workload.phase", group: "workload", label: "Phase", kind: "menu", tasks: ["inference"], none: "as the model has it",
    options: choices("workload.phase"), shown: ({ chosen }) => !chosen.fixed_shape },
  { path: "workload.tokens", group: "workload", label: "Train on", unit: "tokens", kind: "slider",
    stops: [null, ...geometric(1e9, 1.28e14, 2)], none: "for a fixed time", tasks: ["training"] },

  { path: "serving.prompt_tokens", group: "serving", label: "Prompt", unit: "tokens", kind: "slider", integer: true,
    stops: powers(16, 1048576), tasks: ["serving"], shown: ({ plan }) => load(plan) !== "trace" },
  { path: "serving.output_tokens", group: "serving", label: "Output", unit: "tokens", kind: "slider", integer: true,
    stops: powers(1, 65536), tasks: ["serving"], shown: ({ plan }) => load(plan) !== "trace" },
  { path: "serving.load", group: "serving", label: "Load", kind: "menu", tasks: ["serving"],
    options: [{ key: "clients", name: "requests in flight" }, { key: "rate", name: "requests a second" },
      { key: "limits", name: "up to the limits" }],
    read: load,
    write: (plan, value, { chosen }) => {
      if (value === "trace") return plan;
      const clients = value === "clients" ? chosen["serving.concurrency"] ?? 64 : null;
      const untraced = set(plan, "serving.trace", null);
      return steady(set(set(untraced, "serving.qps", value === "rate" ? 10 : null), "serving.concurrency", clients));
    } },
  { path: "serving.concurrency", group: "serving", label: "Requests in flight", unit: "", kind: "slider", integer: true,
    stops: powers(1, 65536), tasks: ["serving"], shown: ({ plan }) => load(plan) === "clients" },
  { path: "serving.qps", group: "serving", label: "Rate", unit: "requests/s", kind: "slider",
    stops: geometric(0.125, 8192, 2), tasks: ["serving"], shown: ({ plan }) => load(plan) === "rate",
    write: (plan, value) => (played(plan) ? minute : (same) => same)(set(plan, "serving.qps", value)) },
  { path: "serving.play", group: "serving", label: "Percentiles", kind: "menu", tasks: ["serving"],
    options: [{ key: "steady", name: "no, a steady state" }, { key: "minute", name: "of a minute of traffic" }],
    read: (plan) => (played(plan) ? "minute" : "steady"), write: (plan, value) => (value === "minute" ? minute : steady)(plan),
    shown: ({ plan }) => load(plan) === "rate" && (played(plan) || !percentiles(plan)) },
  limit("ttft", "First token within", geometric(25, 25600, 2), "ms"),
  limit("tpot", "Each token within", geometric(2, 512, 2), "ms"),
  limit("latency", "Request within", geometric(0.25, 256, 2), "s"),
  { path: "serving.cache_precision", group: "serving", label: "Cache precision", kind: "menu", list: "precisions",
    none: "the engine's own", tasks: ["serving"] },
  { path: "serving.engine", group: "serving", label: "Engine", kind: "menu", list: "engines", none: "vLLM (usual)",
    tasks: ["serving"] },

  { path: "hardware.on", group: "hardware", label: "Hardware", kind: "search", list: "chips", tasks: ALL,
    read: (plan, { chosen }) => chosen.system ?? plan.hardware?.on, write: withSystem },
  { path: "accelerators", group: "hardware", label: "Fleet", unit: "accelerators", kind: "slider", integer: true,
    stops: fleetStops, tasks: ["training", "serving", "rl"], read: (plan, { chosen }) => chosen.accelerators, write: withAccelerators,
    enabled: ({ chosen }) => chosen.system_kind === "chip" || chosen.system_kind === "node" },
  { path: "hardware.fabric", group: "hardware", label: "Fabric", kind: "menu", list: "fabrics", none: "as the zoo has it",
    tasks: ["training", "serving"] },
  { path: "hardware.fidelity", group: "hardware", label: "Fidelity", kind: "menu", tasks: ALL,
    options: [{ key: "calibrated", name: "calibrated" }, { key: "first", name: "first order" }],
    read: (plan, context) => (firstOrder(plan, context) ? "first" : "calibrated"),
    write: (plan, value) => set(plan, "hardware.efficiency", value === "first" ? 0.5 : "calibrated") },
  { path: "hardware.efficiency", group: "hardware", label: "Efficiency η", unit: "of peak", kind: "slider",
    stops: range(0.05, 1, 0.01), tasks: ALL, shown: (context) => firstOrder(context.plan, context) },
  { path: "hardware.stack", group: "hardware", label: "Software stack", kind: "menu", wide: true, list: "stacks", none: "chosen by year",
    tasks: ["training"], shown: (context) => !firstOrder(context.plan, context) },

  figure("peak_flops", "Peak"),
  figure("memory_bandwidth", "Memory bandwidth"),
  figure("memory_capacity", "Memory"),
  figure("link_bandwidth", "Link, both ways", ["training", "serving"]),
  figure("fabric_bandwidth", "Network port", ["training", "serving"]),
  figure("tdp", "TDP"),
  figure("price", "Price"),

  degree("tp", "Tensor (TP)", 64, { tasks: ["training", "serving", "rl"] }),
  degree("pp", "Pipeline (PP)", 64, { tasks: ["training", "serving", "rl"] }),
  degree("ep", "Expert (EP)", 256, { tasks: ["training", "serving", "rl"], enabled: ({ chosen }) => (chosen.experts ?? 1) > 1 }),
  degree("cp", "Context (CP)", 64),
  { path: "parallelism.dp", group: "parallelism", label: "Data (DP), what is left", kind: "output", tasks: ["training", "rl"] },
  { path: "serving.replicas", group: "parallelism", label: "Replicas", kind: "slider", integer: true, stops: powers(1, 16384),
    tasks: ["serving"] },
  degree("virtual_stages", "Virtual stages", 32, { enabled: ({ chosen }) => (chosen["parallelism.pp"] ?? 1) > 1 }),
  degree("micro_batch", "Micro-batch", 256, { unit: "samples" }),
  degree("zero", "ZeRO stage", 3, { stops: [0, 1, 2, 3], least: 0 }),
  { path: "parallelism.recompute", group: "parallelism", label: "Recompute", kind: "menu", tasks: ["training", "rl"],
    options: choices("parallelism.recompute"), write: split("recompute") },
  { path: "rl.split", group: "parallelism", label: "Generate alone", unit: "accelerators", kind: "slider", integer: true, tasks: ["rl"],
    none: "none: take turns", stops: shares, enabled: ({ plan }) => !get(plan, "rl.generate_on"),
    read: (plan, { chosen }) => (["none", undefined].includes(get(plan, "rl.split")) ? null : chosen["rl.split"] ?? null),
    write: (plan, value) => { // trainers of another number have another layout
      const open = unlaid(plan);
      return value === null ? set(set(open, "rl.split", null), "rl.staleness", null) : set(open, "rl.split", String(value));
    } },
  { path: "rl.generator_tp", group: "parallelism", label: "TP of a generator", kind: "slider", integer: true, stops: powers(1, 64), tasks: ["rl"] },

  { path: "ops.region", group: "place", label: "Region", kind: "menu", wide: true, list: "regions", none: "not said", tasks: ALL },
  { path: "ops.days", group: "place", label: "Duration", unit: "days", kind: "slider", stops: geometric(0.25, 1024, 2),
    tasks: ["training", "serving"], shown: ({ plan }) => !(plan.task === "training" && get(plan, "workload.tokens")),
    read: (plan, { chosen }) => chosen["ops.days"] ?? (plan.task === "training" ? 30 : 1),
    write: (plan, value) => set(set(plan, "ops.duration", null), "ops.duration_days", value) },
  money("deadline", "Deadline", geometric(1, 512, 2), "days", { tasks: ["training"], written: "day",
    shown: ({ plan }) => Boolean(get(plan, "workload.tokens")) }),
  money("budget", "Budget", geometric(1000, 1.024e9, 1), "USD", { tasks: ["training", "serving"], written: "USD" }),
];

export const CONTROLS = [...DRAWN, ...KEYS.filter(({ path }) => !DRAWN.some((drawn) => drawn.path === path)).map(plain)];

export function valueOf(control, context) {
  if (control.read) return control.read(context.plan, context) ?? null;
  return get(context.plan, control.path) ?? (control.none ? null : context.chosen[control.path] ?? null);
}

export function planWith(control, value, context) {
  if (control.write) return control.write(context.plan, value, context);
  return set(context.plan, control.path, value);
}

export function isShown(control, context) {
  return control.tasks.includes(context.plan.task) && (control.shown?.(context) ?? true);
}

// A plan for another task around the same model, chip and place.
export function forTask(plan, task, { chosen }) {
  const { model, precision } = plan.workload;
  const system = chosen.system_kind === "chip" ? chosen.system : "H100";
  const ops = plan.ops?.region ? { region: plan.ops.region } : {};
  const efficiency = plan.hardware?.efficiency;
  const hardware = (count) => ({ on: `${count}x${system}`, ...(efficiency ? { efficiency } : {}) });
  const workload = { model, ...(precision ? { precision } : {}) };
  if (task === "serving") {
    return { task, workload, hardware: hardware(8), serving: { prompt_tokens: 2048, output_tokens: 256, concurrency: 64 }, ops };
  }
  if (task === "rl") return { task, workload, hardware: hardware(64), rl: { prompts: 64, samples: 32, response: 2500 }, serving: { prompt_tokens: 512 }, ops };
  if (task === "inference") return { task, workload: { ...workload, batch_size: 1 }, hardware: hardware(1), ops };
  const layout = { tp: 8, zero: 1, micro_batch: 1 };
  return { task, workload: { ...workload, batch_size: 512, seq_len: 4096 }, hardware: hardware(64), parallelism: layout, ops };
}
