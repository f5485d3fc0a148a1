// The two engines and what they have been told: the first answers while a control moves, the second searches in the background.
import { engine, searching } from "./page.js";

export class Brains {
  #state;
  #lists;
  #traces;
  #known = new WeakMap(); // imported models by engine: one knows them for as long as it runs
  #searches = 0;
  slow = true; // whether the last answer took long; nobody knows it of the first

  constructor(state, lists, traces) {
    this.#state = state;
    this.#lists = lists;
    this.#traces = traces;
  }

  knows(key, brain = engine) {
    if (!this.#known.has(brain)) this.#known.set(brain, new Set());
    this.#known.get(brain).add(key);
  }

  async teach(brain = engine) {
    await this.#traces(brain);
    for (const [key, text] of Object.entries(this.#state.models)) {
      if (this.#known.get(brain)?.has(key)) continue;
      const item = await brain.call("take_model", { text });
      this.knows(key, brain);
      if (brain === engine) this.#lists.models = [item, ...(this.#lists.models ?? [])];
    }
  }

  inBackground = async (name, args) => {
    const { plan } = this.#state;
    for (;;) {
      const other = searching();
      try {
        await other.ready;
        await this.teach(other);
        if (this.#state.plan !== plan) throw other.superseded;
        return await other.call(name, args);
      } catch (error) {
        // What is asked of this design, and only stood behind a search for the one before, is asked again.
        if (error !== other.superseded || this.#state.plan !== plan) throw error;
      }
    }
  };

  // Whatever searches keeps the second engine busy.
  search = async (action) => {
    this.#searches += 1;
    try {
      return await action();
    } finally {
      this.#searches -= 1;
    }
  };

  // A curve is computed in the background; while a search stands there, a point at a time beside the answers, unless one takes long: then what is known.
  alongside = async (name, args) => {
    const free = !this.#searches && await Promise.race([searching().ready.then(() => true), Promise.resolve(false)]);
    return free || (this.slow && args.moment !== 0) ? this.inBackground(name, args) : engine.call(name, { ...args, moment: args.moment === 0 ? 0 : Number.MIN_VALUE });
  };
}
