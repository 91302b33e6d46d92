"""The options of `dasp explain`, each said once: from `Options` come the command line, the job's record, and what an
`Explainer` is given. An option that an `Explainer` has, too, has the same name here. To add an option, add a
field here, and use it where it has an effect.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from numbers import Integral, Number, Real
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from dasp.errors import BadInput, line_of

__all__ = ["AUDIT_OPTIONS", "OPTIONS", "Option", "Options", "check_page", "is_utf8", "name_of", "number_of"]

_PLAYER_FILES = (".json", ".npy")
_PIECES = ("word", "token", "sentence")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Option:
    """One option: all of it but its name, type and default."""

    panel: str  # the part of the help that it stands in
    help: str
    flags: tuple[str, ...] = ()  # if there are others than --its-name
    positional: bool = False
    identity: bool = True  # it can change the rows that are written, so it is part of the job's record
    file: bool = False  # it names a file (or does so unless it is a word or a number), whose content counts
    explainer: bool = False  # it is an option of `Explainer`, by the same name
    ray: bool = False  # it makes sense with --engine ray only
    texts: bool | None = None  # it makes sense with --text only, or only without
    least: int | None = None
    most: int = 2**31 - 1  # of a whole number
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Options:
    """`dasp explain` as the user typed it; what makes no sense is refused.

    >>> Options(model="model.pt2", data=Path("rows.csv"), output=Path("rows.txt"))
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: --output is rows.txt; a name that ends in .parquet or .csv is needed
    """

    # fmt: off
    model: Annotated[str, Option(
        "Arguments", "Model to explain: a factory package.module:build, a .keras or .onnx file, with --trust a .pt2 "
        "file (dasp.save) or a pickle, or, for texts, a folder of a Hugging Face model.", positional=True)]
    weights: Annotated[Path | None, Option(
        "Model", "State dict for the factory: a .safetensors or .pt file.", file=True)] = None
    trust: Annotated[bool, Option(
        "Model", "Read a model that can run any code when it is read: a .pt2 file, a pickle, a script.",
        identity=False)] = False
    tokenizer: Annotated[Path | None, Option(
        "Model", "Folder of the tokenizer. If not given: the model's.", file=True, texts=True)] = None
    target: Annotated[str | None, Option(
        "Model", "Output to explain: its index or name, a column with one of these for each row, or 'predicted', the "
        "largest output of each row. If not given: the only output, or predicted.")] = None
    versus: Annotated[str | None, Option(
        "Model", "Output to compare with, for 'why this one and not that one?': the target less this one is explained. "
        "Its index or name, 'predicted', or 'second', the largest beside the target.")] = None
    model_output: Annotated[str | None, Option(
        "Model", "Result to explain of a model that returns several: its name or index. Of a classifier, 'probability' "
        "or 'logit' (log-odds), whichever of them it gives.")] = None
    output_names: Annotated[str | None, Option(
        "Model", "Names of all outputs, in the model's order: a,b,c. If not given: those that a Hugging Face model "
        "has.")] = None

    data: Annotated[Path, Option(
        "Arguments", "Rows to explain: a .csv, .parquet, .npy or .npz file, or a folder of images.", positional=True)]
    columns: Annotated[str | None, Option(
        "Data", "Columns that are inputs, in the model's order: a,b,c. If not given: all others.", texts=False)] = None
    drop: Annotated[str | None, Option("Data", "Columns that are not inputs: a,b,c.", texts=False)] = None
    text: Annotated[str | None, Option(
        "Data", "Column of texts, which are explained by their words, tokens or sentences.")] = None
    id: Annotated[str | None, Option("Data", "Column that identifies the rows. If not given: row numbers.")] = None
    on_bad_row: Annotated[str, Option(
        "Data", "Answer to a row whose entries or output are missing or infinite: fail, or skip the row.",
        choices=("fail", "skip"))] = "fail"
    mean: Annotated[str | None, Option(
        "Data", "Mean that the model expects to be subtracted from its inputs: a number, one for each channel or "
        "column (1,2,3), or imagenet. The data, baselines and background are given without that.", texts=False)] = None
    std: Annotated[str | None, Option(
        "Data", "Standard deviation that the model expects its inputs to be divided by, after the mean is subtracted: "
        "as --mean.", texts=False)] = None
    max_unpacked: Annotated[str, Option(
        "Data", "Largest size of a row, an image or a background when it is unpacked: 500M, 2G, … What a file declares "
        "beyond it is refused before memory is taken.", identity=False)] = "1G"

    baselines: Annotated[str | None, Option(
        "Absent inputs", "Value of an absent input: zero, mean (of the data), a number, or a file with one row. "
        "If not given: zero. For texts, what is in the place of an absent piece: mask (the mask token), pad (it is "
        "masked out), drop (its text is removed), or any other text. If not given: mask where there is such a token, "
        "else drop.",
        file=True)] = None
    background: Annotated[Path | None, Option(
        "Absent inputs", "File of rows that absent inputs take their values from; outputs are averaged over them.",
        file=True, texts=False)] = None
    players: Annotated[str | None, Option(
        "Absent inputs", "Inputs that are absent together. A rule: block:8, superpixel:60, window:25, channel, or "
        "prefix:a,b for columns whose names begin with a_ or b_. A file: .json with a list of columns for each player, "
        "or .npy with the number of each input's player. Of texts: word, token or sentence. If not given: each input "
        "alone; each word.", file=True)] = None

    method: Annotated[str, Option(
        "Method", "Method to use: auto, exact_shapley, dasp, gradient_dasp, bayesian_shapley, permutation_shapley, …",
        explainer=True)] = "auto"
    tolerance: Annotated[float | None, Option(
        "Method", "Error to reach, as a fraction of the largest value of a row.", explainer=True)] = None
    max_evaluations: Annotated[int | None, Option(
        "Method", "Largest number of evaluations of the model for a row.", explainer=True, least=1)] = None
    max_seconds: Annotated[float | None, Option(
        "Method", "Seconds that a row may take: every row has as many evaluations as the first ones get in that time.",
        explainer=True, texts=False)] = None
    error_bars: Annotated[bool, Option(
        "Method", "Insist on standard deviations: refuse a method that knows none.", explainer=True)] = False
    seed: Annotated[int, Option(
        "Method", "Seed for everything that is sampled.", explainer=True, least=0, most=2**32 - 1)] = 0

    output: Annotated[Path, Option(
        "Output", "File to write: a .parquet or .csv file.", flags=("--output", "-o"), identity=False)]
    with_data: Annotated[bool, Option(
        "Output", "Write the inputs beside their values, in columns data:NAME.", texts=False)] = False
    interactions: Annotated[bool, Option(
        "Output", "Write the interactions of all pairs of players, too, from the coalitions that are evaluated anyway: "
        "of up to 30 players, in a .parquet file.", texts=False)] = False
    safe_csv: Annotated[bool, Option(
        "Output", "Write an apostrophe before ids and names that a spreadsheet would take for formulas, as they begin "
        "with =, +, - or @, in a .csv file. Numbers stay as they are.")] = False
    report: Annotated[Path | None, Option(
        "Output", "Page to write as well: a .html file that shows the result. The inputs are written with it, as by "
        "--with-data.", identity=False)] = None
    metrics: Annotated[Path | None, Option(
        "Output", "File to write at the end, however the job ends: a .json file with its exit code, rows, seconds, "
        "evaluations, and numbers of rows that were left out or missed the tolerance.", identity=False)] = None
    overwrite: Annotated[bool, Option(
        "Output", "Replace what another job has left there.", identity=False)] = False

    device: Annotated[str | None, Option(
        "Running", "Device to compute on: cpu, cuda, … If not given: the model's.", explainer=True)] = None
    batch_size: Annotated[int | None, Option(
        "Running", "Largest number of rows that the model is given at once.", explainer=True, least=1)] = None
    chunk: Annotated[int | None, Option(
        "Running", "Number of rows that are saved together: a killed job loses no more.", least=1)] = None
    threads: Annotated[int | None, Option(
        "Running", "Threads of each worker. If not given: 1, unless the model's operations are large and there are "
        "idle cores; 1 with Ray.", least=1, most=1024)] = None
    show_progress: Annotated[str, Option(
        "Running", "Progress on stderr: yes for a bar at once, no for nothing, auto for a bar from two seconds on if "
        "it is a terminal, and a line every half minute if it is not.", identity=False,
        choices=("auto", "yes", "no"))] = "auto"
    engine: Annotated[str, Option(
        "Running", "Place to run: this process, or Ray.", identity=False, choices=("local", "ray"))] = "local"
    workers: Annotated[int | None, Option(
        "Running", "Largest number of Ray workers.", identity=False, ray=True, least=1)] = None
    ray_address: Annotated[str | None, Option(
        "Running", "Address of a running Ray. If not given: one is started here.", identity=False, ray=True)] = None
    # fmt: on

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            self._check(name, getattr(self, name), option)
        self._check_budget()
        self._check_output()
        if not self.limit:
            raise BadInput(f"--max-unpacked is {self.max_unpacked}; a size like 500M or 2G is needed")
        if self.background and self.baselines not in (None, "mean"):
            raise BadInput("--baselines and --background both say what an absent input is: give one of them")
        if self.text is not None and self.baselines in ("zero", "mean"):
            raise BadInput(f"--baselines {self.baselines} is for numbers; texts have mask, pad, drop or another text")
        if self.text is not None and self.players not in (None, *_PIECES):
            raise BadInput(f"--players is {self.players}; texts have {', '.join(_PIECES)}")
        if self.text is None and self.players in _PIECES:
            raise BadInput(f"--players {self.players} is for texts: name their column by --text")

    def _check_budget(self) -> None:
        if self.tolerance is not None and not 0 < self.tolerance < float("inf"):
            raise BadInput(f"--tolerance is {self.tolerance}; a number above 0 is needed")
        if self.max_seconds is not None and not 0 < self.max_seconds < float("inf"):
            raise BadInput(f"--max-seconds is {self.max_seconds}; a number above 0 is needed")
        if self.max_seconds is not None and self.method != "auto":
            raise BadInput("--max-seconds is for --method auto: give --max-evaluations")

    def _check_output(self) -> None:
        if self.output.suffix.lower() not in (".parquet", ".pq", ".csv"):
            raise BadInput(f"--output is {self.output}; a name that ends in .parquet or .csv is needed")
        if self.text is not None and self.output.suffix.lower() == ".csv":
            raise BadInput(
                f"--output is {self.output}, but texts have different numbers of pieces, which are lists; a name that "
                "ends in .parquet is needed"
            )
        if self.interactions and self.output.suffix.lower() == ".csv":
            raise BadInput(
                f"--output is {self.output}, but --interactions writes lists; a name that ends in .parquet is needed"
            )
        if self.safe_csv and self.output.suffix.lower() != ".csv":
            raise BadInput(f"--safe-csv is for a .csv output, and --output is {self.output}: leave it out")
        if not self.output.parent.is_dir():
            raise BadInput(f"--output is {self.output}, but there is no folder {self.output.parent}")
        if self.metrics is not None:
            self._check_metrics(self.metrics)
        if self.report is not None:
            check_page(self.report)
            if self.text is None:  # a picture needs its image, and a bar the number that it is for
                object.__setattr__(self, "with_data", True)

    def _check_metrics(self, file: Path) -> None:
        """Refuse a file of metrics that would replace what is read, or what is beside the output."""
        if file.suffix.lower() != ".json":
            raise BadInput(f"--metrics is {file}; a name that ends in .json is needed")
        _check_place(file)
        beside = [self.output.with_name(f"{self.output.name}{ending}") for ending in (".json", ".parts")]
        places = [("output", place) for place in beside]
        for name, place in [("model", Path(self.model)), *places, *self.files().items()]:
            if place.resolve() in (file.resolve(), *file.resolve().parents):
                raise BadInput(f"--metrics {file}: {place} is what {name_of(name)} needs; name another file")

    def _check(self, name: str, value: Any, option: Option) -> None:
        """Refuse a value that the option cannot have."""
        if isinstance(value, (str, Path)):
            _check_text(name_of(name), str(value))
        if isinstance(value, Path) or option.positional:
            _check_path(name_of(name), Path(value))
        if option.least is not None and value is not None and value < option.least:
            raise BadInput(f"{name_of(name)} is {value}; at least {option.least} is needed")
        if isinstance(value, int) and value > option.most:
            raise BadInput(f"{name_of(name)} is {value}; it can be {option.most} at most")
        if option.choices and value not in option.choices:
            raise BadInput(f"{name_of(name)} is {value!r}; {' or '.join(option.choices)} is needed")
        if option.ray and value is not None and self.engine != "ray":
            raise BadInput(f"{name_of(name)} is for --engine ray")
        if value not in (None, False) and option.texts not in (None, self.text is not None):
            how = (
                "texts: name their column by --text"
                if option.texts
                else "numbers, and --text names texts: leave it out"
            )
            raise BadInput(f"{name_of(name)} is for {how}")

    @classmethod
    def of(cls, **given: Any) -> Options:
        """Return options as people give them in Python: files by their names, numbers as numbers, names as a list.

        >>> Options.of(model="a:build", data="rows.csv", output="out.csv", target=1, columns=["a", "b"]).columns
        'a,b'
        """
        kinds = get_type_hints(cls)
        return cls(**{name: _of_python(name, value, kinds.get(name)) for name, value in given.items()})

    @property
    def limit(self) -> int:
        """The number of bytes that --max-unpacked allows, or 0 if it is no size."""
        found = re.fullmatch(r"(\d{1,9})([KMGT]?)(i?B)?", self.max_unpacked.strip(), re.IGNORECASE | re.ASCII)
        return int(found[1]) * _UNITS[found[2].upper()] if found else 0

    def files(self) -> dict[str, Path]:
        """Return the files and folders whose contents count, by the options that name them."""
        named = {name: getattr(self, name) for name, option in OPTIONS.items() if option.file}
        if self.text is not None:  # whose baselines are words
            del named["baselines"]
        return {name: Path(value) for name, value in named.items() if value is not None and _is_file(name, value)}

    def of_record(self) -> dict[str, Any]:
        """Return the options that can change a row, as JSON has them. Files count by their contents, not by names."""
        files = {*self.files(), "model", "data"}
        given = {name: getattr(self, name) for name, option in OPTIONS.items() if option.identity and name not in files}
        if self.text is None and self.background is None and "baselines" in given:
            given["baselines"] = self.baselines or "zero"
        return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}

    def of_explainer(self) -> dict[str, Any]:
        """Return the options that an `Explainer` is given as they are."""
        return {name: getattr(self, name) for name, option in OPTIONS.items() if option.explainer}


OPTIONS: dict[str, Option] = {
    name: kind.__metadata__[0] for name, kind in get_type_hints(Options, include_extras=True).items()
}

AUDIT_OPTIONS = (
    "model", "weights", "trust", "target", "versus", "model_output", "output_names", "data", "columns", "drop", "id",
    "mean", "std", "max_unpacked", "baselines", "background", "players", "seed", "device", "batch_size",
    "show_progress",
)  # fmt: skip
"""Those that `dasp audit` has, too: they say what values are of."""


_IN_WORDS = {Path: "the name of a file", str: "a text", int: "a whole number", float: "a number", bool: "True or False"}
_SHOWN = {None: "auto", True: "yes", False: "no"}  # `show_progress` of an `Explainer`


def _of_python(name: str, value: Any, kind: Any) -> Any:
    """Return the value of an option that may be of another type than `Options` has; and anything of no option."""
    if name == "show_progress" and (value is None or isinstance(value, bool)):
        return _SHOWN[value]
    kinds = get_args(kind) or (kind,)
    wanted, truth = kinds[0], isinstance(value, bool)
    if kind is None or (value is None and type(None) in kinds):
        return value
    if wanted in (Path, str) and isinstance(value, (str, os.PathLike)):
        return wanted(value)
    if wanted is str and isinstance(value, Number) and not truth:
        return str(value)
    if wanted is str and isinstance(value, (list, tuple)) and not any("," in str(each) for each in value):
        return ",".join(map(str, value))
    if truth if wanted is bool else wanted is float and isinstance(value, Real) and not truth:
        return wanted(value)
    if wanted is int and isinstance(value, Integral) and not truth:
        return int(value)
    raise BadInput(f"{name_of(name)} is {value!r}; {_IN_WORDS[wanted]} is needed")


def name_of(name: str) -> str:
    """Return a field of `Options` as users of the command line know it.

    >>> name_of("on_bad_row"), name_of("data")
    ('--on-bad-row', 'DATA')
    """
    return name.upper() if OPTIONS[name].positional else f"--{name.replace('_', '-')}"


def number_of(text: str) -> float | None:
    """Return the number that a text is, or None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def is_utf8(text: str) -> bool:
    r"""Return True if a name can be written in UTF-8, as the ids and the columns of the output must be.

    >>> is_utf8("Zürich"), is_utf8("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_page(page: Path) -> None:
    """Refuse a page that cannot be written, before any row is explained."""
    if page.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"{page}: the page's name must end in .html")
    _check_path("the page", page)
    _check_place(page)


def _check_place(file: Path) -> None:
    """Refuse a place where no file can be written."""
    if not file.parent.is_dir():
        raise BadInput(f"{file}: there is no folder {file.parent}")
    if file.exists() and not file.is_file():
        raise BadInput(f"{file}: is {'a folder' if file.is_dir() else 'not a file'}, and cannot be replaced")


def _is_file(name: str, value: str | Path) -> bool:
    """Return True if the value of an option names a file, rather than being a word, a number or a rule."""
    if name == "players":
        return Path(value).suffix.lower() in _PLAYER_FILES
    return isinstance(value, Path) or (value not in ("zero", "mean") and number_of(value) is None)


def _check_text(option: str, text: str) -> None:
    if not text:
        raise BadInput(f"{option} is empty; leave it out, or say which is meant")
    if not is_utf8(text):
        raise BadInput(f"{option} is {text!r}, which is not UTF-8; rename it")


def _check_path(option: str, path: Path) -> None:
    """Refuse a path that the system cannot have, such as one that is too long."""
    try:
        path.exists()
    except (OSError, ValueError) as error:
        raise BadInput(f"{option} is {line_of(path)}: {line_of(error)}") from error
