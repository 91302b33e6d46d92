"""The report in a real browser, as somebody uses it: by mouse, by keyboard, on a phone, in the dark, on paper."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from reported import EVIL, JOBS, LONG, TEXTS, write_page

from dasp import TextExplainer
from dasp.formatting import number, within


@pytest.mark.parametrize("name", JOBS)
def test_every_page_opens_and_fits(here, look, flaws, name):
    page = look(write_page(name))
    assert page.locator("#card h3").inner_text().startswith("Row ")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert flaws(page) == {}
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
            assert dark == (scheme == "dark")


def ids(page):
    return page.locator("#table tbody td.id").all_inner_texts()


def chosen(page):
    return page.locator("#table tr[aria-selected=true] td.id").inner_text()


def test_rows_are_sorted_filtered_and_paged(here, look):
    page = look(write_page("table"))
    table = pd.read_parquet("table.parquet").set_index("id")
    assert ids(page) == list(table.index[:10])
    page.get_by_role("button", name="Prediction").click()
    assert ids(page) == list(table.prediction.sort_values(ascending=False).index[:10])
    page.get_by_role("button", name="Prediction").click()
    assert ids(page) == list(table.prediction.sort_values().index[:10])
    assert page.locator("th[data-name=prediction]").get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="Next page").click()
    assert ids(page) == list(table.prediction.sort_values().index[10:20])
    assert page.locator("#where").inner_text() == "11 to 20 of 40"
    page.get_by_label("Rows at once").select_option("25")
    assert len(ids(page)) == 25
    page.get_by_label("Find").fill("patient-01")
    assert sorted(ids(page)) == [f"patient-01{i}" for i in range(10)]
    page.get_by_label("Find").fill("nobody")
    assert page.locator("#where").inner_text() == "no row fits"
    page.get_by_label("Find").fill("")
    page.get_by_label("missed the tolerance").check()
    page.get_by_label("Rows at once").select_option("100")
    assert sorted(ids(page)) == sorted(table.index[table.missed])


def test_a_row_is_chosen_by_mouse_and_by_keyboard(here, look):
    page = look(write_page("table"))
    table = pd.read_parquet("table.parquet")
    assert chosen(page) == "patient-000"
    page.get_by_text("patient-004").click()
    assert chosen(page) == "patient-004"
    assert page.locator("#card h3").inner_text() == "Row patient-004"
    largest = table.filter(regex="^column|^mean").iloc[4].abs().idxmax()
    assert page.locator("#card table.bars tr:nth-child(2) bdi").first.inner_text() == largest
    page.keyboard.press("ArrowDown")
    assert chosen(page) == "patient-005"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("PageDown")
    assert chosen(page) == "patient-014"  # on the next page
    assert page.evaluate("document.activeElement.dataset.row") == "14"
    assert page.url.endswith("#row=patient-014")
    again = look(write_page("table"), at="#row=patient-030")
    assert chosen(again) == "patient-030"


@pytest.mark.parametrize("at", ["#row=100%", "#row=%E0%A4%A", "#row=nobody", "#other"])
def test_an_address_that_names_no_row_shows_the_first(here, look, at):
    page = look(write_page("table"), at=at)
    assert chosen(page) == "patient-000"
    page.evaluate("location.hash = 'row=patient-020'")
    page.wait_for_function("document.querySelector('#card h3').innerText === 'Row patient-020'")


def test_a_text_may_be_long_or_empty(here, look):
    page = look(write_page("text"))
    assert page.evaluate("largest(Array(500000).fill(2))") == 2  # of which Math.max has no room on the stack
    page.evaluate("() => { Object.assign(data.rows[1], { pieces: [], values: [], parts: [] }); choose(1); }")
    assert "missing" not in page.locator("#card").inner_text()


def test_paging_keeps_the_keyboard_where_it_is(here, look):
    page = look(write_page("table"))
    page.get_by_label("Rows at once").select_option("25")
    page.get_by_role("button", name="Next page").focus()
    for _ in range(3):  # there are two pages
        page.keyboard.press("Enter")
    assert page.locator("#where").inner_text() == "26 to 40 of 40"
    assert page.evaluate("document.activeElement.id") == "on"


def test_all_is_reached_by_tab(here, look):
    page = look(write_page("table"))
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert seen[-1] == "BODY" or width >= 1, seen[-1]  # so that one sees where one is
    assert {"A", "SUMMARY", "find", "missed", "size", "BUTTON", "TR", "on"} <= set(seen)
    page.get_by_role("button", name="Prediction").focus()
    page.keyboard.press("Enter")
    assert page.locator("th[data-name=prediction]").get_attribute("aria-sort") == "descending"


def test_a_dot_chooses_its_row(here, look):
    page = look(write_page("table"))
    canvas = page.locator("canvas").first
    assert canvas.get_attribute("aria-label").startswith("Values of ")
    x, y, row = page.evaluate("swarms[0].dots[7]")
    canvas.click(position={"x": x, "y": y})
    assert chosen(page) == f"patient-{row:03}"


def test_the_waterfall_adds_up(here, look):
    page = look(write_page("one"))
    row = pd.read_parquet("one.parquet").iloc[0]
    told = page.locator("#card table.bars td.number").all_inner_texts()
    first, *values, last = [float(re.sub(r" ±.*", "", text).replace("−", "-")) for text in told]
    assert first == pytest.approx(row.prediction, rel=1e-3)
    assert last == pytest.approx(row.base_value, rel=1e-3)
    assert sum(values) == pytest.approx(first - last, abs=0.01 * sum(map(abs, values)))
    bars = page.evaluate("[...document.querySelectorAll('#card .bar')].map((e) => e.getBoundingClientRect().width)")
    sizes = [abs(value) for value in values]
    assert [bar / bars[0] for bar in bars] == pytest.approx([size / sizes[0] for size in sizes], abs=0.03)


def test_what_comes_from_outside_is_shown_and_not_run(here, look):
    for name in ("evil", "text"):
        page = look(write_page(name))
        assert page.title() == f"Explanation of {'shown:table' if name == 'evil' else 'language'}"
        assert page.locator("main img").count() == 0
    page = look(write_page("evil"))
    shown = page.locator("section table.bars th bdi").all_inner_texts()
    assert {EVIL[0], EVIL[1], EVIL[5], EVIL[6], "turned round"} <= set(shown)
    page = look(write_page("text"), at="#row=2")
    assert page.locator(".told").inner_text() == TEXTS[2]


def test_numbers_are_written_as_in_python(here, look):
    page = look(write_page("one"))
    some = [0.0, 1.0, -3.14159, 20.8123, 123456.0, -1.234567e6, 1e-9, 4.2e-5, 0.00123, 999.6]
    assert page.evaluate("(some) => some.map((x) => number(x))", some) == [number(x) for x in some]
    pairs = [(20.8123, 0.213), (0.2, 31.4), (-3.0, None), (1e-9, 2e-10), (12.0, 3e-5)]
    assert page.evaluate("(some) => some.map(([x, h]) => within(x, h))", pairs) == [within(x, h) for x, h in pairs]


def test_tiny_values_and_long_names_are_readable(here, look):
    page = look(write_page("tiny"), width=390)
    told = page.locator("#card table.bars td.number").all_inner_texts()
    assert all(re.fullmatch(r"[+−]?[\d.]+e−\d+.*|0", text) for text in told), told
    assert page.locator("section table.bars th bdi", has_text=LONG).first.inner_text() == LONG


def test_no_error_bars_are_said_not_to_be_known(here, look):
    page = look(write_page("unknown"))
    assert page.locator("#card .whisker").count() == 0
    assert "does not know its errors" in page.locator("#card").inner_text()
    assert "Largest ±" not in page.locator("#table").inner_text()


def test_of_ten_thousand_rows_only_those_on_the_page_are_drawn(here, look):
    """Which is what makes sorting and finding quick: they take some dozen milliseconds."""
    page = look(write_page("large"))
    assert page.locator("#where").inner_text() == "1 to 10 of 10,000"
    drawn = page.evaluate(
        """() => {
        const elements = [];
        const observer = new MutationObserver((changes) => changes.forEach((change) => elements.push(
            ...[...change.addedNodes].filter((node) => node.nodeType === 1)
                .flatMap((node) => [node, ...node.querySelectorAll("*")]))));
        observer.observe(document.body, { childList: true, subtree: true });
        document.querySelector("th[data-name=prediction] button").click();
        find.value = "77";
        find.dispatchEvent(new Event("input"));
        return Promise.resolve().then(() => elements.filter((each) => each.tagName === "TR").length);
    }"""
    )
    assert 10 <= drawn < 100  # ten for sorting, ten for finding, and those of a card
    assert len(ids(page)) == 10
    assert all("77" in one for one in ids(page))


def test_the_paper_version_is_light_and_has_no_controls(here, look):
    page = look(write_page("table"), scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert len(page.pdf()) > 10_000


def test_swarms_are_of_one_output_if_one_is_chosen(here, look):
    page = look(write_page("classes"))
    targets = pd.read_parquet("classes.parquet").target
    assert page.evaluate("swarms[0].dots.length") == len(targets)
    page.get_by_role("combobox", name="Output").select_option(str(targets[0]))
    assert page.evaluate("swarms[0].dots.length") == (targets == targets[0]).sum() < len(targets)


def test_texts_are_in_the_table(here, look):
    page = look(write_page("text"))
    assert page.locator("#table tbody td.words").first.inner_text() == TEXTS[0]


def test_sentences_are_above_the_words_within_them(look, tmp_path):
    def value(texts):
        return [4 * text.count("good") - 3 * text.count("cold") for text in texts]

    found = TextExplainer(value).hierarchy("We came early. The soup was cold. A good, really good cake!", divided=1)
    page = look(found.report(tmp_path / "page.html"))
    first, second = page.locator("#card table.bars").all()
    names = [line.split("\t")[0].strip() for line in first.locator("th").all_inner_texts()]
    assert names == [
        "prediction", "A good, really good cake!", "The soup was cold.", "We came early.", "base value",
    ]  # fmt: skip
    assert "good," in second.locator("th").all_inner_texts()


def test_pairs_of_the_chosen_row(here, look):
    page = look(write_page("pairs"), width=390, at="#row=3")
    table = pd.read_parquet("pairs.parquet")
    largest = max(table.interactions[3], key=abs)
    lines = page.locator("#card table.pairs tr")
    assert lines.count() == 5
    assert lines.first.locator("td.number").inner_text().startswith("+" if largest > 0 else "−")
    doubted = page.evaluate("data.rows[3].pairs.map(([, , value, half]) => Math.abs(value) <= half)")
    assert [lines.nth(i).locator(".bar.unsure").count() == 1 for i in range(5)] == doubted
    cell = page.locator("table.heat td.cell").first
    assert re.match(r".+ × .+: [+−][\d.]+ ± [\d.]+", cell.get_attribute("title"))
    assert page.locator("table.heat thead th").first.inner_text() == "input_02\n1"
    assert page.evaluate("document.querySelector('table.heat').getBoundingClientRect().right") <= 390


@pytest.mark.parametrize("width", [390, 1280])
def test_swarms_have_an_axis_with_numbers(here, look, width):
    page = look(write_page("table"), width=width)
    labels = page.locator(".axis text").all_text_contents()
    assert 2 <= len(labels) <= 14
    assert "0" in labels
    values = [float(label.replace("−", "-")) for label in labels]
    places = page.evaluate(
        "[...document.querySelectorAll('.axis line')].slice(0, -1).map((line) => line.x1.baseVal.value)"
    )
    dots = page.evaluate("swarms[0].dots.map(([x, , row]) => [x, swarms[0].values[swarms[0].rows.indexOf(row)]])")
    (first, at), (last, end) = dots[0], dots[-1]
    for value, place in zip(values, places, strict=True):
        assert place == pytest.approx(first + (value - at) * (last - first) / (end - at), abs=0.5)


def test_facts_are_folded(here, look):
    page = look(write_page("table"))
    fold = page.locator("details.about")
    assert not fold.locator(".facts").is_visible()
    assert "An absent input is" in fold.locator("summary").inner_text()
    fold.locator("summary").click()
    assert fold.locator(".facts").is_visible()
