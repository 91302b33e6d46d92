"""Read files that were changed at random, in a process that is watched.

A file may be read, or refused by `BadInput` in one line. Anything else is a finding, whose file is kept in
fuzz-findings/: another exception or a warning, words on stderr, more than half a minute, more memory than `MEMORY`, a
crash of the process, a program that is started, a library that is loaded, a module that valid files do not need, a file
that is opened for writing or removed. Every kind is read in a process of its own, whose audit hook sees these things;
the files of a watched folder are compared at the end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from dasp.errors import BadInput

SECONDS = 30  # that a file may take
MEMORY = 2**10  # MB that a file may take
FORBIDDEN = (
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.", "socket.connect",
    "ctypes.dlopen", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.link",
    "os.symlink", "os.utime", "shutil.",
)  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FINDINGS = Path("fuzz-findings")

Make = Callable[[Path, random.Random, str], Path]
"""Write a changed file into a folder, given the path of a bait that it may name; return it."""


@dataclass(frozen=True)
class Subject:
    """A kind of files: valid ones, others, and how they are read."""

    name: str
    valid: Callable[[Path], Iterable[Path]]
    make: Make
    read: Callable[[Path, random.Random], None]
    torch_warns: bool = False  # about pickles


class Tried(NamedTuple):
    """What came of the files of a kind."""

    outcomes: Counter[str]  # read, refused, finding
    slowest: float  # seconds of processor time
    memory: int  # MB at most, to read a file

    def __str__(self) -> str:
        told = ", ".join(f"{self.outcomes[name]:,} {name}" for name in ("read", "refused"))
        return f"{self.outcomes.total():,} files: {told}; the slowest {self.slowest:.1f} s, {self.memory:,} MB at most"


class TooLong(BaseException):
    """A file took too long; not an Exception, which readers may catch."""


class Watch:
    """An audit hook that notes what reading a file must not do. Modules of packages that valid files need are known."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = str(scratch)
        self.active = False
        self.seen: list[str] = []
        self.packages: set[str] = set()

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        """Look at an event of Python's."""
        if not self.active:
            return
        if event == "open":
            path, mode, flags = given
            writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & WRITING
            if writes and not str(path).startswith((self.scratch, "/dev/null")):
                self.seen.append(f"open {path} {mode} {flags}")
        elif event == "import":
            if given[0].partition(".")[0] not in self.packages:
                self.seen.append(f"import {given[0]}")
        elif event.startswith(FORBIDDEN) and self.scratch not in str(given):
            self.seen.append(f"{event} {given}"[:300])


def fuzz(
    subjects: Iterable[Subject], seconds: float, seed: int, tries: int | None = None
) -> tuple[dict[str, Tried], list[str]]:
    """Read changed files of all kinds for so many seconds together, or so many of each; return what came of them by
    their kinds, and the findings in a line each."""
    subjects = list(subjects)
    tried, findings = dict[str, Tried](), list[str]()
    with tempfile.TemporaryDirectory() as name:
        scratch, watched = Path(name, "scratch"), Path(name, "watched")
        scratch.mkdir()
        watched.mkdir()
        (watched / "bait.bin").write_bytes(bytes(4096))
        before = _state(watched)
        for subject in subjects:
            end = time.perf_counter() + seconds / len(subjects)
            tried[subject.name], found = _all_of(subject, scratch, watched / "bait.bin", seed, end, tries)
            findings += found
            shutil.rmtree(scratch)
            scratch.mkdir()
        if _state(watched) != before:
            findings.append("the watched files have changed")
    return tried, findings


def _all_of(
    subject: Subject, scratch: Path, bait: Path, seed: int, end: float, tries: int | None
) -> tuple[Tried, list[str]]:
    """Read changed files of a kind in a process of its own, and in another one if that crashes."""
    total, slowest, memory, findings = Counter[str](), 0.0, 0, list[str]()
    while time.perf_counter() < end and (tries is None or total.total() < tries):
        folder = Path(tempfile.mkdtemp(dir=scratch))
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=_work, args=(subject, folder, bait, seed, end, tries, sender)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which are idle
            process.start()
        sender.close()
        try:
            while isinstance(sent := receiver.recv(), str):
                findings.append(f"{subject.name}: {sent}")
            total += sent.outcomes
            slowest, memory = max(slowest, sent.slowest), max(memory, sent.memory)
        except EOFError:
            process.join()
            findings.append(f"{subject.name}: {_kept(folder)}: the process ended with {process.exitcode}")
            total["finding"] += 1
        process.join()
        seed += 1
    return Tried(total, slowest, memory), findings


def _work(
    subject: Subject, folder: Path, bait: Path, seed: int, end: float, tries: int | None, results: Connection
) -> None:
    """Read changed files until the end; send what came of it."""
    chance, watch = random.Random(f"{seed} {subject.name}"), Watch(folder)
    for file in subject.valid(folder):
        if (outcome := _attempt(subject, file, chance)) not in ("read", "refused"):
            results.send(f"a valid file: {outcome}")
    watch.packages = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names) - {"antigravity"}
    watch.packages |= {"pytz", "tzdata", "dateutil"}  # of times
    sys.addaudithook(watch)
    shown = os.fdopen(os.dup(2), "w")
    stderr = folder.with_suffix(".stderr").open("wb+", buffering=0)
    os.dup2(stderr.fileno(), 2)
    signal.signal(signal.SIGALRM, _too_long)
    outcomes, slowest, memory = Counter[str](), 0.0, 0
    while time.perf_counter() < end and (tries is None or outcomes.total() < tries):
        file = subject.make(folder, chance, str(bait))
        _forget_peak()
        faulthandler.dump_traceback_later(6 * SECONDS, exit=True, file=shown)
        signal.alarm(SECONDS)
        before, start, watch.active = _memory(), time.process_time(), True
        outcome = _attempt(subject, file, chance)
        watch.active = False
        signal.alarm(0)
        slowest = max(slowest, time.process_time() - start)
        if os.fstat(2).st_size:
            watch.seen.append(f"on stderr: {os.pread(2, 300, 0)!r}")
            os.truncate(stderr.fileno(), 0)
            os.lseek(2, 0, os.SEEK_SET)
        if (taken := _memory() - before) > MEMORY:
            watch.seen.append(f"{taken:,} MB of memory")
        memory = max(memory, taken)
        finding = "; ".join(watch.seen) or (outcome if outcome not in ("read", "refused") else "")
        watch.seen.clear()
        outcomes["finding" if finding else outcome] += 1
        if finding:
            kept = _kept(folder)
            (kept / "finding.txt").write_text(finding)
            results.send(f"{kept}: {finding.strip().splitlines()[-1]}")
    faulthandler.cancel_dump_traceback_later()
    results.send(Tried(outcomes, slowest, memory))


def _attempt(subject: Subject, file: Path, chance: random.Random) -> str:
    """Read a file: "read", "refused", or what else came of it. Warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if subject.torch_warns else "error")
        try:
            subject.read(file, chance)
        except BadInput as error:
            return "refused" if "\n" not in str(error) else f"two lines: {str(error)!r}"
        except (Exception, TooLong, SystemExit):  # noqa: BLE001 (this is what is looked for)
            return traceback.format_exc()
    return "read"


def _too_long(*_: object) -> None:
    raise TooLong


def _forget_peak() -> None:
    """Let the most memory that was taken begin at what is taken now: to write a file may have taken more than to read
    it. Only Linux can, and elsewhere less is seen."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _kept(folder: Path) -> Path:
    """Keep the files of a finding, and return where."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    content = b"".join(file.read_bytes() for file in files)
    kept = FINDINGS / hashlib.sha256(content).hexdigest()[:12]
    shutil.copytree(folder, kept, dirs_exist_ok=True)
    return kept


def _state(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in folder.iterdir()
    }
