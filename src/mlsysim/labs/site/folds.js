// What a fold holds is built when it is opened, or before the page is printed: closed, it costs nothing while a control moves.
const waiting = new WeakMap(); // what fills a fold

export function whenOpen(fold, fill) {
  waiting.delete(fold);
  if (fold.open) fill();
  else waiting.set(fold, fill);
}

function fillNow(fold) {
  waiting.get(fold)?.();
  waiting.delete(fold);
}

document.addEventListener("toggle", ({ target }) => { if (target.open) fillNow(target); }, true);

// Paper cannot be opened: it has what the folds of the answer hold.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll(".view:not([hidden]) .fold:not([open])")];
  for (const fold of opened) {
    fillNow(fold);
    fold.open = true;
  }
});
addEventListener("afterprint", () => { for (const fold of opened.splice(0)) fold.open = false; });
