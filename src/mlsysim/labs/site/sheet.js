// The place where a handle of the sentence opens its control: beside the handle, on a phone at the foot of the screen.
//
// There is one control of each kind on the page: the sheet borrows its row from the form and brings it back.
import { element } from "./dom.js";

export class Sheet {
  #panel;
  #body = element("div", { class: "sheet-body" });
  #title = element("h2", { id: "sheet-title" });
  #bring = null;
  #path = null;
  #handle = () => null; // the element that the sheet belongs to, looked up anew because sentences are written anew

  constructor(root, panel) {
    this.#panel = panel;
    const done = element("button", { type: "button", class: "small", onclick: () => this.close() }, "Done");
    this.root = element("div", { class: "sheet", id: "sheet", role: "dialog", "aria-labelledby": "sheet-title", hidden: true },
      element("div", { class: "sheet-head" }, this.#title, done), this.#body);
    root.append(this.root);
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.stopPropagation();
      this.close();
    });
    addEventListener("pointerdown", (event) => {
      if (this.#path && !this.root.contains(event.target) && !this.#handle()?.contains(event.target)) this.close(false);
    });
    addEventListener("resize", () => this.#place());
  }

  get path() {
    return this.#path;
  }

  open(path, handle) {
    if (this.#path) this.close(false);
    this.#bring = this.#panel.lend(path, this.#body);
    if (!this.#bring) return;
    this.#path = path;
    this.#handle = handle;
    this.#title.textContent = this.#panel.label(path);
    this.root.hidden = false;
    handle()?.setAttribute("aria-expanded", "true");
    this.#place();
    const inputs = this.#body.querySelectorAll("input[type=range], input:not([type=range]), select");
    (this.#body.querySelector("input[type=range]") ?? inputs[0])?.focus({ preventScroll: true });
  }

  // A control that no longer is one (another kind of load, another task) closes its sheet.
  check() {
    if (this.#path && this.#panel.label(this.#path) === null) this.close(false);
    else if (this.#path) this.#place();
  }

  close(back = true) {
    if (!this.#path) return;
    const handle = this.#handle();
    this.#bring();
    this.#path = null;
    this.root.hidden = true;
    handle?.setAttribute("aria-expanded", "false");
    if (back) handle?.focus();
  }

  #place() {
    const handle = this.#handle();
    if (this.root.hidden || !handle) return;
    const [at, around] = [handle.getBoundingClientRect(), this.root.parentElement.getBoundingClientRect()];
    const left = Math.max(0, Math.min(at.left - around.left, around.width - this.root.offsetWidth));
    this.root.style.setProperty("--left", `${left}px`);
    this.root.style.setProperty("--top", `${at.bottom - around.top + 6}px`);
  }
}
