"""The package as a user meets it."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import dasp
from dasp.cli import app
from dasp.former_names import FORMER
from dasp.propagation.rules import RULES

ROOT = Path(__file__).parent.parent


def test_everything_public_is_exported_and_documented():
    for name in dasp.__all__:
        assert inspect.getdoc(getattr(dasp, name)), name
    public = {name for name, value in vars(dasp).items() if inspect.isclass(value) or inspect.isfunction(value)}
    assert public | {"axioms"} == set(dasp.__all__)


def test_modules_are_found_by_their_former_names():
    for before, now in FORMER.items():
        with pytest.deprecated_call(match=f"{before} is called {now} now"):
            module = importlib.import_module(before)
        assert module is importlib.import_module(now)
        assert module.__spec__.name == module.__name__ == now
    with pytest.deprecated_call():
        models = importlib.import_module("dasp.explain.models")
    assert models.load_model is importlib.import_module("dasp.jobs.models").load_model
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dasp.explain.absent")


def test_every_snippet_of_the_readme_runs():
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert snippets
    scope: dict = {}
    before = set(RULES)
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), scope)
    for op in set(RULES) - before:  # the rule that the README registers
        del RULES[op]


def test_every_command_of_the_readme_exists():
    commands = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert {"demo", "test"} <= set(commands)
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{command}:", makefile, flags=re.MULTILINE) for command in commands)


def test_every_dasp_command_of_the_readme_exists():
    commands = set(re.findall(r"^dasp (\w+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert commands == {command.callback.__name__ for command in app.registered_commands}
