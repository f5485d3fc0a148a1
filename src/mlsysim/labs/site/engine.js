// The page's side of the engine: start it once, then call functions by name.
//
//   const engine = new Engine({ onProgress: ({ text, done, total }) => ... });
//   await engine.ready;                                   // {mlsysim, python, functions}, or throws one sentence
//   const value = await engine.call("evaluate", { ... }); // throws EngineError with one sentence

export class EngineError extends Error {
  constructor(message, kind) {
    super(message);
    this.name = "EngineError";
    this.kind = kind; // "input": the person can change it; "internal": a defect; "load": the engine did not start
  }
}

export class Engine {
  #worker;
  #next = 1;
  #open = new Map();
  #failure = null;
  #fail;
  superseded = new EngineError("The search was for a design that is no longer shown.", "input");

  constructor({ onProgress = () => {} } = {}) {
    this.milliseconds = null; // from the start of the worker until it was ready
    this.ready = new Promise((resolve, reject) => {
      const fail = (message) => this.#fail(new EngineError(message, "load"));
      this.#fail = (failure) => {
        this.#failure = failure;
        if (this.#worker) {
          this.#worker.onmessage = null; // what is under way may no longer speak over the failure
          this.#worker.terminate();
        }
        for (const request of this.#open.values()) request.reject(this.#failure);
        this.#open.clear();
        reject(this.#failure);
      };
      try {
        this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
      } catch (error) {
        fail(`The engine could not start here (${error.message}); serve the folder with \`mlsysim labs open\`.`);
        return;
      }
      this.#worker.onerror = (event) => {
        event.preventDefault();
        fail(`The engine could not start (${event.message || "worker.js could not be loaded"}); build the site again ` +
          "with `mlsysim labs build DIR`, or use a current browser.");
      };
      this.#worker.onmessage = ({ data }) => {
        if (data.kind === "progress") onProgress(data);
        else if (data.kind === "failed") fail(data.message);
        else if (data.kind === "ready") {
          this.milliseconds = data.milliseconds;
          resolve(data.about);
        } else this.#settle(data);
      };
    });
    this.ready.catch(() => {}); // a page that only calls gets the same error from its call
  }

  call(name, args = {}) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#open.set(id, { resolve, reject, since: performance.now() });
      this.#worker.postMessage({ id, name, args });
    });
  }

  // What was asked first of what has no answer yet, and since when.
  get oldest() {
    return this.#open.values().next().value;
  }

  // What was asked is not wanted any more, and a call cannot be broken off.
  stop() {
    this.#fail(this.superseded);
  }

  #settle({ id, ok, value, error, errorKind }) {
    const request = this.#open.get(id);
    this.#open.delete(id);
    if (ok) request.resolve(value);
    else request.reject(new EngineError(error, errorKind));
  }
}
