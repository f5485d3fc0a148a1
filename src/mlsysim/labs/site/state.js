// The state of the explorer and its form in the address: a readable query behind the #.
//
//   #task=training&workload.model=Llama3_70B&hardware.on=512xH100&pin.task=...&model.Imported_X={...}
//
// Each leaf of the plan's document is one pair. A value is JSON where that is what it was, and plain text otherwise, so that
// what is read back is equal to what was written, types included.

export function get(document, path) {
  return path.split(".").reduce((part, name) => part?.[name], document);
}

// A copy with one field set; null removes it, and a part that is left empty with it.
export function set(document, path, value) {
  const [name, ...rest] = path.split(".");
  const copy = { ...document };
  const next = rest.length ? set(copy[name] ?? {}, rest.join("."), value) : value;
  if (next === null || next === undefined || (rest.length && !Object.keys(next).length)) delete copy[name];
  else copy[name] = next;
  return copy;
}

function* leaves(value, path) {
  if (value && typeof value === "object" && !Array.isArray(value)) {
    for (const [name, part] of Object.entries(value)) yield* leaves(part, path ? `${path}.${name}` : name);
  } else yield [path, value];
}

function written(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  try {
    JSON.parse(value);
    return JSON.stringify(value); // text that would be read as something else
  } catch {
    return value;
  }
}

function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function encode({ plan, pin, models }) {
  const query = new URLSearchParams();
  for (const [path, value] of leaves(plan, "")) query.append(path, written(value));
  if (pin) for (const [path, value] of leaves(pin, "pin")) query.append(path, written(value));
  for (const [key, text] of Object.entries(models)) query.append(`model.${key}`, text);
  // The characters that are safe behind a # stay readable.
  return query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%40", "@").replaceAll("%2F", "/");
}

// The state in an address; null where it holds none.
export function decode(hash) {
  const text = hash.replace(/^#/, "");
  if (!text.includes("=")) return null;
  let plan = {};
  let pin = null;
  const models = {};
  for (const [path, value] of new URLSearchParams(text)) {
    if (path.split(".").some((name) => !/^\w+$/.test(name) || name === "__proto__")) continue;
    if (path.startsWith("pin.")) pin = set(pin ?? {}, path.slice(4), read(value));
    else if (path.startsWith("model.")) models[path.slice(6)] = value;
    else plan = set(plan, path, read(value));
  }
  return { plan, pin, models };
}

// At most one call at a time: while one is under way only the newest of those asked for meanwhile is kept.
export class Newest {
  #run;
  #busy = false;
  #waiting = null;

  constructor(run) {
    this.#run = run;
  }

  get idle() {
    return !this.#busy && !this.#waiting;
  }

  async ask(...args) {
    this.#waiting = args;
    if (this.#busy) return;
    this.#busy = true;
    while (this.#waiting) {
      const next = this.#waiting;
      this.#waiting = null;
      await this.#run(next, () => !this.#waiting); // the second tells whether it is still the newest
    }
    this.#busy = false;
  }
}

export function later(milliseconds, action) {
  let timer = 0;
  const start = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...args), milliseconds);
  };
  return Object.assign(start, { cancel: () => clearTimeout(timer) });
}
