"""A function of masks, asked for every coalition once: in batches, by several threads, again if it fails, and with the
answers on disk.

A game of a user may be slow or cost money (a training run, a remote model), so no answer is paid twice. `MaskFunction`
knows every answer by its mask, and asks only for those that it does not know. `KeptAnswers` has them in a file:

    game      players, their names if they have any, and the user's key: another game is refused
    answers   a mask such as 0110, the value in JSON, the seconds that it took, and a checksum of these

The file is an SQLite database, because its transactions survive being killed at any moment, on all systems, and other
processes may write to it meanwhile. Every call of the function is one transaction, which is on disk before the next
call of the same thread begins.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.errors import BadInput, FailedCall, Stopped, line_of
from dasp.games.evaluator import Missing

__all__ = ["KeptAnswers", "MaskFunction", "MaskKind"]

log = logging.getLogger("dasp")

MaskKind = Literal["numpy", "torch"]
"""What a function takes as masks: a NumPy array or a tensor, of booleans in either case."""

_AT_ONCE = 1024  # masks for a call of a function that is not said to be costly
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before a failed call is repeated: twice as long each time
_PATIENCE = 60.0  # seconds to wait for another process that writes
_APPLICATION, _FORMAT = 0x44415350, 1  # "DASP", in the head of the file; and the version of its tables
_MOST_NAMED = 6  # players


class MaskFunction:
    """A function from masks (coalitions, players) to values, which is asked once for each coalition.

    Args:
        function: takes booleans, and returns a number or a row of numbers for each mask.
        players: their number.
        names: their names, for messages.
        masks: what the function takes: "numpy" or "torch".
        batch_size: the most masks for a call. By default 1,024; 1 if `workers`, `retries` or `kept` say that calls are
            costly.
        workers: how many calls may run at the same time, each in a thread.
        retries: how often a call that raised an exception is repeated, after 1, 2, 4, … seconds, at most 60.
        missing: "raise" an error if a call fails for good; or "drop" its coalitions, which then have the value NaN. Of
            a batch that fails, each mask gets one more chance by itself.
        kept: answers on disk, to look up and to add to.
        progress: is told of every new answer (see `progress`).

    >>> game = MaskFunction(lambda masks: masks.sum(1) ** 2, 3)
    >>> game(torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0]]))
    tensor([4., 4., 0.], dtype=torch.float64)
    >>> game.asked
    2
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        players: int,
        *,
        names: Sequence[str] | None = None,
        masks: MaskKind = "numpy",
        batch_size: int | None = None,
        workers: int = 1,
        retries: int = 0,
        missing: Missing = "raise",
        kept: KeptAnswers | None = None,
        progress: Any = None,
    ) -> None:
        costly = workers > 1 or retries > 0 or kept is not None
        self.function, self.players, self.names, self.masks = function, players, names, masks
        self.batch_size = batch_size or (1 if costly else _AT_ONCE)
        self.workers, self.retries, self.missing, self.kept, self.progress = workers, retries, missing, kept, progress
        self.asked = 0  # masks that the function gave an answer for
        self.failed = 0  # masks that were dropped
        self._known: dict[bytes, Any] = {}
        self._seconds: dict[bytes, float] = {}
        self._shape: tuple[int, ...] | None = None  # of an answer: () or (outputs,)
        self._lock = Lock()
        self._stopped = Event()
        if kept is not None:
            for mask, value, seconds in kept.read():
                self._learn([mask], np.array([value]), seconds)

    def __call__(self, coalitions: Tensor) -> Tensor:
        """Return the values of coalitions, masks (m, players) of booleans or of numbers that are positive for those who
        are present: (m,) or (m, outputs) in float64."""
        return self._values(coalitions, drop=self.missing == "drop")

    def ends(self) -> float:
        """Ask for the values of nobody and of everybody, which are never left out, and return the seconds that a
        coalition takes, as several calls run at the same time."""
        both = torch.tensor([[False], [True]]).expand(2, self.players)
        self._values(both, drop=False)
        return max(1e-9, sum(self._seconds[key] for key in _keys(both.numpy())) / 2 / self.workers)

    def _values(self, coalitions: Tensor, *, drop: bool) -> Tensor:
        members = (coalitions > 0).cpu().numpy()
        keys = _keys(members)
        new = {key: mask for key, mask in zip(keys, members, strict=True) if key not in self._known}
        masks = np.array(list(new.values()))
        batches = [masks[start : start + self.batch_size] for start in range(0, len(masks), self.batch_size)]
        self._stopped.clear()
        try:
            if self.workers == 1 or len(batches) < 2:
                for batch in batches:
                    self._ask(batch, drop=drop)
            else:
                self._ask_at_once(batches, drop=drop)
        except FailedCall as error:  # by now, other calls have come to their ends
            number, saved = self._saved()
            raise FailedCall(f"{error}; {saved}", number) from error.__cause__
        return torch.from_numpy(np.array([self._known[key] for key in keys]))

    def _ask_at_once(self, batches: list[NDArray[np.bool_]], *, drop: bool) -> None:
        """Ask for several batches at the same time. If one fails for good, or the user interrupts, no further call is
        begun; those that run come to their ends, and their answers are kept."""
        with ThreadPoolExecutor(self.workers, "dasp-game") as pool:
            calls = [pool.submit(self._ask, batch, drop=drop) for batch in batches]
            try:
                for call in as_completed(calls):
                    call.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _ask(self, batch: NDArray[np.bool_], *, drop: bool, retries: int | None = None) -> None:
        """Ask for a batch until there is an answer, or patience ends. Of a batch that may be left out, each mask gets
        one more chance by itself, so that one of them is not the end of the others."""
        tries = 1 + (self.retries if retries is None else retries)
        try:
            answer, seconds = self._answer(batch, tries)
        except BadInput:  # which says what to do, and would be the same again
            raise
        except Exception as error:
            failure = self._failure(batch, tries, error)
            if not drop:
                raise FailedCall(failure) from error
            if len(batch) > 1:
                for mask in batch:
                    self._ask(mask[None], drop=True, retries=0)
                return
            log.warning("left out: %s", failure)
            with self._lock:
                self.failed += 1
                self._known[_keys(batch)[0]] = np.full(self._shape or (), np.nan)
            return
        self._learn(_keys(batch), _checked(answer, len(batch)), seconds / len(batch), keep=True)

    def _answer(self, batch: NDArray[np.bool_], tries: int) -> tuple[Any, float]:
        """Return the answer of the function, and the seconds that it took."""
        for attempt in range(tries):
            start = time.perf_counter()
            try:
                answer = self.function(torch.from_numpy(batch.copy()) if self.masks == "torch" else batch.copy())
            except BadInput:
                raise
            except Exception as error:
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt)
                if attempt == tries - 1:
                    raise
                log.info("a call failed, and is repeated in %g seconds: %s", pause, line_of(error))
                if self._stopped.wait(pause):  # there is no use in trying any more
                    raise
            else:
                return answer, time.perf_counter() - start
        raise AssertionError

    def _learn(self, keys: list[bytes], values: NDArray[np.float64], seconds: float, *, keep: bool = False) -> None:
        """Remember answers, each of which took so many seconds, and keep them on disk."""
        with self._lock:
            shape = values.shape[1:]
            if self._shape not in (None, shape):
                raise ValueError(
                    f"the function gave answers of shape {shape} for a mask, and of shape {self._shape} before: every "
                    "coalition has the same outputs"
                )
            self._shape = shape
            if keep:
                self.asked += len(keys)
                if self.kept is not None:
                    self.kept.add(keys, values, seconds)
                if self.progress is not None:
                    self.progress.update(len(keys))
            self._known.update(zip(keys, values, strict=True))
            self._seconds.update(dict.fromkeys(keys, seconds))

    def _failure(self, batch: NDArray[np.bool_], tries: int, error: Exception) -> str:
        """Say which coalition failed, and how."""
        (present,) = batch[0].nonzero()
        some = [str(self.names[i]) if self.names else str(i) for i in present[:_MOST_NAMED]]
        more = f" and {len(present) - len(some)} more" if len(present) > len(some) else ""
        who = f"the player{'s' * (len(present) > 1)} {', '.join(some)}{more}" if some else "nobody"
        what = f"{len(batch)} coalitions, the first with" if len(batch) > 1 else "the coalition with"
        often = f" {tries} times" if tries > 1 else ""
        return f"the function failed{often} for {what} {who} present: {type(error).__name__}: {line_of(error)}"

    def _saved(self) -> tuple[int | None, str]:
        """Return the number of answers on disk, and how to go on."""
        if self.kept is None:
            return None, "no answers are kept; with keep='a file', the next call would go on where this one ended"
        number = self.kept.number
        return number, f"{number:,} answers are kept in {self.kept.path}, and the same call goes on from there"


def _keys(masks: NDArray[np.bool_]) -> list[bytes]:
    """Return masks as texts of 0 and 1.

    >>> _keys(np.array([[True, False, True]]))
    [b'101']
    """
    return [row.tobytes() for row in masks.astype(np.uint8) + ord("0")]


def _checked(answer: Any, masks: int) -> NDArray[np.float64]:
    """Return what a function gave for so many masks as (masks,) or (masks, outputs), or say what is wrong with it."""
    if isinstance(answer, Tensor):
        answer = answer.detach().cpu()
        answer = (answer if answer.is_complex() else answer.double()).numpy()
    try:
        array = np.asarray(answer)
    except ValueError:  # lists of several lengths
        array = np.array(None)
    if array.dtype.kind not in "buif":
        raise TypeError(
            f"the function must return a number for each mask, or a row of numbers; it gave a {type(answer).__name__}"
            f"{f' of {array.dtype}' if array.ndim else ''} (NaN stands for a coalition without a value)"
        )
    if array.ndim == 0 and masks == 1:
        array = array[None]
    if array.ndim not in (1, 2) or len(array) != masks or array.size == 0:
        raise ValueError(
            f"the function must return values of shape ({masks},) or ({masks}, outputs) for {masks} masks; it gave "
            f"{array.shape} (a function of one mask at a time takes batch_size=1)"
        )
    return array.astype(np.float64)


class KeptAnswers:
    """Answers of a game in a file, which is made if there is none; for one process, or several.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "answers.db"
    >>> with KeptAnswers(path, 3, key="model 1") as kept:
    ...     kept.add([b"011"], np.array([2.5]), 0.1)
    >>> with KeptAnswers(path, 3, key="model 1") as kept:
    ...     [(mask, float(value)) for mask, value, _ in kept.read()]
    [(b'011', 2.5)]
    >>> KeptAnswers(path, 4, key="model 1")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: ...answers.db has answers of 3 players, not of 4: give another file
    """

    def __init__(self, path: str | Path, players: int, names: Sequence[str] | None = None, key: str = "") -> None:
        self.path, self.players, self.number = Path(path), players, 0
        wanted = {"players": players, "names": None if names is None else [str(name) for name in names], "key": key}
        with self._refused("cannot be opened as a file of kept answers"):
            self._file = sqlite3.connect(
                self.path.absolute(), timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        try:
            with self._refused("is damaged, or not a file of kept answers"), self._transaction():
                found = self._game(wanted)
            self._compare(found, wanted)
        except BaseException:
            self._file.close()
            raise

    def _game(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Return the game of the file; of an empty one, what is wanted, which is written."""
        one = self._one
        if not one("SELECT count(*) FROM sqlite_master") and not one("PRAGMA application_id"):
            self._file.execute("CREATE TABLE game (about TEXT NOT NULL)")
            self._file.execute(
                "CREATE TABLE answers (mask TEXT PRIMARY KEY, value TEXT NOT NULL, seconds REAL NOT NULL, "
                "checksum INTEGER NOT NULL)"
            )
            self._file.execute("INSERT INTO game VALUES (?)", [json.dumps(wanted)])
            self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._file.execute(f"PRAGMA user_version = {_FORMAT}")
            return wanted
        if (one("PRAGMA application_id"), one("PRAGMA user_version")) != (_APPLICATION, _FORMAT):
            raise BadInput(f"{self.path} is not a file of kept answers, but somebody's own: give another name")
        if one("PRAGMA quick_check(1)") != "ok":
            raise sqlite3.DatabaseError("pages do not fit together")
        self.number = one("SELECT count(*) FROM answers")
        return json.loads(one("SELECT about FROM game"))

    def _compare(self, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Refuse the answers of another game. Names count where they are known both times."""
        if found["players"] != wanted["players"]:
            raise BadInput(
                f"{self.path} has answers of {found['players']} players, not of {wanted['players']}: give another file"
            )
        if found["key"] != wanted["key"]:
            raise BadInput(
                f"{self.path} has answers with the key {found['key']!r}, not {wanted['key']!r}: give another file, or "
                "that key"
            )
        for old, new in zip(found["names"] or (), wanted["names"] or (), strict=False):
            if old != new:
                raise BadInput(f"{self.path} has answers of other players, {old!r} for {new!r}: give another file")

    def read(self) -> Iterator[tuple[bytes, Any, float]]:
        """Yield all masks with their values and the seconds that they took."""
        with self._refused("is damaged: remove it, or give another file"):
            for mask, value, seconds, checksum in self._file.execute("SELECT * FROM answers ORDER BY rowid"):
                if checksum != _checksum(mask, value, seconds) or len(mask) != self.players:
                    raise sqlite3.DatabaseError(f"the answer for {mask!r} has another checksum")
                yield mask.encode(), np.array(json.loads(value)), seconds

    def add(self, masks: Sequence[bytes], values: NDArray[np.float64], seconds: float) -> None:
        """Write answers, each of which took so many seconds, in one transaction."""
        texts = [(mask.decode(), json.dumps(value.tolist())) for mask, value in zip(masks, values, strict=True)]
        rows = [(mask, value, seconds, _checksum(mask, value, seconds)) for mask, value in texts]
        try:
            with self._transaction():
                self._file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise Stopped(f"{self.path}: an answer could not be written ({line_of(error)})") from error
        self.number += len(rows)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _one(self, statement: str) -> Any:
        return self._file.execute(statement).fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    @contextmanager
    def _refused(self, why: str) -> Iterator[None]:
        """Say in one sentence what is wrong with a file."""
        try:
            yield
        except BadInput:
            raise
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{self.path} {why} ({line_of(error)})") from error


def _checksum(mask: str, value: str, seconds: float) -> int:
    return zlib.crc32(f"{mask} {value} {seconds!r}".encode())
