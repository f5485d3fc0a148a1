/* Tables of the zoo: filter by words and by facets, sort by a column. Without this script they are plain tables. */
(() => {
  const MOVED = {
    hardware: "chips", cloud: "chips", workstation: "chips", mobile: "chips", edge: "chips",
    models: "models", language: "models", vision: "models", multimodal: "models", speech: "models", diffusion: "models", recommendation: "models",
    nodes: "systems", fabrics: "systems", clusters: "systems", grids: "places", facilities: "places", racks: "places", prices: "prices",
  };

  /* Headings of the one page that there used to be, with a number of entries behind them. */
  function follow() {
    const old = location.hash.slice(1).replace(/-\d+$/, "");
    if (/(^|\/)zoo\.html$/.test(location.pathname) && MOVED[old]) location.replace(`zoo/${MOVED[old]}.html`);
  }

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function value(row, column) {
    const cell = row.cells[column];
    if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
    const text = cell.textContent.trim();
    return text === "–" ? null : text.toLowerCase();
  }

  function compare(a, b, column, sign) {
    const [x, y] = [value(a, column), value(b, column)];
    if (x === null || y === null) return (x === null) - (y === null); /* What is not known comes last either way. */
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  }

  function equip(box) {
    const table = box.querySelector("table");
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const words = rows.map((row) => row.textContent.toLowerCase());
    const what = box.dataset.what;
    const asked = new URLSearchParams(location.search);
    const kept = (name) => `${what}.${name}`;
    const count = element("output", { "aria-live": "polite", class: "zoo-count" });
    const text = element("input", { type: "search", placeholder: "words of a row", autocomplete: "off", spellcheck: "false" });
    const bar = element("form", { class: "zoo-bar", role: "search", "aria-label": `Filter ${what}` }, element("label", {}, "Filter ", text));
    const facets = [];

    heads.forEach((head, column) => {
      if (!head.hasAttribute("data-facet")) return;
      const values = [...new Set(rows.map((row) => row.cells[column].textContent.trim()))].sort((a, b) => a.localeCompare(b, "en"));
      if (values.length < 2) return;
      const name = head.textContent.trim();
      const choice = element("select", {}, element("option", { value: "" }, "all"), ...values.map((each) => element("option", { value: each }, each)));
      choice.value = asked.get(kept(name)) ?? "";
      if (choice.selectedIndex < 0) choice.value = "";
      choice.addEventListener("change", show);
      facets.push({ choice, column, name });
      bar.append(element("label", {}, `${name} `, choice));
    });

    const clear = element("button", { type: "button" }, "Clear");
    clear.addEventListener("click", () => {
      text.value = "";
      for (const facet of facets) facet.choice.value = "";
      show();
      text.focus();
    });
    bar.append(clear, count);
    bar.addEventListener("submit", (event) => event.preventDefault());
    text.value = asked.get(kept("filter")) ?? "";
    text.addEventListener("input", show);

    function remember(name, chosen) {
      const address = new URL(location.href);
      if (chosen) address.searchParams.set(kept(name), chosen);
      else address.searchParams.delete(kept(name));
      if (address.href !== location.href) history.replaceState(history.state, "", address);
    }

    function show() {
      const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      rows.forEach((row, k) => {
        const fits = wanted.every((word) => words[k].includes(word)) && facets.every(({ choice, column }) => !choice.value || row.cells[column].textContent.trim() === choice.value);
        row.hidden = !fits;
        left += fits;
      });
      count.textContent = left === rows.length ? `${left} ${what}` : `${left} of ${rows.length} ${what}`;
      remember("filter", text.value.trim());
      for (const { choice, name } of facets) remember(name, choice.value);
    }

    function sort(column, sign) {
      heads.forEach((head, k) => head.setAttribute("aria-sort", k !== column ? "none" : sign > 0 ? "ascending" : "descending"));
      body.append(...[...rows].sort((a, b) => compare(a, b, column, sign)));
      remember("sort", `${sign < 0 ? "-" : ""}${heads[column].textContent.trim()}`);
    }

    heads.forEach((head, column) => {
      const button = element("button", { type: "button", title: "Sort" }, ...head.childNodes);
      /* The largest first where there are numbers: that is what people look for. */
      const first = rows.some((row) => row.cells[column].dataset.sort !== undefined) ? -1 : 1;
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        sort(column, now === "none" ? first : now === "ascending" ? -1 : 1);
      });
    });

    box.prepend(bar);
    const by = asked.get(kept("sort")) ?? "";
    const column = heads.findIndex((head) => head.textContent.trim() === by.replace(/^-/, ""));
    if (by && column >= 0) sort(column, by.startsWith("-") ? -1 : 1);
    show();
  }

  follow();
  document.querySelectorAll(".zoo-table").forEach(equip);
})();
