// Three gauges: does it fit, is it fast enough, is it worth it. Each limit in one of three states, in words and in a colour.
import { element } from "./dom.js";

const share = (value) => `${(100 * value).toFixed(3)}%`;

function bar({ parts, end, rest }) {
  const slices = parts.map((part) => element("span", { class: `slice s${part.series % 8}`, style: `width:${share(part.share)}`,
    title: `${part.label}: ${part.text}` }));
  const names = parts.map((part) => element("li", {}, element("i", { class: `swatch s${part.series % 8}`, "aria-hidden": "true" }), `${part.label} `, element("span", {}, part.text)));
  return [
    element("div", { class: "stack", "aria-hidden": "true" }, ...slices,
      end !== null && end < 0.9995 ? element("span", { class: "tick over", style: `left:${share(end)}` }) : null),
    element("ul", { class: "names" }, ...names, rest ? element("li", { class: "rest" }, rest) : null),
  ];
}

// A number on a line from 0: a dot, the band of its interval, a tick at its limit.
function row(found, why) {
  const { at, band, limit, state } = found;
  return element("div", { class: "gauge-row", "data-state": state || null, "data-row": found.path },
    element("div", { class: "gauge-text" },
      element("button", { type: "button", class: "why", "aria-haspopup": "dialog", onclick: () => why(found.path) },
        `${found.label} `, element("b", {}, found.text)),
      found.interval ? element("small", {}, ` ${found.interval}`) : null),
    element("div", { class: "line", "aria-hidden": "true" },
      band ? element("span", { class: "band", style: `left:${share(band[0])};width:${share(band[1] - band[0])}` }) : null,
      limit ? element("span", { class: "tick", style: `left:${share(limit.at)}` }) : null,
      element("span", { class: "dot", style: `left:${share(at)}` })),
    limit || found.word ? element("div", { class: "gauge-limit" }, limit ? `Limit: ${limit.text}; ` : "", element("span", { class: "state" }, found.word)) : null);
}

const shown = new Map(); // cards by what they say: one that says the same stays

export function show(root, gauges, why) {
  const cards = gauges.map((gauge) => {
    const said = JSON.stringify(gauge);
    const made = shown.get(said) ?? card(gauge, why);
    return [said, made];
  });
  shown.clear();
  for (const [said, made] of cards) shown.set(said, made);
  const now = [...shown.values()];
  if (now.length !== root.children.length || now.some((made, k) => root.children[k] !== made)) root.replaceChildren(...now);
}

function card(gauge, why) {
  const title = gauge.metric
    ? element("button", { type: "button", class: "why", "aria-haspopup": "dialog", onclick: () => why(gauge.metric) }, gauge.title)
    : gauge.title;
  const notes = gauge.notes.map((note) => element("li", {}, `${note.label} `, element("button", {
    type: "button", class: "why", "aria-haspopup": "dialog", onclick: () => why(note.path) }, note.text)));
  return element("section", { class: "card gauge mlp", "data-gauge": gauge.name, "data-state": gauge.state || "none", "aria-label": gauge.question },
    element("div", { class: "gauge-head" }, element("h2", {}, gauge.question), element("span", { class: "state" }, gauge.word)),
    gauge.name === "fast" && gauge.rows.length ? null : element("p", { class: "gauge-title" }, title),
    ...(gauge.bar ? bar(gauge.bar) : []),
    ...gauge.rows.map((found) => row(found, why)),
    notes.length ? element("ul", { class: "notes" }, ...notes) : null);
}
