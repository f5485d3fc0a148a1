// Elements with attributes and children, as text only: nothing that was read becomes markup.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else made.setAttribute(name, String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// Written only where it is another: every write to a page makes the browser lay it out again.
export function put(node, values) {
  for (const [name, value] of Object.entries(values)) {
    if (name.includes("-")) {
      if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
    } else if (node[name] !== value) node[name] = value;
  }
}

// Once what was written is on the screen; a page that nobody looks at has no frames.
export const painted = () => new Promise((done) => {
  requestAnimationFrame(() => setTimeout(done));
  setTimeout(done, 50);
});

// A chart as it goes into the page, which has the style of charts once (figures.css): a style that comes with each makes the browser look at every element anew.
export const unstyled = (svg) => svg.replace(/<style>[^]*?<\/style>\s*/, "");

// Numbers of walls, told apart from what follows them: "walls 4 and 7".
export const wallsOf = (walls) => `${walls.length > 1 ? "walls" : "wall"} ${walls.join(", ").replace(/, (\d+)$/, " and $1")}`;

export const byId = (id) => document.getElementById(id);

export function download(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
