"""The page in a real browser: what it draws, what keys and clicks do, and that nothing leaves it.

Needs Playwright and a Chromium (`apt-get install chromium`, or the one that COPLAY_CHROMIUM names).
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from page_fakes import HOSTILE, LONG, SCRIPT, branched_run, hostile_run, large_run, nested_run, tool_run

from coplay.rollout_tree import write_report

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
pytestmark = [pytest.mark.browser, pytest.mark.needs("playwright")]

Open = Callable[..., Any]


def page_of(make: Callable[[Path], Path], folder: Path) -> Path:
    """A run's page, made in a thread of its own: Playwright keeps an event loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: write_report(make(folder))).result()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a page; at the end of the test nothing may have gone wrong on it or been asked for by it."""
    faults: list[str] = []
    requests: list[str] = []
    contexts = []

    def open_page(path: Path, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
    assert [url for url in requests if not url.startswith("file:") or not url.endswith(".html")] == []


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(branched_run, tmp_path_factory.mktemp("branched"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(hostile_run, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(nested_run, tmp_path_factory.mktemp("nested"))


def current(page: Any) -> str:
    """The index of the step that is marked in tree and dialogue."""
    in_tree = page.locator("#tree .node.current").get_attribute("data-step")
    in_dialogue = page.locator("#body .step.current").get_attribute("data-step")
    assert in_tree == in_dialogue
    return str(page.locator("#body .step.current .gutter b").inner_text())


def test_tree_when_drawn_then_a_node_for_each_step_and_a_sector_for_each_player(
    opened: Open, branched: Path
) -> None:
    page = opened(branched)
    assert page.locator("#list tbody tr").count() == 6
    steps = page.evaluate("DATA.episodes[0].steps.length")
    assert steps > 7 * 5
    assert page.locator("#tree .node").count() == steps
    assert page.locator("#tree .sector").count() == 3 * steps
    assert page.locator("#tree .edge").count() == steps
    places = page.evaluate(
        "[...document.querySelectorAll('.disc')].map(d => `${d.cx.baseVal.value} ${d.cy.baseVal.value}`)"
    )
    assert len(set(places)) == steps, "no two nodes may lie on each other"
    assert page.locator("#body .step:not(.heads)").count() == 7
    assert page.locator("#body .heads .who").count() == 3


def test_node_when_clicked_then_its_branch_is_the_chosen_path(opened: Open, branched: Path) -> None:
    page = opened(branched)
    step = page.evaluate("DATA.episodes[0].steps.find(s => s.branch === 's3.bo.1' && s.index === 4)")
    page.locator(f"#tree .node[data-step='{step['id']}']").click()
    assert current(page) == "4"
    assert "branch s3.bo.1" in page.locator("#episode-head").inner_text()
    shown = page.locator(f"#body .step[data-step='{step['id']}']").inner_text()
    assert page.evaluate(f"textOf({step['turns'][0]['reply']})") in shown
    fork = page.evaluate("pathTo(DATA.episodes[0], 's3.bo.1')[3].id")
    assert page.locator(f"#body .step[data-step='{fork}'] .chip", has_text="held").count() == 2
    page.reload()
    assert current(page) == "4", "the address keeps the place"


def test_keys_when_pressed_then_they_walk_steps_episodes_and_branches(opened: Open, branched: Path) -> None:
    page = opened(branched)
    press = page.keyboard.press
    assert current(page) == "0"
    press("ArrowRight")
    press("ArrowRight")
    assert current(page) == "2"
    press("ArrowLeft")
    assert current(page) == "1"
    press("End")
    assert current(page) == "6"
    press("ArrowRight")
    assert current(page) == "6"
    press("ArrowDown")
    assert page.locator("#episode-head h2").inner_text() == "000000/00001"
    assert current(page) == "0"
    press("ArrowUp")
    assert page.locator("#list tr[aria-selected]").get_attribute("data-episode") == "0"
    press("]")
    assert "branch s" in page.locator("#episode-head").inner_text()
    press("[")
    assert "branch s" not in page.locator("#episode-head").inner_text()
    press("2")
    assert page.locator("#view-learning").is_visible()
    press("1")
    press("?")
    assert page.locator("#help").is_visible()
    press("Escape")
    press("/")
    page.keyboard.type("step 1")
    press("Escape")
    assert page.locator("#count").inner_text() == "6 of 6 episodes"


def test_filters_when_set_then_only_those_episodes_are_listed(opened: Open, hostile: Path) -> None:
    page = opened(hostile)
    rows = page.locator("#list tbody tr")
    assert rows.count() == 8
    choose = page.locator("#filters [name=outcome]").select_option
    choose("failed")
    assert rows.count() == 2
    page.locator("#filters [name=iteration]").select_option("5")
    assert rows.count() == 1
    rows.first.click()
    assert SCRIPT in page.locator("#body .failure").inner_text()
    page.locator("#reset").click()
    assert rows.count() == 8
    page.locator("#filters [name=group]").select_option("000005/g0001")
    assert rows.count() == 2
    page.locator("#reset").click()
    page.locator("#filters [name=find]").fill(LONG[:300].upper())
    assert rows.count() == 1
    page.locator("#reset").click()
    page.locator("#list th button", has_text="Episode").click()
    assert "5 / 3" in rows.first.inner_text()
    page.locator("#list th button", has_text="Surprise").click()
    shown = [cell.split("\t")[-1] for cell in rows.all_inner_texts()]
    known = [float(value) for value in shown if value != "–"]
    assert known == sorted(known, reverse=True)


def test_texts_when_hostile_then_shown_as_text(opened: Open, hostile: Path) -> None:
    page = opened(hostile)
    title = page.title()
    seen = ""
    for _ in range(8):
        seen += page.locator("#body").inner_text()
        for details in page.locator("#body details").all()[:6]:
            details.evaluate("element => element.open = true")
        page.keyboard.press("g")
        seen += page.locator("#body").inner_text()
        page.keyboard.press("g")
        page.keyboard.press("ArrowDown")
    for key in "234":
        page.keyboard.press(key)
    assert page.title() == title
    assert page.locator("main script, main img, main b b").count() == 0
    assert SCRIPT in seen
    assert HOSTILE[1] in seen
    assert "<b>Bo</b>" in seen
    assert "\\u202egnp.exe \\u0000 \\ud800" in seen or "\\u202egnp.exe \\u0000 ?" in seen
    assert HOSTILE[3] in seen
    assert "show all" in seen
    assert SCRIPT in page.locator("#view-pay").inner_text() or page.locator("#view-pay").is_hidden()


def test_long_reply_when_asked_for_then_whole(opened: Open, hostile: Path) -> None:
    page = opened(hostile)
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    step = page.locator("#body .step.current")
    assert step.locator(".token").count() < 1000
    step.locator(".more", has_text="tokens").click()
    assert step.locator(".cell").first.locator(".reply").inner_text().strip() == LONG.strip()


def test_tokens_when_shaded_and_pointed_at_then_their_numbers_show(opened: Open, branched: Path) -> None:
    page = opened(branched)
    token = page.locator("#body .step[data-step='3'] .cell").first.locator(".token").first
    shades = {}
    for name in ("credit", "advantage", "value", "log_prob", "none"):
        page.locator("#tools [name=tokens]").select_option(name)
        shades[name] = token.evaluate("element => getComputedStyle(element).backgroundColor")
    assert shades["none"] == "rgba(0, 0, 0, 0)"
    assert shades["credit"] != shades["none"]
    token.hover()
    tip = page.locator("#tip").inner_text()
    assert all(name in tip for name in ("token", "log-prob", "credit", "advantage", "baseline", "shaping"))
    raw = page.locator("#body .step[data-step='3'] .cell").first.locator("details.raw")
    raw.locator("summary").click()
    prompt = raw.locator("pre").inner_text()
    assert all(f"step {index}" in prompt for index in range(4))
    assert "step 4" not in prompt


def test_side_by_side_when_asked_for_then_group_and_branches_stand_in_columns(
    opened: Open, branched: Path
) -> None:
    page = opened(branched)
    page.keyboard.press("g")
    assert page.locator("#body.compare thead th").count() == 1 + 3
    assert page.locator("#body.compare tbody tr").count() == 7
    page.locator("#body tbody tr").nth(2).locator("td").nth(1).click()
    assert page.locator("#episode-head h2").inner_text() == "000000/00001"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    page.keyboard.press("b")
    ways = page.evaluate("siblingsOf(DATA.episodes[0], pathTo(DATA.episodes[0], '')[6]).length")
    assert page.locator("#body.compare thead th").count() == 1 + ways
    assert page.locator("#body.compare tbody tr").count() == 1
    page.locator("#body thead th button").nth(1).click()
    assert "branch s6" in page.locator("#episode-head").inner_text()


def test_curves_and_pay_when_opened_then_drawn(opened: Open, hostile: Path) -> None:
    page = opened(hostile)
    page.keyboard.press("2")
    assert page.locator("#view-learning .chart canvas").count() == 3
    titles = page.locator("#view-learning figcaption").all_inner_texts()
    assert titles == ["return per tick", "malformed cut off", "entropy"]
    inked = page.evaluate(
        "[...document.querySelectorAll('canvas')].every(c => c.width && c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data.some(v => v))"
    )
    assert inked
    page.keyboard.press("3")
    assert page.locator("#view-pay .pay tbody tr").count() == 2
    assert SCRIPT in page.locator("#view-pay .pay tbody").inner_text()
    assert page.locator("#view-pay .other rect").count() == 1


def test_payoff_matrix_when_opened_then_numbers_stand_and_keys_tell_intervals(
    opened: Open, hostile: Path
) -> None:
    page = opened(hostile)
    page.keyboard.press("3")
    cells = page.locator("#view-pay .matrix td.cell")
    assert cells.all_inner_texts() == ["3.00", "2.00", "1.00", "13.00", "12.00", "11.00"]
    assert page.locator(".matrix td.self").all_inner_texts() == ["3.00", "12.00"]
    assert page.locator(".matrix td.least").all_inner_texts() == ["1.00", "11.00"]
    assert page.locator(".matrix td.minimum b").all_inner_texts() == ["1.00", "11.00"]
    assert "against fair" in page.locator(".matrix td.minimum").first.inner_text()
    assert SCRIPT in page.locator(".matrix thead").inner_text()
    shades = cells.evaluate_all("found => found.map(cell => getComputedStyle(cell).backgroundColor)")
    assert len(set(shades)) == 6
    cells.first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    focused = page.evaluate("document.activeElement.ariaLabel")
    assert focused == "greedy against fair: 11.00, interval 10.50 to 11.25, 8 games, 1 failed"
    assert "10.50 to 11.25" in page.locator("#tip").inner_text()
    page.keyboard.press("Tab")
    assert page.locator("#tip").is_hidden()
    cells.nth(1).hover()
    assert "1.50 to 2.25" in page.locator("#tip").inner_text()


def test_tree_when_branches_leave_branches_then_each_below_the_one_it_leaves_and_no_line_crosses_a_node(
    opened: Open, nested: Path
) -> None:
    page = opened(nested)
    steps = page.evaluate("DATA.episodes[0].steps.length")
    discs = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#tree .node')].map(g => [g.dataset.step,"
        " [g.querySelector('.disc').cx.baseVal.value, g.querySelector('.disc').cy.baseVal.value]]))"
    )
    assert len({tuple(place) for place in discs.values()}) == steps
    parents = page.evaluate("DATA.episodes[0].steps.map(s => [s.id, s.parent, s.branch])")
    for step, parent, branch in parents:
        if parent is not None:
            (x, y), (x0, y0) = discs[str(step)], discs[str(parent)]
            assert x > x0
            assert y > y0 if branch != parents[parent][2] else y == y0
            stem = [place for place in discs.values() if x0 < place[0] < x and y0 < place[1] <= y]
            assert stem == [], "nothing stands between a step and its parent"
    twig = next(step for step, _, branch in parents if branch == "twig")
    page.locator(f"#tree .node[data-step='{twig}']").click()
    assert "branch twig" in page.locator("#episode-head").inner_text()
    assert current(page) == "4"
    path = page.evaluate("pathTo(DATA.episodes[0], 'twig').map(s => s.branch)")
    assert path == ["s0.ada.1", "s0.ada.1", "early", "early", *["twig"] * 4]
    page.keyboard.press("b")
    assert page.locator("#body.compare thead th button").all_inner_texts() == ["twig", "early"]


def test_page_when_on_a_phone_or_in_the_dark_then_it_fits(opened: Open, hostile: Path) -> None:
    page = opened(hostile, color_scheme="dark")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, paper[4:-1].split(","))) < 60
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for key in "4321":
            page.keyboard.press(key)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_page_when_of_500_episodes_then_small_and_open_in_two_seconds(opened: Open, tmp_path: Path) -> None:
    report = page_of(large_run, tmp_path)
    assert report.stat().st_size < 10_000_000
    start = time.perf_counter()
    page = opened(report)
    assert page.locator("#list tbody tr").count() == 500
    assert page.locator("#body .token").count() == 10 * 2 * 20
    seconds = time.perf_counter() - start
    assert seconds < 2, f"opened in {seconds:.2f} s"


def test_turn_when_it_has_calls_then_they_and_what_was_told_stand_before_the_reply(
    opened: Open, tmp_path: Path
) -> None:
    page = opened(page_of(tool_run, tmp_path))
    turn = page.locator("#body article.turn")
    assert turn.locator("p.reply").all_inner_texts() == ["yes", "yes", "yes"]
    assert turn.locator("p.told").all_inner_texts() == [f"told {SCRIPT}"] * 2
    assert turn.locator(".chip.warn").all_inner_texts() == ["⚠ call: timeout"]
    kinds = turn.evaluate("t => [...t.children].map(c => c.className)")
    assert kinds == ["seen", "reply", "seen told", "reply", "chip warn", "seen told", "reply", "turn-head"]
