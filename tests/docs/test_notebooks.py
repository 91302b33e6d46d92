"""The tutorials: they run from top to bottom, and what is saved in them can be read without running them."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import nbformat
import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
RUN = runpy.run_path(str(DOCS / "run_notebooks.py"))
LARGEST = 500_000  # bytes

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook, kind=None):
    return [each for cell in code_cells(notebook) for each in cell.outputs if kind in (None, each.output_type)]


def stderr(notebook):
    return [each.text for each in outputs(notebook, "stream") if each.name == "stderr"]


@pytest.fixture(scope="module")
def kernel():
    """One for all notebooks: what takes long is importing torch."""
    with RUN["kernel"]() as started:
        yield started


@notebooks
def test_it_runs_at_a_small_size(path, kernel, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    RUN["make_small"](notebook)
    no_bars = "import dasp.games.progress\ndasp.games.progress._PATIENCE = 1e6"  # on a busy machine, too
    fresh = nbformat.v4.new_code_cell(f"%reset -f\nimport os\nos.chdir({str(tmp_path)!r})\n{no_bars}")
    notebook.cells.insert(0, fresh)
    saved = [[each.output_type for each in cell.outputs] for cell in code_cells(notebook)[1:]]
    RUN["run"](notebook, kernel)
    shown = [[each.output_type for each in cell.outputs] for cell in code_cells(notebook)[1:]]
    assert shown == saved  # the same cells print and draw
    assert not stderr(notebook)
    assert not any(tmp_path.iterdir())  # nothing is left behind


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == ["image", "sequence", "table", "text"]


@notebooks
def test_what_is_saved_can_be_read(path):
    notebook, text = nbformat.read(path, as_version=4), path.read_text()
    assert path.stat().st_size < LARGEST
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))
    for cell in code_cells(notebook):
        assert bool(cell.outputs) == shows(cell.source), cell.source
    assert not outputs(notebook, "error")
    assert not stderr(notebook)
    assert not re.search(r"Warning|Traceback|[\"' ](/home|/work|/root|/tmp|/usr|/opt)/|site-packages|at 0x", text)


def shows(source):
    """Whether a cell prints something, ends with an expression or draws on axes of its own."""
    body = ast.parse(source).body
    return "print(" in source or "plt.subplots" in source or isinstance(body[-1], ast.Expr)


@notebooks
def test_everything_drawn_is_described(path):
    """For those who cannot see it: figures by the cell, which nbconvert reads, and explanations by themselves."""
    for cell in code_cells(nbformat.read(path, as_version=4)):
        figures = [each for each in cell.outputs if "image/png" in each.get("data", {})]
        assert len(figures) <= 1
        if figures:
            assert len(cell.metadata["alt"]) > 40, cell.source
            assert cell.metadata["alt"][-1] == "."
        for each in cell.outputs:
            page = each.get("data", {}).get("text/html", "")
            assert all(re.search(r'\balt="[^"]{20,}"', image) for image in re.findall("<img[^>]*>", page))


@notebooks
def test_it_is_short_and_explains_itself(path):
    cells = nbformat.read(path, as_version=4).cells
    assert len(cells) <= 20
    assert len(code_cells(nbformat.read(path, as_version=4))) <= 9
    assert cells[0].source.startswith("# ")
    assert any("What this does not say" in cell.source for cell in cells)
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert all(name in code for name in ("plots.", "Explainer(", "audit("))


@notebooks
def test_nothing_is_saved_that_changes_from_run_to_run(path):
    notebook = nbformat.read(path, as_version=4)
    assert [cell.id for cell in notebook.cells] == [f"cell-{i}" for i in range(len(notebook.cells))]
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert {name for cell in notebook.cells for name in cell.metadata} <= {"alt", "small", "tags"}
    again = nbformat.from_dict(notebook)
    RUN["tidy"](again)
    assert again == notebook


@notebooks
def test_every_parameter_has_a_small_value(path):
    cell = RUN["parameters"](nbformat.read(path, as_version=4))
    assert set(re.findall(r"^(\w+) = ", cell.source, re.MULTILINE)) == set(cell.metadata["small"])


def test_a_parameter_that_is_not_there_is_told():
    cell = nbformat.v4.new_code_cell("ROWS = 1000", metadata={"tags": ["parameters"], "small": {"COLUMNS": 3}})
    with pytest.raises(ValueError, match="COLUMNS is assigned 0 times"):
        RUN["make_small"](nbformat.v4.new_notebook(cells=[cell]))
