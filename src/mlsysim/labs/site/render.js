// An answer on the page: words, charts, table of metrics, what it rests on, comparison.
import { byId, download, element, put, unstyled } from "./dom.js";
import { whenOpen } from "./folds.js";

export const CHARTS = { percentiles: "Percentiles", traffic: "Traffic", roofline: "Roofline", sensitivity: "Sensitivity",
  memory: "Memory", scorecard: "Scorecard" };

export function nameOf(text) {
  return text.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "").slice(0, 60) || "design";
}

// A value that explains itself when it is pressed.
function value(metric, why) {
  return element("button", {
    type: "button", class: "why", "data-metric": metric.path, "aria-haspopup": "dialog", onclick: () => why(metric.path),
    title: "Where this number comes from",
  }, element("span", { class: "text" }, metric.text), element("span", { class: "hidden" }, ` ${metric.label}: why`));
}

// What was asked, in one of three states, then the headline; both are the answer's.
export function showVerdict(answer) {
  const { state, claim } = answer.ruling;
  byId("claim").dataset.state = { holds: "good", open: "warn", fails: "bad" }[state];
  const unsure = answer.feasible ? "No interval at this fidelity." : "No interval, since it does not run.";
  const texts = { badge: claim, headline: capital(answer.headline.replace(/^(Fits|Does not fit|Overloaded): /, "")), binding: answer.binding,
    "next-wall": answer.next_wall ?? "No other wall is near.", interval: [answer.interval || unsure, ...answer.warnings].join(" "), fidelity: answer.fidelity };
  for (const [name, textContent] of Object.entries(texts)) put(byId(name), { textContent });
  const sentences = [...answer.verdict, ...answer.checks.map((check) => check.sentence)];
  whenOpen(byId("in-words"), () => byId("sentences").replaceChildren(...sentences.map((text) => element("li", {}, text))));
}

const capital = (text) => text.replace(/^./, (first) => first.toUpperCase());

// The cheapest change: undefined while it is looked for, null where there is none.
export function showChange(found, feasible) {
  const none = feasible ? "No single change of settings, format, network or chip improves it by 2 % or more."
    : "None of the changes tried makes it fit.";
  const words = found?.sentence.replace(/^Cheapest change: /, "");
  put(byId("change"), { textContent: found === undefined ? "Looking for it …" : found ? capital(words) : none });
  byId("change").classList.toggle("waiting", found === undefined);
  byId("apply").hidden = !found;
}

export function spokenVerdict(answer) {
  return [answer.subject, answer.ruling.claim, answer.headline, ...answer.verdict, answer.binding].join(" ");
}

export function showMetrics(answer, why) {
  const bodies = Object.entries(answer.questions).map(([level, title]) => {
    const rows = answer.metrics.filter((metric) => metric.level === level).map((metric) => element("tr", {},
      element("th", { scope: "row" }, metric.label), element("td", { class: "number" }, value(metric, why),
        metric.interval ? element("small", { class: "only-narrow", "aria-hidden": "true" }, metric.interval) : null),
      element("td", { class: "number interval" }, metric.interval), element("td", { class: "number" }, String(metric.wall))));
    return rows.length && element("tbody", {}, element("tr", { class: "level" }, element("th", { scope: "rowgroup", colspan: 4 }, title)), ...rows);
  });
  byId("metrics").replaceChildren(
    element("caption", { class: "hidden" }, "All metrics of the design"),
    element("thead", {}, element("tr", {}, ...["Metric", "Value", "90 % interval", "Wall"].map((text) => element("th", { scope: "col" }, text)))),
    ...bodies.filter(Boolean));
}

// What the answer rests on, by where it comes from; the finer points are folded.
export function showOrigins(origins) {
  const chip = ({ origin, name, text }) => element("li", { class: "origin", "data-origin": origin, title: `${name}: ${text}` },
    element("b", {}, origin), ` ${name}: ${text}`);
  const plain = ({ origin, first }) => first && origin !== "given"; // what was given stands in the sentence and the controls
  const told = origins.filter(plain);
  const rest = origins.filter((one) => !plain(one));
  const open = byId("origins-rest")?.open ?? false;
  const list = element("ul", { class: "origins" });
  const more = element("details", { id: "origins-rest", class: "fold", open }, element("summary", {}, `${rest.length} more, with what was given`), list);
  whenOpen(more, () => list.replaceChildren(...rest.map(chip)));
  byId("origins").replaceChildren(...told.map(chip), ...(rest.length ? [element("li", { class: "origin-rest" }, more)] : []));
}

// Only what changed is drawn anew.
const drawn = new WeakMap();
export function showChart(place, svg) {
  put(place.closest("figure"), { hidden: !svg });
  if (drawn.get(place) === svg) return;
  drawn.set(place, svg);
  place.innerHTML = svg ? unstyled(svg) : ""; // written by mlsysim.plot, which escapes every text
}

export function chartCard(name, title) {
  const place = element("div", { class: "chart", id: `chart-${name}` });
  const save = (kind, action) => element("button", { type: "button", class: "small", "data-save": kind,
    "aria-label": `Save ${title.toLowerCase()} as ${kind}`, onclick: action }, kind);
  const buttons = element("div", { class: "card-tools" },
    save("SVG", () => download(`${name}.svg`, "image/svg+xml", drawn.get(place))),
    save("PNG", async () => download(`${name}.png`, "image/png", await png(drawn.get(place)))));
  return element("figure", { class: "card", hidden: true, "data-chart": name }, place, buttons);
}

const SCALE = 2;

// The chart as pixels, at twice its size, in the colours of the page.
export async function png(svg) {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  const [, , width, height] = parsed.getAttribute("viewBox").split(" ").map(Number);
  parsed.setAttribute("width", width * SCALE);
  parsed.setAttribute("height", height * SCALE);
  parsed.removeAttribute("style");
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1";
  parsed.setAttribute("data-theme", dark ? "dark" : "light");
  const image = new Image();
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(parsed)], { type: "image/svg+xml" }));
  try {
    image.src = url;
    await image.decode();
    const canvas = element("canvas", { width: width * SCALE, height: height * SCALE });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}
