"""The second engine, which searches: busy with a design that is left, it gives way to a fresh one, which knows what the first had been told."""

from __future__ import annotations

import json
import re

from .conftest import go, visit
from .test_explorer import CONFIG, MIXTRAL, PASS, drop

# So many searches for another design that they outlast any start of an engine; each ends with an answer or is broken off.
BUSY = """async (plan) => {
  const { searching } = await import(new URL("page.js", location).href);
  window.before = searching();
  await before.ready;
  window.ended = Array.from({ length: 12 }, (_, k) => before
    .call("cheapest", { plan: { ...plan, workload: { ...plan.workload, batch_size: 512 + 64 * k } } })
    .then(() => "answered", (error) => error.message));
}"""
REPLACED = """async () => {
  const { searching } = await import(new URL("page.js", location).href);
  return searching() !== before;
}"""


def test_an_engine_that_searches_for_a_design_that_is_left_is_replaced(ready_page):
    page = ready_page
    go(page, PASS)
    drop(page, "config.json", json.dumps(CONFIG))
    page.wait_for_url(re.compile("model.Imported_small_model"))
    page.evaluate(BUSY, MIXTRAL)
    visit(page, page.evaluate("location.hash.slice(1)"))
    page.wait_for_function(REPLACED)
    assert "no longer shown" in page.evaluate("ended.at(-1)")
    page.wait_for_selector("html[data-complete]", state="attached")
    assert page.locator("#chart-sensitivity svg[role=img]").count() == 1
    assert page.locator("html[data-failed]").count() == 0
    go(page, PASS)
