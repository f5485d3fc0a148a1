// The pinned design beside this one.
import { byId, element } from "./dom.js";
import { engine } from "./page.js";

export class Pinned {
  told = null; // of the pinned design: what was chosen for it, its chip, its bar of time
  of = null; // that design
  charts = {}; // that have room for both

  async compare({ pin, plan }, width) {
    byId("comparison").hidden = !pin;
    byId("pin").textContent = pin ? "Pin this instead" : "Pin to compare";
    if (this.of !== pin) Object.assign(this, { of: pin, told: null, charts: {} });
    if (!pin) return;
    try {
      const found = await engine.call("compare", { first: pin, second: plan, width });
      this.told = found.pinned;
      this.charts = found.charts;
      show(found);
    } catch (error) {
      if (error.kind !== "input") throw error;
      Object.assign(this, { told: null, charts: {} });
      byId("compare-error").textContent = error.message.replace("; say --task", "; switch the task back, or unpin");
    }
    byId("compare-error").hidden = this.told !== null;
    byId("compare-body").hidden = this.told === null;
  }
}

function show(found) {
  byId("compare-sentences").replaceChildren(...found.sentences.map((text) => element("li", {}, text)));
  const rows = found.rows.map((row) => element("tr", { "data-row": row.path }, element("th", { scope: "row" }, row.label),
    ...[row.first, row.second, row.factor].map((text) => element("td", { class: "number" }, text))));
  byId("compare-table").replaceChildren(
    element("caption", { class: "hidden" }, "Metrics of both designs"),
    element("thead", {}, element("tr", {}, ...["Metric", "Pinned", "Now", "Factor"].map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows));
  byId("pinned-subject").textContent = found.subjects[0];
}
