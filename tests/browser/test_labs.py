"""Labs in a real browser: done through the page by hand and eye, all of them through the calls, and codes that agree."""

from __future__ import annotations

import json
import re

import pytest

from mlsysim.labs.codes import derived_key, make_code, read_code
from mlsysim.labs.design import all_designs, read_design, start_of, tried, written
from mlsysim.labs.grading import right_answer, slip_answer
from mlsysim.labs.lab import TRACKS, lab, labs
from mlsysim.labs.scope import Scope

from .conftest import expect, visit, wait_until_ready

STUDENT = "ann@example.org"
WROTE = "The weights decide, since they are read for every token."
CODES: dict[str, str] = {}
"""What the page saved, by lab."""
BY_HAND = ["roofline", "memory_wall", "two_phases"]
"""The first three, since each page leads to the next."""

CALL = """async ([name, args]) => {
  try { return { value: await window.engine.call(name, args) }; }
  catch (error) { return { error: error.message, kind: error.kind }; }
}"""


def answers_of(of, student: str) -> dict[str, str]:
    """Right answers as a student would type them, predictions among them."""
    scope = Scope.of_student(of, student)
    found = {}
    for question in of.questions:
        if question.kind == "words":
            found[question.id] = WROTE
        elif question.kind == "design":
            found[question.id] = next(
                written(plan) for plan in all_designs(question) if tried(scope, question, plan).holds
            )
        else:
            right = right_answer(scope, question)
            found[question.id] = right if question.is_choice else f"{right.magnitude:.6g} {question.unit}"
    return found


def idle(page) -> None:
    page.wait_for_selector("html:not([data-busy])", state="attached")
    assert page.locator("html[data-failed]").count() == 0, page.locator("#status").inner_text()


def fill(page, question, answer: str) -> None:
    place = page.locator(f"[data-question={question.id}]")
    if question.is_choice:
        place.locator(f"input[value={json.dumps(answer)}]").check()
    elif question.kind == "design":
        for move in question.moves:
            wanted = read_design(question, answer).get(move.parameter)
            control = place.locator(f"#control-{question.id}-{move.parameter}")
            if control.evaluate("one => one.tagName") == "SELECT":
                control.select_option(str(wanted))
                continue
            control.focus()
            page.keyboard.press("Home")
            for _ in range(move.values.index(wanted)):
                page.keyboard.press("ArrowRight")
    else:
        place.locator("input[type=text], textarea").fill(answer)


def check(page, question, answer: str):
    """Type an answer, press the button, and give the question's box."""
    fill(page, question, answer)
    place = page.locator(f"[data-question={question.id}]")
    place.get_by_role("button", name="Try this plan" if question.kind == "design" else "Check").click()
    idle(page)
    return place


@pytest.fixture(scope="module")
def lab_page(ready_page):
    """The list of labs."""
    visit(ready_page, "labs")
    return ready_page


def test_the_list_links_to_every_lab(lab_page):
    links = lab_page.locator("#list a").evaluate_all("all => all.map((link) => link.getAttribute('href'))")
    assert links == [f"#lab/{each.id}" for track in TRACKS for each in labs() if each.track == track]
    assert lab_page.locator("#list h2").all_inner_texts() == list(TRACKS.values())
    assert (
        lab_page.locator("#list .picture svg").count() == len(labs()) and not lab_page.locator("#list svg text").count()
    )
    expect(lab_page.locator("[data-lab=memory_wall]")).to_contain_text("After: The roofline")


@pytest.mark.parametrize("name", BY_HAND)
def test_a_lab_is_done_by_hand(lab_page, name):
    of = lab(name)
    page = lab_page
    if name == BY_HAND[0]:
        visit(page, f"lab/{name}")
    else:
        page.get_by_role("link", name=f"Next: {of.title}").click()
    expect(page.locator("#title")).to_contain_text(of.title)
    idle(page)
    numbers = " and ".join(map(str, of.walls)) if len(of.walls) == 2 else str(of.walls[-1])
    expect(page.locator("#facts")).to_contain_text(f"{numbers}, {of.points} points")
    if page.get_by_label("Your id").input_value() != STUDENT:
        page.get_by_label("Your id").fill(STUDENT)
        page.get_by_role("button", name="Use this id").click()
        idle(page)
    right = answers_of(of, STUDENT)
    keep = page.get_by_role("button", name="Keep my predictions")
    expect(page.locator("#compute")).to_be_hidden()
    keep.click()
    idle(page)
    expect(page.locator("#predict")).to_contain_text("no answer yet")
    expect(page.locator("#compute")).to_be_hidden()
    for question in of.predictions:
        fill(page, question, right[question.id])
    keep.click()
    idle(page)
    assert page.locator("#compute").is_visible() and not page.locator("#explain").is_visible()
    assert page.locator("#compared li").count() == len(of.predictions) - 1, "words are confronted in the end"
    assert page.locator("#lab-charts svg[role=img]").count() + page.locator("#lab-charts table").count() == len(
        of.charts
    )

    slider = page.locator("#controls input, #controls select").first
    before = page.locator("#values").inner_text()
    if slider.evaluate("one => one.tagName") == "SELECT":
        slider.select_option(index=1)
    else:
        slider.focus()
        page.keyboard.press("End")
    idle(page)
    assert page.locator("#values").inner_text() != before

    tries, scope = 0, Scope.of_student(of, STUDENT)
    for question in of.graded:
        if question.kind == "design":
            refused = check(page, question, written(start_of(scope, question)))
            assert refused.get_attribute("data-state") == "wrong"
            expect(refused.locator(".feedback")).to_contain_text("targets hold")
            assert refused.locator(".targets tr[data-holds=false]").count()
            expect(refused.locator(".tries summary")).to_have_text("1 plan tried")
        elif question.kind == "number" and question.slips:
            slip = question.slips[0]
            led = slip_answer(scope, question, slip)
            refused = check(page, question, f"{led.magnitude:.6g} {question.unit}")
            expect(refused.locator(".feedback")).to_contain_text(slip.name[1:])
            tries += 1
        elif not question.is_choice:
            refused = check(page, question, f"{float(right[question.id].split()[0]) * 3} {question.unit}")
            assert refused.get_attribute("data-state") == "wrong"
            assert refused.locator(".hint").inner_text()
            unit = "kB" if question.unit != "kB" else "s"
            refused = check(page, question, f"3 {unit}")
            expect(refused.locator(".feedback")).to_contain_text("write it like")
            tries += 1
        solved = check(page, question, right[question.id])
        assert solved.get_attribute("data-state") == "right"
    assert tries
    said = page.locator("#confronted")
    expect(said.locator("blockquote")).to_have_text(WROTE)
    expect(said).to_contain_text("What came out")
    clipped = (
        "[...document.querySelectorAll('.equations > div')].filter((one) => one.scrollWidth > one.clientWidth).length"
    )
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.locator("#lab math").count() + 1 and page.evaluate(clipped) == 0
    page.set_viewport_size({"width": 1280, "height": 800})
    idle(page)
    expect(page.locator("#score")).to_contain_text(f"{of.points} of {of.points} points")
    assert page.locator("#explanation").is_visible() and "{" not in page.locator("#explanation").inner_text()

    code = page.locator("#code").inner_text()
    result = read_code(code)
    assert (result.lab, result.score, result.points) == (name, of.points, of.points)
    assert result.is_of(STUDENT) and not result.is_of("bob")
    assert result.attempts == {q.id: 1 if q.is_choice else 2 for q in of.graded}
    assert result.slips == {q.id: q.slips[0].name for q in of.graded if q.kind == "number" and q.slips} | {
        q.id: result.slips[q.id] for q in of.graded if q.kind == "design" and q.id in result.slips
    }
    page.locator("#reflect").fill("because memory")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save with my predictions").click()
    CODES[name] = saved.value.path().read_text()
    assert read_code(CODES[name].strip().rsplit(",", 1)[1]).words["in_words"] == WROTE

    if name != BY_HAND[-1]:
        return
    page.reload()
    wait_until_ready(page)
    assert page.locator("#code").inner_text() == code, "progress survives a reload"
    assert page.get_by_label(re.compile(of.reflect[:20])).input_value() == "because memory"


def test_every_lab_can_be_completed_and_refuses_wrong_answers(lab_page):
    """In one page through the calls, with the answers that native Python computes."""
    for of in labs():
        right = answers_of(of, STUDENT)
        base = {"name": of.id, "student": STUDENT}
        predictions = {q.id: right[q.id] for q in of.predictions}
        opened = lab_page.evaluate(CALL, ["lab_open", base])
        assert [q["id"] for q in opened["value"]["questions"]] == [q.id for q in of.questions]
        early = lab_page.evaluate(CALL, ["lab_compute", {**base, "predictions": {}}])
        assert early["kind"] == "input" and early["error"].startswith("Predict first")
        computed = lab_page.evaluate(CALL, ["lab_compute", {**base, "predictions": predictions}])["value"]
        scope = Scope.of_student(of, STUDENT)
        assert [item["text"] for item in computed["values"]] == [scope.shown(name) for name in of.show], of.id
        assert len(computed["charts"]) == len(of.charts)
        # One question each, answered wrong: grading is that of test_content, and every right answer is graded in the end.
        for question in of.graded[:1]:
            wrong = (
                written(start_of(scope, question))
                if question.kind == "design"
                else next(o.value for o in question.options if o.value != right[question.id])
                if question.is_choice
                else f"{float(right[question.id].split()[0]) * (1 + 2 * max(question.tolerance, 0.01)):.9g} {question.unit}"
            )
            grade = lab_page.evaluate(CALL, ["lab_answer", {**base, "question": question.id, "answer": wrong}])
            assert grade["value"]["correct"] is False, (of.id, question.id, wrong)
        ended = {
            **base,
            "predictions": predictions,
            "answers": right,
            "attempts": {},
            "site_key": derived_key("secret"),
        }
        finished = lab_page.evaluate(CALL, ["lab_finish", ended])["value"]
        assert finished["complete"] and finished["score"] == of.points
        native = make_code(of, STUDENT, dict.fromkeys((q.id for q in of.graded), 1), derived_key("secret"))
        assert finished["code"] == native


def test_practice_needs_no_id_and_gives_no_code(lab_page):
    lab_page.go_back()
    idle(lab_page)
    expect(lab_page.locator("#title")).to_contain_text("memory wall")
    lab_page.get_by_label("Your id").fill("")
    lab_page.get_by_role("button", name="Use this id").click()
    idle(lab_page)
    expect(lab_page.locator("#who-note")).to_contain_text("practice")
    of = lab("memory_wall")
    for question in of.predictions:
        fill(lab_page, question, answers_of(of, "")[question.id])
    lab_page.get_by_role("button", name="Keep my predictions").click()
    idle(lab_page)
    expect(lab_page.locator("#code-line")).to_be_hidden()
    value = Scope.of_student(of).shown("old_decode")
    assert value in lab_page.locator("[data-value=old_decode]").inner_text()


def test_roles_and_names_for_those_who_do_not_see(lab_page):
    page = lab_page
    parts = ["You will be able to", "1. Predict", "2. Compute", "3. Build", "Result"]
    assert page.get_by_role("heading", level=2).all_inner_texts() == parts
    for slider in page.get_by_role("slider").all():
        assert slider.get_attribute("aria-valuetext")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')].filter((one) => one.checkVisibility()"
        " && !(one.labels?.length || one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') || one.textContent.trim())).length"
    )
    assert unnamed == 0
    assert page.locator("[aria-live=polite]").count() > 3


def test_a_phone_shows_it_without_scrolling_sideways(lab_page):
    lab_page.set_viewport_size({"width": 375, "height": 740})
    assert lab_page.evaluate("document.documentElement.scrollWidth") <= 375
    lab_page.set_viewport_size({"width": 1280, "height": 800})


def test_a_class_from_what_pages_saved(lab_page):
    assert list(CODES) == BY_HAND
    page = lab_page
    visit(page, "class")
    page.get_by_role("button", name="Show the class").click()
    expect(page.locator("#class-said")).to_contain_text("There is no code yet")
    bob = make_code(lab("roofline"), "bob", {"ridge": 4})
    altered = bob[:-1] + ("0" if bob[-1] != "0" else "1")
    page.get_by_label("Result codes").fill(f"bob {bob}\neve {altered}")
    files = [{"name": f"{name}.csv", "mimeType": "text/csv", "buffer": text.encode()} for name, text in CODES.items()]
    page.locator("#class-files").set_input_files(files)
    page.get_by_role("button", name="Show the class").click()
    expect(page.locator("#class-said")).to_contain_text("5 codes read; 1 does not count")
    expect(page.locator("#class-notes")).to_contain_text("eve: The code")
    roofline = page.locator("[data-lab=roofline]")
    expect(roofline).to_contain_text("2 students")
    expect(roofline.get_by_role("img", name="1 at the 2nd try, 1 later")).to_be_visible()
    expect(roofline).to_contain_text("1 × bits for bytes")
    roofline.get_by_text("In your own words").click()
    expect(roofline).to_contain_text(WROTE)
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    cut = page.locator(".class-tasks thead th").evaluate_all(
        "all => all.filter((one) => one.getBoundingClientRect().right > one.closest('.scrolls').getBoundingClientRect().right + 1).length"
    )
    assert not cut, "no head of a column is cut on a phone"
    page.set_viewport_size({"width": 1280, "height": 800})
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as CSV").click()
    assert saved.value.path().read_text().startswith("student,lab,score")


def test_a_lab_that_is_not_there_yet_is_no_empty_page(lab_page):
    lab_page.evaluate("said.length = 0")
    lab_page.evaluate("location.hash = '#lab/roofline'")
    expect(lab_page.locator("#title")).to_be_visible()
    computed = "Everything is computed and graded in this browser; nothing is sent anywhere."
    lab_page.wait_for_function("text => said.includes(text)", arg=computed)
    said = lab_page.evaluate("said")
    assert said.index("Opening the lab …") < said.index(computed)


def test_an_unknown_lab_is_named(lab_page):
    lab_page.evaluate("location.hash = '#lab/roofine'")
    expect(lab_page.get_by_role("alert")).to_contain_text("did you mean 'roofline'")
    expect(lab_page.locator("#lab")).to_be_hidden()
    lab_page.get_by_role("link", name="Labs").click()
    expect(lab_page.get_by_role("heading", level=1, name="Labs")).to_be_focused()
    assert lab_page.get_by_role("alert").count() == 0


FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const name = one.closest("[data-question]")?.dataset.question ?? null;
  return { tag: one.tagName, type: one.type ?? "", id: one.id, name, value: one.value ?? "", text: one.textContent.trim(),
    state: one.closest("[data-question]")?.dataset.state ?? null, inside: one.closest("#lab") !== null,
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    seen: box.bottom > 0 && box.top < innerHeight };
}"""


def test_a_lab_is_done_by_keys_alone(lab_page):
    """From the first field to the code with Tab, arrows, Space, Enter and letters; whatever has the focus shows it and stands in sight."""
    page, of = lab_page, lab("power_caps")
    right = answers_of(of, STUDENT)
    visit(page, f"lab/{of.id}")
    expect(page.locator("#title")).to_contain_text(of.title)
    idle(page)
    page.get_by_label("Your id").focus()
    page.keyboard.type(STUDENT)
    page.keyboard.press("Enter")
    idle(page)
    questions, filled = {question.id: question for question in of.questions}, set()
    for _ in range(200):
        if f"{of.points} of {of.points} points" in page.locator("#score").inner_text():
            break
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if not at["inside"]:
            continue
        assert at["outlined"] and at["seen"], at
        question = questions.get(at["name"])
        if at["type"] == "submit" and (question is None or at["state"] != "right"):
            page.keyboard.press("Enter")
            idle(page)
        elif question is None or at["state"] == "right" or (question.id, at["id"]) in filled:
            continue
        elif at["type"] == "radio":
            page.keyboard.press("Space")
            for _ in question.options:
                if page.evaluate(FOCUSED)["value"] == right[question.id]:
                    break
                page.keyboard.press("ArrowDown")
        elif question.kind == "design":
            move = next(move for move in question.moves if at["id"].endswith(f"-{move.parameter}"))
            page.keyboard.press("Home")
            for _ in range(move.values.index(read_design(question, right[question.id])[move.parameter])):
                page.keyboard.press("ArrowRight")
            filled.add((question.id, at["id"]))
        else:
            page.keyboard.type(right[question.id])
            filled.add((question.id, at["id"]))
    assert read_code(page.locator("#code").inner_text()).score == of.points
