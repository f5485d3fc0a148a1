// What is saved of a design: a scenario, the answer, its numbers, the curve, its address.
import { byId, download } from "./dom.js";
import { engine } from "./page.js";
import { encode } from "./state.js";

// `page` lends {state, say, guarded, fileName, searched, curve}.
export function startExports({ state, say, guarded, fileName, searched, curve }) {
  const menu = byId("save");
  addEventListener("click", ({ target }) => { if (target.closest("summary")?.parentElement !== menu) menu.open = false; });
  menu.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget && !menu.contains(relatedTarget)) menu.open = false; });
  menu.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    menu.open = false;
    menu.firstElementChild.focus();
  });
  const pressed = (id, action) => byId(id).addEventListener("click", () => guarded(action));
  pressed("export-toml", async () =>
    download(`${fileName()}.toml`, "application/toml", await engine.call("scenario", { plan: state.plan, models: state.models })));
  pressed("export-json", async () => {
    const { plan } = state;
    const whole = { ...await engine.call("evaluate", { plan }), ...searched(plan) };
    download(`${fileName()}.json`, "application/json", `${JSON.stringify(whole, null, 2)}\n`);
  });
  pressed("export-csv", async () => download(`${fileName()}.csv`, "text/csv", await engine.call("numbers_csv", { plan: state.plan })));
  pressed("save-curve", async () => download(`${fileName()}-curve.csv`, "text/csv", await curve()));
  pressed("copy-link", async () => {
    history.replaceState(null, "", `#${encode(state)}`);
    await navigator.clipboard.writeText(location.href);
    say("The address of this design is in the clipboard.");
  });
}
