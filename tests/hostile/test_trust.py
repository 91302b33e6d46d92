"""Without --trust, nothing of a file that can run code is read: neither its sizes nor the names of its parts."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from explain_files import rows, write_csv

from dasp.errors import BadInput
from dasp.models.loading import load_model

SUFFIXES = (".pt2", ".PT2", ".ts", ".h5", ".pkl", ".pickle", ".joblib")


def _archive(file: Path) -> None:
    """An archive of a thousand parts, as a program is one; they say that each takes 2³² − 2 bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(1000):
            archive.writestr(f"archive/models/{number}.json", b"{}")
    file.write_bytes(file.read_bytes().replace(struct.pack("<LL", 2, 2), struct.pack("<LL", 2**32 - 2, 2**32 - 2)))


CONTENTS = {
    "first": _archive,
    "second": lambda file: file.write_bytes(b""),
    "third": lambda file: file.write_text('{"schema_version": {"major": ' + "[" * 10_000),
    "fourth": lambda file: file.write_bytes(b"cos\nsystem\n(S'touch run'\ntR."),
}

# What is opened, as Python tells it; nothing else could, before torch is there.
WATCHED = """
import contextlib, io, json, sys
from dasp.cli import main

opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event in ("open", "os.listdir") else None)
for model in sys.argv[1:]:
    opened.clear()
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main(["explain", model, "rows.csv", "-o", "out.parquet"])
        except SystemExit as stop:
            code = stop.code
    own = [name for name in opened if model in name]
    print(json.dumps([model, code, said.getvalue(), own, "torch" in sys.modules]))
"""


def test_nothing_is_read_without_trust(tmp_path):
    write_csv(tmp_path / "rows.csv", rows())
    for name, write in CONTENTS.items():
        for suffix in SUFFIXES:
            write(tmp_path / f"{name}{suffix}")
    models = sorted(file.name for file in tmp_path.iterdir() if file.suffix != ".csv")
    command = [sys.executable, "-c", WATCHED, *models]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [model for model, *_ in found] == models
    for model, code, said, opened, torch in found:
        assert (code, said.count("\n"), opened, torch) == (2, 1, [], False), (model, said)
        assert "which can run any code when it is read: give --trust if you know where it comes from" in said
    assert len({said.replace(Path(model).stem, "") for model, _, said, *_ in found}) == len(SUFFIXES)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*models, "rows.csv"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_python_is_told_the_same(suffix, tmp_path):
    for name, write in CONTENTS.items():
        write(tmp_path / f"{name}{suffix}")
        with pytest.raises(BadInput, match="which can run any code when it is read: give --trust"):
            load_model(tmp_path / f"{name}{suffix}")
    assert not Path("run").exists()
