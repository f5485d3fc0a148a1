"""What a page must be to be read: contrast of every visible text, names of what is pressed, an order of the focus, no motion where none is wanted.

Contrast is that of WCAG 2.2 (1.4.3): 4.5 between a text and what is behind it, 3 where the text is large (24 px, or 18.66 px in bold). Behind a
text lies what its ancestors paint, one over the other, and in a chart the shapes that were drawn before it at its middle. Words of controls that
are switched off are exempt, as there.
"""

from __future__ import annotations

CONTRAST = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const parsed = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faded = (element) => { let all = 1; for (let e = element; e; e = e.parentElement) all *= getComputedStyle(e).opacity; return all; };
  const behind = (element) => {
    const chain = [];
    for (let e = element; e; e = e.parentElement) chain.push(e);
    return chain.reverse().reduce((ground, e) => {
      if (e instanceof SVGElement && e.tagName !== "svg") return ground;
      return over(parsed(getComputedStyle(e).backgroundColor), ground);
    }, parsed(matchMedia("(prefers-color-scheme: dark)").matches ? "Canvas" : "white"));
  };
  const drawn = (text, ground) => {
    const svg = text.ownerSVGElement;
    const box = text.getBoundingClientRect();
    const at = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2);
    for (const shape of svg.querySelectorAll("rect, path, circle, polygon")) {
      if (shape.closest("defs, clipPath, pattern") || !(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
      const { fill, fillOpacity, visibility, display } = getComputedStyle(shape);
      if (fill === "none" || fill.startsWith("url") || visibility !== "visible" || display === "none") continue;
      const there = shape.getScreenCTM() && at.matrixTransform(shape.getScreenCTM().inverse());
      if (!there || !shape.isPointInFill(there)) continue;
      const [r, g, b, a] = parsed(fill);
      ground = over([r, g, b, a * fillOpacity * faded(shape)], ground);
    }
    return ground;
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const words = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!words || element.closest("script, style, noscript, title, desc, option, :disabled, [aria-disabled=true]")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || element.closest(".hidden, .visually-hidden, .skip, .md-skip")) continue;
    const style = getComputedStyle(element);
    const inChart = element.closest("svg text") !== null;
    const ground = inChart ? drawn(element.closest("text"), behind(element.ownerSVGElement)) : behind(element);
    const [r, g, b, a] = parsed(inChart ? style.fill : style.color);
    const one = light(over([r, g, b, a * faded(element)], ground));
    const other = light(ground);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    seen += 1;
    if (ratio >= needed - 0.005) continue;
    const name = (e) => e && `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}.${[...e.classList].join(".")}`;
    const key = `${name(element.parentElement)} > ${name(element)}`;
    if (!found.has(key)) found.set(key, `${ratio.toFixed(2)} of ${needed}: ${words.slice(0, 40)} (${key})`);
  }
  return { seen, faint: [...found.values()] };
}"""

# What can be pressed or filled in and has no name that a screen reader could say.
NAMELESS = """() => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button], [role=slider], [role=img], dialog")]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest("[aria-hidden=true]"))
  .filter((e) => ![e.getAttribute("aria-label"), e.getAttribute("title"), e.textContent, ...[...(e.labels ?? [])].map((l) => l.textContent),
    ...(e.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent), e.querySelector("img[alt]")?.alt]
    .some((said) => said?.trim()))
  .map((e) => e.outerHTML.slice(0, 120))"""

# Marks of a page: one main, one first heading, headings that skip no level, positive tabindex nowhere, ids once.
MARKS = """() => {
  const shown = (e) => e.checkVisibility({ visibilityProperty: true });
  const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(shown).map((e) => +e.tagName[1]);
  const ids = [...document.querySelectorAll("[id]")].filter((e) => !e.closest("svg")).map((e) => e.id);
  return [
    ...([...document.querySelectorAll("main, [role=main]")].filter(shown).length === 1 ? [] : ["not one main part"]),
    ...(levels.filter((level) => level === 1).length === 1 ? [] : ["not one first heading"]),
    ...levels.flatMap((level, i) => (i && level > levels[i - 1] + 1 ? [`a heading of level ${level} after ${levels[i - 1]}`] : [])),
    ...[...document.querySelectorAll("[tabindex]")].filter((e) => e.tabIndex > 0).map((e) => `tabindex ${e.tabIndex}`),
    ...ids.filter((id, i) => ids.indexOf(id) !== i).map((id) => `id ${id} twice`),
    ...(document.documentElement.lang ? [] : ["no language"]),
  ];
}"""

# Animations and transitions that would run for longer than a blink.
MOVING = """() => [...document.querySelectorAll("*")].flatMap((e) => {
  const { transitionDuration, animationDuration, animationName, scrollBehavior } = getComputedStyle(e);
  const seconds = (said) => Math.max(...said.split(",").map(parseFloat));
  const moves = seconds(transitionDuration) > 0.02 || (animationName !== "none" && seconds(animationDuration) > 0.02) || scrollBehavior === "smooth";
  return moves ? [`${e.tagName.toLowerCase()}.${[...e.classList].join(".")}`] : [];
})"""

# Of what has the focus: its place among all elements, its words, and whether it is on the screen with an outline, of its own or around the card that it opens.
FOCUS = """() => {
  const held = document.activeElement;
  const box = held.getBoundingClientRect();
  const seen = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  const outlined = [getComputedStyle(held), getComputedStyle(held, "::after"), getComputedStyle(held.closest(".card") ?? held)]
    .some(({ outlineStyle, outlineWidth }) => outlineStyle !== "none" && parseFloat(outlineWidth) >= 1);
  return [[...document.querySelectorAll("*")].indexOf(held), held.textContent.trim(), seen && outlined];
}"""
