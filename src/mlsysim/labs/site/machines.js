// "What could I run it on?": a row for each chip, asked for one by one in the background, the best first.
import { byId, element } from "./dom.js";

const COLUMNS = { state: "Will it do?", room: "To spare", time: "Time", price: "Price", carbon: "Carbon" };
const ORDER = ["holds", "open", "fails", "none"];
let sort = "price";
let rows = [];
let asked = null; // the plan that the rows are of
let total = 0;
let leftOut = ""; // what is said of the chips that are not asked
let take = () => {};

const known = (row, name) => row[name]?.value ?? Infinity;
const before = (one, two) => ORDER.indexOf(one.state) - ORDER.indexOf(two.state);

// Whether it does comes first, but for those who ask for a column: what is not known of a chip stands last.
function compare(one, two) {
  const columns = [sort === "state" ? "price" : sort, "time"]; // where no price is known, the fastest first
  const apart = columns.map((name) => [known(one, name), known(two, name)]).find(([left, right]) => left !== right);
  return (sort === "price" || sort === "state" ? before(one, two) : 0) || (apart ? apart[0] - apart[1] : before(one, two));
}

function draw() {
  const body = [...rows].sort(compare).map((row) => {
    const words = row.count ? `${row.count.toLocaleString("en")} x ${row.name}` : row.name;
    const name = row.plan ? element("button", { type: "button", class: "take", title: row.says, onclick: () => take(row.plan) }, words) : words;
    return element("tr", { "data-chip": row.chip }, element("th", { scope: "row" }, name),
      element("td", {}, element("span", { class: "state", "data-state": row.state }, row.word)),
      ...(row.plan ? ["room", "time", "price", "carbon"].map((cell) => element("td", { class: "number" }, row[cell]?.text ?? "not known"))
        : [element("td", { colspan: 4, class: "muted" }, row.reason)]));
  });
  const labels = rows.find((row) => row.plan) ?? {};
  const heads = Object.entries(COLUMNS).map(([name, title]) => element("th", { scope: "col", "aria-sort": sort === name ? "ascending" : "none" },
    element("button", { type: "button", class: "sort", onclick: () => { sort = name; draw(); } }, labels[name]?.label ?? title)));
  byId("machines-table").replaceChildren(
    element("caption", { class: "hidden" }, "Chips that could run this design"),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "On"), ...heads)), element("tbody", {}, ...body));
  const left = total - rows.length;
  byId("machines-status").textContent = left ? `${rows.length} of ${total} asked` : "";
  byId("machines-left").textContent = left ? "" : leftOut;
  byId("machines").hidden = !rows.length;
}

// `call(name, args)` asks in the background, `current()` tells whether the plan still is the one on the page.
export async function showMachines(plan, { call, current, choose }) {
  take = choose;
  const text = JSON.stringify(plan);
  if (asked === text) {
    document.documentElement.dataset.machines = "";
    return;
  }
  const { chips, left_out: left } = await call("machines", { plan });
  if (!current()) return;
  [rows, total, asked] = [[], chips.length, text];
  leftOut = left;
  for (const chip of chips) {
    const row = await call("machine", { plan, chip });
    if (!current()) {
      asked = null;
      return;
    }
    rows.push(row);
    document.documentElement.dataset.machines = "";
    draw();
  }
}
