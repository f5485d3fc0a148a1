// The same request in three languages, none of which needs more than it comes with.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A value of JSON as Python writes it. */
function python(value, indent = "") {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const parts = Array.isArray(value)
    ? value.map((item) => python(item, inner))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${python(item, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const flat = open + parts.join(", ") + close;
  return flat.length + indent.length < 90 ? flat : `${open}\n${parts.map((part) => `${inner}${part},\n`).join("")}${indent}${close}`;
}

/** The code of a request by language; without a body it is a GET. */
export function samples(url, body) {
  const kind = "content-type: application/json";
  const shown = JSON.stringify(url);
  if (body === undefined) {
    return {
      curl: `curl -s ${quoted(url)}`,
      Python: `import json\nimport urllib.request\n\nwith urllib.request.urlopen(${shown}) as reply:\n    answer = json.load(reply)\nprint(answer)`,
      JavaScript: `const reply = await fetch(${shown});\nconsole.log(await reply.json());`,
    };
  }
  const text = JSON.stringify(body, null, 2);
  return {
    curl: `curl -s ${quoted(url)} -H '${kind}' \\\n  -d ${quoted(text)}`,
    Python:
      `import json\nimport urllib.request\n\nbody = ${python(body)}\n` +
      `request = urllib.request.Request(\n    ${shown},\n    json.dumps(body).encode(),\n    {"content-type": "application/json"},\n)\n` +
      `with urllib.request.urlopen(request) as reply:\n    answer = json.load(reply)\nprint(answer.get("headline", answer))`,
    JavaScript:
      `const reply = await fetch(${shown}, {\n  method: "POST",\n  headers: {"content-type": "application/json"},\n` +
      `  body: JSON.stringify(${text.replaceAll("\n", "\n  ")}),\n});\nconsole.log(await reply.json());`,
  };
}
