"""The harness that runs other libraries' tests on our classes: how it judges, and what the page of the docs says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.__main__ import LIBRARIES, PAGE, Library, Result, judged, main, outcomes, page
from conformance.differences import DIFFERENCES, difference_of

FUTURES = "tests/attr/test_kernel_shap.py::Test::test_futures_not_implemented"
LIST = "tests/attr/test_integrated_gradients_basic.py::Test::test_multi_argument_vanilla"


def found(outcome, why="", ours=True):
    return {"outcome": outcome, "why": why, "ours": ours}


def test_every_test_is_judged_once():
    ours = {
        "passes": found("passed"),
        "has nothing of ours": found("passed", ours=False),
        "is wrong": found("failed", "1 != 2"),
        "is left out": found("skipped", "no GPU"),
        "fails anyway": found("failed", "no network"),
        FUTURES: found("failed", "TypeError"),
        LIST: found("failed", "a crash"),
    }
    own = {"is wrong": found("passed"), "fails anyway": found("failed", "no network"), LIST: found("passed")}
    result = judged("captum", ours, own)
    assert result.passed == ["passes"]
    assert result.failed == {"is wrong": "1 != 2", LIST: "a crash"}  # which is not what is expected of it
    assert result.not_run == {"is left out": "no GPU", "fails anyway": "no network"}
    assert list(result.differ.values()) == [[FUTURES]]
    assert difference_of("captum", FUTURES, "TypeError").reason in result.differ
    assert len(result.agree) == sum(each.library == "captum" for each in DIFFERENCES) - 1


def test_reasons_are_sentences_and_nothing_hides_behind_them():
    assert all(each.library in {library.name for library in LIBRARIES} for each in DIFFERENCES)
    assert all(len(each.reason.split()) > 4 and each.patterns for each in DIFFERENCES)
    assert all(each.line for each in DIFFERENCES if any(pattern.endswith("*") for pattern in each.patterns))


TESTS = """
from captum.attr import {name}


def made():
    return {name}(lambda x: x.sum(1))


def test_ours_is_in_its_place():
    assert type(made()).__module__.split(".")[0] == "dasp"


def test_that_no_class_passes():
    assert made() is None


def test_without_a_class():
    assert True
"""


def test_files_of_a_checkout_are_run_on_our_classes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_few.py").write_text(TESTS.format(name="ShapleyValues"))
    library = Library("captum", ("tests/test_few.py",), (), from_checkout=True)
    ours = outcomes(library, tmp_path, ours=True)
    assert {test.split("::")[1]: each["outcome"] for test, each in ours.items()} == {
        "test_ours_is_in_its_place": "passed", "test_that_no_class_passes": "failed", "test_without_a_class": "passed",
    }  # fmt: skip
    assert [each["ours"] for each in ours.values()] == [True, True, False]


def test_libraries_without_a_checkout_are_skipped_and_say_so(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.count("skipped: no checkout was named") == len(LIBRARIES)


def test_a_checkout_without_tests_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="there are no tests of shap"):
        main(["--shap", str(tmp_path)])


def test_what_is_not_run_keeps_what_the_page_said():
    results = {library.name: Result("1.0", passed=["a", "b"]) for library in LIBRARIES}
    results["shap"].differ = {"they are others": ["c"]}
    before = page(results)
    again = page({**dict.fromkeys(results, "skipped"), "captum": Result("2.0", passed=["a"])}, before)
    assert again == before.replace("| captum | 1.0 | 2 |", "| captum | 2.0 | 1 |")
    assert "| they are others | 1 |" in again


def test_the_page_has_all_libraries_and_no_failure():
    text = PAGE.read_text()
    empty = page({library.name: "skipped" for library in LIBRARIES})
    assert text.startswith(empty.partition("\n| library")[0])
    for library in LIBRARIES:
        (line,) = re.findall(rf"^\| {library.name} \|.*$", text, re.MULTILINE)
        passed, differ, failed, _ = (int(cell) for cell in line.strip("| ").split(" | ")[2:])
        assert passed > 0
        assert differ > 0
        assert failed == 0
