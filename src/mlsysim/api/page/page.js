// Makes the page of /openapi.json. Everything that is shown is text: no markup is taken from a document.

import { samples } from "./code.js";

const LANGUAGE = "mlsysim-language";
const api = await (await fetch("openapi.json")).json();
const base = new URL(".", location.href).href.replace(/\/$/, "");

/** An element with properties, attributes (names with a dash, role, for) and children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A text of the description as nodes; what stands between backticks is code. */
const worded = (text) => text.split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part));

/** A fold whose inside is made when it is first opened. */
function fold(title, inside, properties = {}) {
  const element = make("details", properties, make("summary", {}, ...[title].flat()));
  element.addEventListener("toggle", () => element.open && element.children.length === 1 && element.append(...[inside()].flat()));
  return element;
}

// --- schemas -------------------------------------------------------------------------------------------------------

const name = (ref) => ref.split("/").pop();
const isNull = (form) => form.type === "null";

/** A schema with its reference followed, and what stands beside the reference kept. */
function whole(schema) {
  return schema.$ref ? { ...api.components.schemas[name(schema.$ref)], ...schema, $ref: undefined, called: name(schema.$ref) } : schema;
}

const forms = (schema) => (schema["x-unit"] === undefined && schema.anyOf ? schema.anyOf.filter((form) => !isNull(form)) : [schema]);

/** What a schema takes, in a few words. */
function kind(schema) {
  if (schema["x-unit"] !== undefined) return `text with a unit (${schema["x-unit"] || "count"})`;
  if (schema.$ref) return name(schema.$ref);
  if (schema.anyOf) return forms(schema).map(kind).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(", ");
  const types = [schema.type ?? "anything"].flat().filter((each) => each !== "null");
  const inside = { array: schema.items ? `array of ${kind(schema.items)}` : "array", string: "text", boolean: "true or false" };
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return `object of ${kind(schema.additionalProperties)}`;
  return types.map((each) => inside[each] ?? each).join(" or ") + range(schema);
}

function range(schema) {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const said = [];
  if (low !== undefined) said.push(`${schema.minimum === undefined ? "above" : "from"} ${low}`);
  if (schema.maximum !== undefined) said.push(`to ${schema.maximum.toLocaleString("en")}`);
  return said.length ? ` ${said.join(" ")}` : "";
}

/** The schemas inside a schema that have keys of their own, by name. */
function inner(schema) {
  const found = [];
  for (const form of forms(schema)) {
    const held = whole(form);
    if (held.properties) found.push(held);
    if (held.items) found.push(...inner(held.items));
    if (typeof held.additionalProperties === "object") found.push(...inner(held.additionalProperties));
  }
  return found;
}

/** A table of the keys of a schema, those inside them in folds. */
function keys(schema, standing) {
  const needed = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([key, part]) => {
    const deeper = inner(part).map((held) =>
      fold(`keys of ${held.called ?? key} (${Object.keys(held.properties).length})`, () => keys(held, standing)),
    );
    const otherwise = [undefined, null, ""].includes(part.default) ? "" : `${JSON.stringify(part.default)} if not given`;
    const meaning = [part.description ?? whole(part).description, otherwise].filter(Boolean).join("; ");
    return make(
      "tr", {},
      make("th", { scope: "row" }, make("code", {}, key), needed.has(key) ? make("span", { className: "needed" }, ` ${standing}`) : null),
      make("td", { className: "kind" }, kind(part)),
      make("td", {}, ...worded(meaning), ...deeper),
    );
  });
  if (!rows.length) return make("p", { className: "quiet" }, schema.description ?? "An object with keys of its own.");
  const head = make("tr", {}, ...["key", "takes", "meaning"].map((text) => make("th", { scope: "col" }, text)));
  return make("div", { className: "frame", tabIndex: 0, role: "region", "aria-label": "keys" },
    make("table", { className: "keys" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// --- one operation -------------------------------------------------------------------------------------------------

function answered(status, took, text) {
  let document;
  try { document = JSON.parse(text); } catch { document = null; }
  const good = status < 400;
  const line = make("p", { className: `badge ${good ? "good" : "bad"}` }, `${status}, ${took < 1000 ? `${Math.round(took)} ms` : `${(took / 1000).toFixed(1)} s`}, ${text.length.toLocaleString("en")} bytes`);
  const parts = [line];
  const said = document?.error?.sentence ?? document?.headline ?? document?.sentence;
  if (said) parts.push(make("p", { className: "headline" }, said));
  for (const more of [document?.binding?.sentence, document?.change?.sentence]) if (more) parts.push(make("p", {}, more));
  const metrics = Object.values(document?.metrics ?? {}).filter((metric) => metric.label && metric.text);
  if (metrics.length) {
    const rows = metrics.map((metric) => make("tr", {}, make("th", { scope: "row" }, metric.label), make("td", {}, metric.text), make("td", {}, metric.interval)));
    parts.push(fold(`Metrics (${metrics.length})`, () => make("div", { className: "frame" }, make("table", {}, make("tbody", {}, ...rows)))));
  }
  const shown = document === null ? text : JSON.stringify(document, null, 2);
  parts.push(make("pre", { tabIndex: 0, className: "answer", role: "region", "aria-label": "the answer as JSON" }, make("code", {}, shown)));
  return parts;
}

function operation(path, method, told) {
  const content = told.requestBody?.content["application/json"];
  const examples = Object.values(content?.examples ?? {});
  const parameters = told.parameters ?? [];
  const id = told.operationId;

  const body = content && make("textarea", { id: `${id}-body`, spellcheck: false, rows: 10 });
  const choice = content && make("select", { id: `${id}-example`, onchange: () => fill(choice.value) }, ...examples.map((each, place) => make("option", { value: place }, each.summary)));
  const inputs = parameters.map((each) => make("input", { id: `${id}-${each.name}`, name: each.name, value: [each.in === "path" ? each.example ?? "" : ""].flat()[0], placeholder: [each.example ?? each.schema.default ?? ""].flat()[0] }));
  const output = make("div", { className: "output", role: "status" });
  const code = make("code", {});
  const languages = ["curl", "Python", "JavaScript"].map((each) => make("button", { type: "button", className: "language", onclick: () => speak(each) }, each));
  const copy = make("button", { type: "button", className: "copy", onclick: async () => {
    await navigator.clipboard.writeText(code.textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  } }, "Copy");

  function url() {
    let address = path;
    const query = [];
    parameters.forEach((each, place) => {
      const value = inputs[place].value.trim();
      if (each.in === "path") address = address.replace(`{${each.name}}`, value.split("/").map(encodeURIComponent).join("/"));
      else if (value) query.push(`${each.name}=${encodeURIComponent(value)}`);
    });
    return base + address + (query.length ? `?${query.join("&")}` : "");
  }
  function asked() {
    return content ? JSON.parse(body.value) : undefined;
  }
  function speak(language = localStorage.getItem(LANGUAGE) ?? "curl") {
    localStorage.setItem(LANGUAGE, language);
    for (const each of languages) each.setAttribute("aria-pressed", String(each.textContent === language));
    try { code.textContent = samples(url(), asked())[language]; } catch (error) { code.textContent = `The body is no JSON yet: ${error.message}`; }
  }
  function fill(place) {
    body.value = JSON.stringify(examples[place].value, null, 2);
    body.rows = Math.min(24, body.value.split("\n").length + 1);
    speak();
  }
  async function run(event) {
    event.preventDefault();
    button.disabled = true;
    output.replaceChildren(make("p", { className: "quiet" }, "Computing ..."));
    try {
      const given = asked();
      const began = performance.now();
      const options = content ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(given) } : {};
      const reply = await fetch(url(), options);
      const text = await reply.text();
      output.replaceChildren(...answered(reply.status, performance.now() - began, text));
    } catch (error) {
      const said = error instanceof SyntaxError ? `The body is no JSON: ${error.message}.` : `No answer: ${error.message}.`;
      output.replaceChildren(make("p", { className: "badge bad" }, said));
    } finally {
      button.disabled = false;
    }
  }
  const button = make("button", { className: "try" }, "Try it");

  const form = make("form", { onsubmit: run, oninput: () => speak() });
  if (content) form.append(make("p", { className: "row" }, make("label", { htmlFor: choice.id }, "Example"), choice), make("label", { htmlFor: body.id, className: "above" }, "Body"), body);
  parameters.forEach((each, place) => form.append(make("p", { className: "row" }, make("label", { htmlFor: inputs[place].id }, each.name), inputs[place], make("span", { className: "quiet" }, [each.in === "path" ? "of the address" : "", each.description ?? "", each.schema.enum ? kind(each.schema) : ""].filter(Boolean).join("; ")))));
  form.append(make("p", { className: "row" }, button));

  const ok = whole(told.responses["200"].content["application/json"].schema);
  const failed = Object.entries(told.responses).filter(([status]) => status !== "200");
  const parts = [
    form, output,
    make("div", { className: "row languages", role: "group", "aria-label": "language" }, ...languages, copy),
    make("pre", { tabIndex: 0, role: "region", "aria-label": "the request as code" }, code),
  ];
  if (content) {
    const schema = whole(content.schema);
    parts.push(fold(`What it takes: ${Object.keys(schema.properties ?? {}).length} keys`, () => keys(schema, "needed")));
  }
  parts.push(fold("What it answers", () => forms(ok).map(whole).map((form) => (form.properties ? keys(form, "always") : make("p", { className: "quiet" }, form.description ?? kind(form))))));
  parts.push(fold(`Errors: ${failed.map(([status]) => status).join(", ")}`, () => make("table", {}, make("tbody", {}, ...failed.map(([status, each]) => make("tr", {}, make("th", { scope: "row" }, status), make("td", {}, each.description)))))));
  if (content) fill(0); else speak();
  return parts;
}

// --- the page ------------------------------------------------------------------------------------------------------

document.getElementById("version").textContent = `${api.info.title} ${api.info.version}`;
document.getElementById("summary").textContent = api.info.summary;
document.getElementById("description").replaceChildren(...worded(api.info.description));

const cards = [];
const groups = api.tags.map((tag) => {
  const inside = [];
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, told] of Object.entries(methods)) {
      if (told.tags[0] !== tag.name) continue;
      const title = [make("span", { className: "method" }, method.toUpperCase()), " ", make("code", {}, path), make("span", { className: "what" }, ...worded(told.summary))];
      const card = fold(title, () => operation(path, method, told), { id: told.operationId, className: "operation" });
      const schema = told.requestBody ? whole(told.requestBody.content["application/json"].schema) : {};
      cards.push({ card, text: [path, told.summary, ...Object.keys(schema.properties ?? {})].join(" ").toLowerCase() });
      inside.push(card);
    }
  }
  return make("section", { "aria-labelledby": `group-${tag.name}` }, make("h2", { id: `group-${tag.name}` }, tag.name), make("p", { className: "quiet" }, ...worded(tag.description)), ...inside);
});
document.getElementById("operations").replaceChildren(...groups);

const find = document.getElementById("find");
find.addEventListener("input", () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  for (const { card, text } of cards) {
    card.hidden = !words.every((word) => text.includes(word));
    left += card.hidden ? 0 : 1;
  }
  for (const group of groups) group.hidden = ![...group.querySelectorAll(".operation")].some((card) => !card.hidden);
  document.getElementById("found").textContent = words.length ? `${left} of ${cards.length}` : "";
});

function follow() {
  const card = document.getElementById(decodeURIComponent(location.hash.slice(1)) || "train");
  if (!card?.classList.contains("operation")) return;
  card.open = true;
  if (location.hash) card.scrollIntoView();
}
addEventListener("hashchange", follow);
document.addEventListener("toggle", (event) => {
  if (event.target.classList.contains("operation") && event.target.open) history.replaceState(null, "", `#${event.target.id}`);
}, true);
follow();
document.documentElement.dataset.ready = "true";
