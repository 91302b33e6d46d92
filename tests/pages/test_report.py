"""What the page of an output says, against the output itself."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from explain_files import dasp
from reported import EVIL, JOBS, LONG, TEXTS, write_page
from scipy import stats

from dasp.pages import write_report
from dasp.pages.contents import read
from dasp.pages.render import render
from dasp.pages.rows import ImageRows
from dasp.pages.statistics import facts, statistics_of, verdict

PLAYERS = ["column 1", "column 5"]


def data_of(page):
    """What the script of a page is given."""
    text = page.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


class Seen(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("name", JOBS)
def test_every_page_is_one_file_that_loads_nothing(here, name):
    page = write_page(name)
    assert page.stat().st_size < 10_000_000
    seen = Seen(page.read_text())
    for tag, attributes in seen.tags:
        assert tag not in ("iframe", "object", "embed", "base", "form"), tag
        assert not any(key.startswith("on") for key in attributes), attributes
        for key in ("src", "href"):
            assert attributes.get(key, "#").startswith(("#", "data:")), attributes
        assert tag != "img" or len(attributes["alt"]) > 10
    assert [attributes.get("type") for tag, attributes in seen.tags if tag == "script"] == ["application/json", None]
    (policy,) = [a["content"] for tag, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert len(data_of(page)["rows"]) == len(pd.read_parquet(f"{name}.parquet"))


def test_importance_is_the_mean_size_with_its_interval(here):
    write_page("table")
    table = pd.read_parquet("table.parquet")
    known = {player.name: player for player in statistics_of(read(here / "table.parquet")).players}
    assert next(iter(known)) == LONG
    for name in PLAYERS:
        sizes, player = table[name].abs(), known[name]
        inner = 1.96 * math.sqrt((table[f"error_std:{name}"] ** 2).sum()) / len(table)
        assert player.mean == pytest.approx(sizes.mean(), rel=1e-5)
        assert player.inner == pytest.approx(inner, rel=1e-5)
        outer = stats.t.ppf(0.975, len(table) - 1) * sizes.std() / math.sqrt(len(table))
        assert player.half == pytest.approx(math.hypot(outer, inner), rel=1e-3)
        assert name in Seen(write_page("table").read_text()).texts


def test_rows_are_those_of_the_output(here):
    found = data_of(write_page("table"))
    table = pd.read_parquet("table.parquet")
    for row, expected in zip(found["rows"], table.to_dict("records"), strict=True):
        assert row["id"] == expected["id"]
        assert row["missed"] == expected["missed"]
        assert row["evaluations"] == expected["evaluations"]
        assert row["total"] == pytest.approx(expected["prediction"] + expected["gap"], rel=1e-6)
        assert row["prediction"] == pytest.approx(expected["prediction"], rel=1e-4)
        for player, value, half, data in row["parts"]:
            name = found["players"][player]
            assert value == pytest.approx(expected[name], rel=1e-4)
            assert half == pytest.approx(1.96 * expected[f"error_std:{name}"], rel=1e-4)
            assert float(data.replace("−", "-")) == pytest.approx(expected[f"data:{name}"], rel=1e-2)
    assert 0 < table.missed.sum() < len(table)
    assert f"{table.missed.sum()} of 40 rows did not reach --tolerance 0.01" in write_page("table").read_text()


def test_dots_without_data_have_no_rank(here, tmp_path):
    missing = [math.nan, *pd.read_parquet("table.parquet")["data:column 1"][1:]] if write_page("table") else []
    write_report(altered("table", tmp_path / "out.parquet", **{"data:column 1": missing}), tmp_path / "page.html")
    found = data_of(tmp_path / "page.html")
    (line,) = (one for one in found["swarm"] if found["players"][one["player"]] == "column 1")
    assert [rank is None for rank in line["ranks"]] == [True] + [False] * 39
    assert {min(line["ranks"][1:]), max(line["ranks"][1:])} == {0, 100}


def test_small_players_are_summed(here):
    found = data_of(write_page("wide"))
    table = pd.read_parquet("wide.parquet")
    for row, (_, expected) in zip(found["rows"], table.iterrows(), strict=True):
        number, value, half = row["others"]
        assert number + len(row["parts"]) == 200
        names = set(found["players"]) - {found["players"][part[0]] for part in row["parts"]}
        assert value == pytest.approx(sum(expected[name] for name in names), rel=1e-3, abs=1e-6)
        assert half == pytest.approx(
            1.96 * math.sqrt(sum(expected[f"error_std:{name}"] ** 2 for name in names)), rel=1e-3
        )
        smallest = min(abs(part[1]) for part in row["parts"])
        assert max(abs(expected[name]) for name in names) <= smallest * (1 + 1e-3)


def test_facts_are_those_of_the_job(here):
    told = {}
    for name in ("table", "one", "unknown", "images", "classes", "text", "large"):
        write_page(name)
        contents = read(here / f"{name}.parquet")
        known = statistics_of(contents)
        told[name] = {fact.name: f"{fact.value}; {fact.more}" for fact in facts(contents, known)}
        told[name]["verdict"] = verdict(contents, known)
    assert told["table"]["Model"] == "shown:table; "
    assert told["table"]["Data"] == "table.csv; 40 rows"
    assert told["table"]["Method"] == "BayesianShapley; It was asked for"
    assert told["table"]["Tolerance"].startswith("0.01; ")
    assert told["one"]["Method"] == "Exact; 8 players have only 256 coalitions"
    assert told["one"]["Evaluations for a row"] == "256; "
    assert not {"Tolerance", "Explained output"} & told["one"].keys()  # nobody asked, and there is only one
    assert "exact" in told["one"]["verdict"].text
    assert told["one"]["verdict"].good
    assert told["unknown"]["verdict"].text.startswith("The errors of these values are not known")
    assert not told["unknown"]["verdict"].good
    assert told["images"]["Inputs with a value"] == "64; in rows of 1 × 8 × 8"
    targets = sorted(set(pd.read_parquet("classes.parquet").target))
    assert len(targets) > 1
    assert told["classes"]["Explained output"] == f"the largest of each row ({', '.join(map(str, targets))}); "
    assert told["text"]["An absent input is"] == "replaced by: mask; "
    assert told["large"]["Data"] == "large.csv; 10,000 rows"


def test_images_have_an_average_map(here):
    for name, regions in {"images": 0, "blocks": 8, "superpixels": 0}.items():
        text = write_page(name).read_text()
        assert text.count("Where in the image") == 1
        assert len(re.findall(r"<bdi>region at ", text.partition('id="rows"')[0])) == regions
        assert ("regions of its own" in text) == (name == "superpixels")
    contents = read(here / "superpixels.parquet")
    _, most = ImageRows(contents).mean_picture()
    pixels = np.zeros((16, 16))
    stored = pd.read_parquet("superpixels.parquet")
    for values, players in zip(stored["values"], stored.players, strict=True):
        own = np.stack([values, players]).reshape(2, 3, 256)  # channels of a pixel may be of different players
        for pixel in range(256):
            pixels.flat[pixel] += abs(sum({player: value for value, player in own[..., pixel].T}.values()))
    assert most == pytest.approx(pixels.max() / len(stored), rel=1e-5)


def test_the_verdict_says_how_far_values_are_off(here):
    write_page("table")
    table = pd.read_parquet("table.parquet")
    names = [name.removeprefix("error_std:") for name in table if name.startswith("error_std:")]
    contents = read(here / "table.parquet")
    typical = (table[[f"error_std:{name}" for name in names]] ** 2).mean(axis=1) ** 0.5
    size = (table[names] ** 2).mean(axis=1) ** 0.5
    shares = re.search(r"that is ([\d.]+) % of", verdict(contents, statistics_of(contents)).text)[1]
    assert float(shares) == pytest.approx(100 * (1.96 * typical / size).median(), rel=0.06)


def test_what_comes_from_outside_is_shown_and_not_run(here):
    seen = Seen(write_page("evil").read_text())
    bars = "".join(seen.texts).splitlines()
    assert sum(tag == "script" for tag, _ in seen.tags) == 2
    assert not any(tag in ("b", "img") and attributes.get("src") == "x" for tag, attributes in seen.tags)
    for name in EVIL[:3]:
        assert any(name in line for line in bars), name
    assert data_of(write_page("evil"))["players"] == [*EVIL[:3], "turned round", *EVIL[4:7], "a line"]
    assert "".join(data_of(write_page("text"))["rows"][2]["pieces"]) == TEXTS[2]
    assert "<script>document" not in write_page("text").read_text()


def test_templates_refuse_what_is_not_there():
    with pytest.raises(Exception, match="undefined"):
        render("report.html", script="report.js")


def test_images_have_their_map_and_the_image(here):
    for name in ("images", "blocks", "superpixels"):
        for row in data_of(write_page(name))["rows"]:
            assert all(row[view].startswith("data:image/png;base64,") for view in ("image", "map", "overlay"))
            assert ("parts" in row) == (name != "images")


def test_sequences_and_series_are_known_as_such(here):
    letters = data_of(write_page("sequence"))
    spelled = np.load("letters.npy").argmax(1)
    assert letters["kind"] == "sequence"
    assert [row["letters"] for row in letters["rows"]] == ["".join("ACGT"[i] for i in row) for row in spelled]
    values = np.stack(pd.read_parquet("sequence.parquet")["values"])
    assert np.allclose([row["values"] for row in letters["rows"]], values, rtol=1e-3, atol=1e-6)
    waves = data_of(write_page("series"))
    assert waves["kind"] == "series"
    assert [one[:3] for one in waves["rows"][0]["windows"]] == [[10 * i, 10 * i + 9, [0, 1]] for i in range(4)]
    assert np.allclose(waves["rows"][0]["lines"], np.load("waves.npy")[0], rtol=1e-3)


def test_words_are_counted_over_texts(here):
    write_page("text")
    known = statistics_of(read(here / "text.parquet"))
    table = pd.read_parquet("text.parquet")
    values = [
        abs(value)
        for pieces, own in zip(table["pieces"], table["values"], strict=True)
        for piece, value in zip(pieces, own, strict=True)
        if piece.strip().lower() == "the"
    ]
    (the,) = [player for player in known.players if player.name == "the"]
    assert (the.number, the.mean) == (len(values), pytest.approx(np.mean(values), rel=1e-5))


def test_groups_are_players(here):
    found = data_of(write_page("groups"))
    assert found["players"] == ["first", "alone", "last"]
    known = {found["players"][line["player"]]: line["ranks"] is not None for line in found["swarm"]}
    assert known == {"first": False, "alone": True, "last": False}
    own = pd.read_csv("table.csv").iloc[0]
    first = next(part for part in found["rows"][0]["parts"] if part[0] == 0)
    told = [float(number.replace("−", "-")) for number in first[3].split(", ")]
    assert told == pytest.approx([own[LONG], own["column 1"]], rel=1e-2)


def test_more_rows_than_have_room_are_a_sample(here, monkeypatch, tmp_path):
    write_page("table")
    table = pd.read_parquet("table.parquet")
    missed = int(table.missed.sum())
    assert write_report(here / "table.parquet", tmp_path / "page.html", most=missed + 3) == missed + 3
    rows = data_of(tmp_path / "page.html")["rows"]
    assert sum(row["missed"] for row in rows) == missed  # which are there first of all
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert f"The page shows {missed + 3} of 40 rows" in (tmp_path / "page.html").read_text()
    monkeypatch.setattr("dasp.pages.rows._MOST_BYTES", 5_000)
    shown = write_report(here / "table.parquet", tmp_path / "page.html")
    assert 0 < shown < 40
    assert len(json.dumps(data_of(tmp_path / "page.html")["rows"])) < 8_000


def test_a_csv_file_has_the_same_page(here, tmp_path):
    page = tmp_path / "plain.html"
    done = dasp("explain", *JOBS["unknown"].split(), "-o", tmp_path / "plain.csv", "--report", page)
    assert done.code == 0, done.err
    assert "40 rows to look at" in done.out
    one, other = data_of(page), data_of(write_page("unknown"))
    for row, same in zip(one["rows"], other["rows"], strict=True):
        assert row["id"] == same["id"]
        assert row["parts"][0][1] == pytest.approx(same["parts"][0][1], rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("absent.parquet", "page.html"), "absent.parquet: no such file"),
        (("table.csv", "page.html"), "table.csv: is damaged or was not written by dasp explain"),
        (("shown.py", "page.html"), "a name that ends in .parquet or .csv is needed"),
        (("data.parquet", "page.html"), "data.parquet: is damaged or was not written by dasp explain"),
        (("cut.parquet", "page.html"), "cut.parquet: cannot be read"),
        (("one.parquet", "page.txt"), "page.txt: the page's name must end in .html"),
        (("one.parquet", "absent/page.html"), "there is no folder absent"),
        (("one.parquet", "digits.html"), "digits.html: is a folder"),
        (("one.parquet", "page.html", "--rows", "0"), "--rows"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_line(here, arguments, answer):
    write_page("one")
    (here / "digits.html").mkdir(exist_ok=True)
    pd.DataFrame({"a": [1.0]}).to_parquet("data.parquet")
    (here / "cut.parquet").write_bytes((here / "one.parquet").read_bytes()[:-100])
    result = dasp("report", *arguments)
    assert result.code == 2
    assert answer in result.err
    assert result.err.count("\n") == 1
    assert not (here / "page.html").exists()


def altered(name, to, **columns):
    """An output with other numbers in it, as a faulty model or an older version may have left them."""
    write_page(name)
    table = pq.read_table(f"{name}.parquet")
    for column, values in columns.items():
        table = table.set_column(table.column_names.index(column), column, pa.array(values, table[column].type))
    pq.write_table(table, to)
    return to


def test_unknown_errors_are_not_taken_for_none(here, tmp_path):
    stds = [np.where(i == 0, np.nan, 0.0) for i in range(3)]
    lengths = [len(row) for row in pd.read_parquet("text.parquet")["error_std"]] if write_page("text") else []
    broken = [[float(s)] * n for s, n in zip(stds, lengths, strict=True)]
    output = altered("text", tmp_path / "out.parquet", error_std=broken)
    contents = read(output)
    found = verdict(contents, statistics_of(contents))
    assert "errors of 1 of 3 rows are not known" in found.text
    assert not found.good


def test_values_that_are_not_finite_are_said_to_be_so(here, tmp_path, look):
    output = altered("one", tmp_path / "out.parquet", **{"column 3": [math.nan]})
    write_report(output, tmp_path / "page.html")
    page = look(tmp_path / "page.html")
    assert "not finite" in page.locator("section tr", has_text="column 3").first.inner_text()
    assert "cannot be drawn" in page.locator("#card").inner_text()


def test_large_numbers_are_written_in_full(here, tmp_path, look):
    output = altered("one", tmp_path / "out.parquet", prediction=[214533.2], base_value=[206942.92])
    write_report(output, tmp_path / "page.html")
    told = look(tmp_path / "page.html").locator("#card").inner_text()
    assert "output is 214533;" in told
    assert "absent it is 206943." in told


@pytest.mark.parametrize("name", ["players", "pieces", "data", "data:a", "evaluations"])
def test_columns_of_the_output_are_not_names_of_players(here, name):
    pd.read_csv("one.csv").rename(columns={"column 3": name}).to_csv("taken.csv", index=False)
    result = dasp("explain", "shown:table", "taken.csv", "-o", "taken.parquet")
    assert result.code == 2
    assert f"{name!r} is the name of a column of the output" in result.err


def test_a_csv_file_is_read_as_it_was_written(here, tmp_path):
    """Whatever its first lines look like, and only as long as it is the same."""
    table = pd.read_csv("large.csv")
    table.loc[:6000, "age"] = 0
    table.insert(0, "name", [f"00{i}\nof all" for i in range(len(table))])
    table.to_csv(tmp_path / "rows.csv", index=False)
    given = ("shown:few", tmp_path / "rows.csv", "--id", "name", "--method", "exact")
    done = dasp("explain", *given, "-o", tmp_path / "out.csv", "--report", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert data_of(tmp_path / "page.html")["rows"][17]["id"] == "0017 of all"
    lines = (tmp_path / "out.csv").read_text().splitlines(keepends=True)
    (tmp_path / "out.csv").write_text("".join(lines[:100]))
    result = dasp("report", tmp_path / "out.csv", tmp_path / "page.html")
    assert result.code == 2
    assert "has changed since it was written" in result.err


def test_events_are_no_letters(here, tmp_path):
    events = (np.random.default_rng(0).random((5, 4, 24)) < 0.1).astype(np.float32)
    np.save(tmp_path / "events.npy", events)
    how = ("--players", "window:1", "--method", "bayesian", "--max-evaluations", "100")
    page = tmp_path / "page.html"
    done = dasp(
        "explain", "shown:letters", tmp_path / "events.npy", *how, "-o", tmp_path / "out.parquet", "--report", page
    )
    assert done.code == 0, done.err
    assert data_of(page)["kind"] == "series"


def test_zeros_far_from_the_data_are_a_warning(here, tmp_path):
    table = pd.read_csv("one.csv")
    table["column 3"] += 40
    table.to_csv(tmp_path / "far.csv", index=False)
    page, output = tmp_path / "page.html", tmp_path / "out.parquet"
    done = dasp("explain", "shown:table", tmp_path / "far.csv", "-o", output, "--report", page)
    said = f"n absent input is 0, as nothing else was said, but column 'column 3' is {table['column 3'].mean():.3g} on"
    assert f"warning: a{said}" in done.out
    assert f'<p class="warning">A{said}'.replace("'", "&#39;") in page.read_text()
    done = dasp("explain", "shown:table", tmp_path / "far.csv", "-o", output, "--baselines", "zero", "--overwrite")
    assert done.code == 0, done.err
    assert "warning" not in done.out


def test_outputs_have_their_names(here, tmp_path):
    write_page("classes")
    table = pq.read_table("classes.parquet")
    stored = pq.ParquetFile("classes.parquet").metadata.metadata
    notes = {**json.loads(stored[b"dasp result"]), "output_names": ["zero", "<b>one", "two"]}
    metadata = {**stored, b"dasp result": json.dumps(notes).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "out.parquet")
    write_report(tmp_path / "out.parquet", tmp_path / "page.html")
    targets = sorted(set(table["target"].to_pylist()))
    names = {str(target): notes["output_names"][target] for target in targets}
    assert data_of(tmp_path / "page.html")["outputs"] == names
    assert f"the largest of each row ({', '.join(names.values())})" in "".join(
        Seen((tmp_path / "page.html").read_text()).texts
    )


def pairs_of(name):
    """The interactions of an output with their standard deviations, (rows, pairs), and the pairs of names."""
    write_page(name)
    table = pq.read_table(f"{name}.parquet")
    names = table.column_names
    players = [one for one in names[4 : names.index("gap")] if not one.startswith("error_std:")]
    found = [np.array(table[column].to_pylist()) for column in ("interactions", "interactions_std")]
    return (*found, list(combinations(players, 2)))


def test_mean_interactions_have_their_intervals(here):
    values, std, names = pairs_of("pairs")
    rows = len(values)
    halves = np.hypot(
        stats.t.ppf(0.975, rows - 1) * values.std(0, ddof=1) / rows**0.5, 1.96 * (std**2).sum(0) ** 0.5 / rows
    )
    known = statistics_of(read(here / "pairs.parquet")).pairs
    assert [pair.players for pair in known] == list(combinations(range(14), 2))
    np.testing.assert_allclose([pair.mean for pair in known], values.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose([pair.half for pair in known], halves, rtol=1e-3)
    cells = [
        attributes
        for tag, attributes in Seen(write_page("pairs").read_text()).tags
        if tag == "td" and "title" in attributes
    ]
    assert len(cells) == 12 * 11  # of 14 players, the largest
    doubted = {
        f"{one} × {other}": abs(mean) <= half
        for (one, other), mean, half in zip(names, values.mean(0), halves, strict=True)
    }
    for cell in cells:
        name, said = cell["title"].split(": ")
        assert doubted[name] == ("unsure" in cell["class"]) == said.endswith(", uncertain")
    assert 0 < sum("unsure" in cell["class"] for cell in cells) < len(cells)


def test_a_row_has_its_largest_pairs(here):
    values, std, names = pairs_of("pairs")
    found = data_of(write_page("pairs"))
    for row, own, errors in zip(found["rows"], values, std, strict=True):
        order = np.argsort(-np.abs(own))[:5]
        assert [(found["pairs"][one], found["pairs"][other]) for one, other, *_ in row["pairs"]] == [
            names[k] for k in order
        ]
        assert [pair[2] for pair in row["pairs"]] == pytest.approx(own[order], rel=1e-4)
        assert [pair[3] for pair in row["pairs"]] == pytest.approx(1.96 * errors[order], rel=1e-4)


def test_names_of_pairs_are_escaped(here):
    text = write_page("evil").read_text()
    section = text[text.index('<section aria-labelledby="pairs">') : text.index('<section aria-labelledby="rows">')]
    assert "<script" not in section
    assert "<img" not in section
    shown = {
        tuple(a["title"].split(": ")[0].split(" × ")) for tag, a in Seen(section).tags if tag == "td" and "title" in a
    }
    assert (EVIL[0], EVIL[1]) in shown or (EVIL[1], EVIL[0]) in shown


def test_pages_without_interactions_say_nothing_of_them(here):
    for name in ("table", "one", "text", "superpixels"):
        assert "Which pairs interact" not in write_page(name).read_text().split("<script", 1)[0]
        assert data_of(write_page(name))["pairs"] == []
    assert data_of(write_page("series"))["pairs"][0] == "steps 0 to 9"


def test_interactions_that_are_not_known(here, tmp_path):
    write_page("pairs")
    table = pq.read_table("pairs.parquet")
    for gone, said in ((1, "on average over 11 rows"), (12, "The interactions are not known of any row")):
        cut = table
        for name in ("interactions", "interactions_std"):
            lists = [None] * gone + table[name].to_pylist()[gone:]
            cut = cut.set_column(cut.column_names.index(name), name, pa.array(lists, table.schema.field(name).type))
        pq.write_table(cut, tmp_path / "out.parquet")
        write_report(tmp_path / "out.parquet", tmp_path / "page.html")
        assert said in (tmp_path / "page.html").read_text()
        assert [row["pairs"] is None for row in data_of(tmp_path / "page.html")["rows"]] == [True] * gone + [False] * (
            12 - gone
        )
