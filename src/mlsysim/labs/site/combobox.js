// A searchable list: the combobox of the ARIA practices with a list of groups.
import { element } from "./dom.js";

const MOST = 80; // options drawn at once; typing narrows

export class Combobox {
  #items = [];
  #shown = [];
  #active = -1;
  #value = "";
  #choose;

  constructor({ id, label, choose }) {
    this.#choose = choose;
    this.input = element("input", {
      id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-expanded": "false",
      "aria-controls": `${id}-list`, "aria-autocomplete": "list",
      onfocus: () => this.input.select(),
      onclick: () => this.#open(""),
      oninput: () => this.#open(this.input.value),
      onkeydown: (event) => this.#key(event),
      onblur: () => this.#close(),
    });
    this.list = element("div", { id: `${id}-list`, role: "listbox", "aria-label": label, hidden: true });
    // The pointer must not take the focus away before the click arrives.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.#take(this.#shown[Number(option.dataset.index)]);
    });
    this.root = element("div", { class: "combobox" }, this.input, this.list);
  }

  set items(items) {
    this.#items = items;
    this.show(this.#value);
  }

  // Show a value by its name in the list, or as it is.
  show(value) {
    this.#value = value;
    if (document.activeElement === this.input && !this.list.hidden) return;
    this.input.value = this.#items.find((item) => item.key === value)?.name ?? value ?? "";
    this.input.title = this.input.value;
  }

  #open(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (item) => {
      const all = `${item.name} ${item.key} ${item.group}`.toLowerCase();
      return words.every((word) => all.includes(word));
    };
    this.#shown = this.#items.filter(matches);
    const current = this.#shown.findIndex((item) => item.key === this.#value);
    const from = Math.max(0, Math.min(current - 10, this.#shown.length - MOST));
    const drawn = this.#shown.slice(from, from + MOST);
    this.list.replaceChildren();
    let group = null;
    drawn.forEach((item, index) => {
      if (!group || group.dataset.name !== item.group) {
        group = element("div", { role: "group", "aria-label": item.group, "data-name": item.group },
          element("div", { class: "group", "aria-hidden": "true" }, item.group));
        this.list.append(group);
      }
      group.append(element("div", {
        role: "option", id: `${this.input.id}-${from + index}`, "data-index": from + index,
        "aria-selected": String(item.key === this.#value),
      }, element("span", {}, item.name), element("small", {}, item.note ?? "")));
    });
    if (!drawn.length) this.list.append(element("div", { class: "group" }, "Nothing in the zoo has that name."));
    else if (this.#shown.length > drawn.length) {
      this.list.append(element("div", { class: "group" }, `${this.#shown.length - drawn.length} more; type to narrow`));
    }
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.#mark(words.length && drawn.length ? from : current >= 0 ? current : -1);
  }

  #close() {
    if (this.list.hidden) return;
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
    this.show(this.#value);
  }

  #mark(index) {
    this.#active = index;
    for (const option of this.list.querySelectorAll("[role=option]")) {
      const is = Number(option.dataset.index) === index;
      option.classList.toggle("active", is);
      if (is) {
        this.input.setAttribute("aria-activedescendant", option.id);
        // Only the list scrolls, never the page.
        const first = option.parentElement.querySelector("[role=option]") === option;
        const top = first ? option.parentElement.offsetTop : option.offsetTop; // with the name of its group
        const above = option.offsetTop - this.list.scrollTop;
        if (top < this.list.scrollTop) this.list.scrollTop = top;
        else if (above + option.offsetHeight > this.list.clientHeight) {
          this.list.scrollTop = option.offsetTop + option.offsetHeight - this.list.clientHeight;
        }
      }
    }
  }

  #key(event) {
    const open = !this.list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) return this.#open("");
      const options = [...this.list.querySelectorAll("[role=option]")].map((option) => Number(option.dataset.index));
      const at = options.indexOf(this.#active) + (event.key === "ArrowDown" ? 1 : -1);
      if (options.length) this.#mark(options[(at + options.length) % options.length]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && this.#active >= 0 && this.#shown[this.#active]) this.#take(this.#shown[this.#active]);
      else if (this.input.value.trim()) this.#take({ key: this.input.value.trim() }); // names the list does not have
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      this.#close();
    }
  }

  #take(item) {
    this.#value = item.key;
    this.#close();
    this.show(item.key);
    this.#choose(item);
  }
}
