// How wide the charts of the explorer may be: one that stands beside another, and one that has the line for itself.
import { byId } from "./dom.js";

let inner = 0; // pixels that the charts have; asking the browser while an answer is written would make it lay out the page in between
new ResizeObserver(([entry]) => { inner = Math.floor(entry.contentRect.width); }).observe(byId("charts"));

export function widths() {
  const clamp = (pixels) => Math.max(300, Math.min(1000, Math.floor(pixels / 10) * 10));
  inner ||= byId("charts").clientWidth;
  const room = inner || 720;
  const gap = 16;
  const two = matchMedia("(min-width: 75rem)").matches;
  const padding = 2;
  return { width: clamp((two ? (room - gap) / 2 : room) - padding), wide: clamp(room - padding) };
}
