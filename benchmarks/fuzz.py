"""Damage valid files at random, and read them as `dasp explain` does, for some minutes.

    python benchmarks/fuzz.py [--minutes 10] [--kinds csv,npy,npz,parquet,image,json,mask,pt] [--seed 0]

A damaged file may be read, or refused by `BadInput`. Anything else is a finding, whose file is kept in fuzz-findings/:
another exception or a warning, words on stderr, more than ten seconds, a crash of the process, a program that is
started, a library that is loaded, a module that valid files do not need, a file that is opened for writing or removed.
Every kind is read in a process of its own, whose audit hook sees these things; the files of a watched folder are
compared at the end.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from damaged_files import NAMES, damaged, network, samples
from dasp.errors import BadInput
from dasp.jobs.absent_inputs import players_of_file
from dasp.jobs.reading.chunks import Reader, open_data, open_like, read_all, survey
from dasp.models.loading import load_model

LIMIT = 2**26  # bytes that --max-unpacked allows
SECONDS = 10  # that a file may take
SUFFIXES = {"csv": ".csv", "npy": ".npy", "npz": ".npz", "parquet": ".parquet", "image": ".png", "json": ".json",
            "mask": ".npy", "pt": ".pt"}  # fmt: skip
FORBIDDEN = (
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.", "socket.connect",
    "ctypes.dlopen", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.link",
    "os.symlink", "os.utime", "shutil.",
)  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FINDINGS = Path("fuzz-findings")


class TooLong(BaseException):
    """A file took too long; not an Exception, which readers may catch."""


def table(file: Path, chance: random.Random) -> None:
    """Read a data file as a job does: survey, chunks, and as a background."""
    id_ = chance.choice((None, "n")) if file.suffix in (".csv", ".parquet") else None
    drop = ["n"] if file.suffix in (".csv", ".parquet") and id_ is None else None
    path = file.parent if file.suffix == ".png" else file
    source = open_data(path, drop=drop, id_=id_, limit=LIMIT)
    dtype = chance.choice(("float32", "float32", "float64", "int64"))
    seen = survey(source, file, dtype, fail=chance.random() < 0.1)
    for chunk in Reader(source, chance.choice((1, 4, 1000)), dtype, seen.integer_ids).chunks():
        if len(chunk.values) + len(chunk.bad) == 0:
            raise AssertionError("an empty chunk")
    if chance.random() < 0.3:
        like = open_like(path, list(NAMES), source.shape, "--background", LIMIT)
        read_all(like, path, "float32", "--background", LIMIT)


def players(file: Path, _: random.Random) -> None:
    """Read a file of players."""
    mask, names = players_of_file(file, NAMES, (4,), LIMIT)
    if names is None or set(mask.tolist()) != set(range(len(names))):
        raise AssertionError(f"the players {mask} are not those that are called {names}")


def weights(file: Path, _: random.Random) -> None:
    """Read a state dict, which is not trusted."""
    load_model(network(), weights=file)


READERS: dict[str, Callable[[Path, random.Random], None]] = {
    **dict.fromkeys(("csv", "npy", "npz", "parquet", "image"), table),
    **dict.fromkeys(("json", "mask"), players),
    "pt": weights,
}


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
        elif event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {given}"[:300])


def work(kind: str, folder: Path, bait: Path, seed: int, seconds: float, results: Connection) -> None:
    """Read damaged files for some seconds; send what came of it."""
    chance, valid, file = random.Random(f"{seed} {kind}"), samples(kind), folder / f"a{SUFFIXES[kind]}"  # noqa: S311
    watch, read = Watch(folder), READERS[kind]
    for content in valid:
        file.write_bytes(content)
        attempt(read, file, chance)
    watch.packages = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names) - {"antigravity"}
    sys.addaudithook(watch)
    shown = os.fdopen(os.dup(2), "w")
    stderr = folder.with_suffix(".stderr").open("wb+", buffering=0)
    os.dup2(stderr.fileno(), 2)
    signal.signal(signal.SIGALRM, too_long)
    outcomes: Counter[str] = Counter()
    slowest, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        content = damaged(chance.choice(valid), chance, valid, str(bait))
        file.write_bytes(content)
        faulthandler.dump_traceback_later(6 * SECONDS, exit=True, file=shown)
        signal.alarm(SECONDS)
        start = time.perf_counter()
        watch.active = True
        outcome = attempt(read, file, chance)
        watch.active = False
        signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - start)
        if os.fstat(2).st_size:
            watch.seen.append(f"on stderr: {os.pread(2, 300, 0)!r}")
            os.truncate(stderr.fileno(), 0)
            os.lseek(2, 0, os.SEEK_SET)
        finding = "; ".join(watch.seen) or (outcome if outcome not in ("read", "refused") else "")
        watch.seen.clear()
        outcomes["finding" if finding else outcome] += 1
        if finding:
            results.send((finding, content))
    faulthandler.cancel_dump_traceback_later()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    results.send((outcomes, slowest, peak))


def too_long(*_: object) -> None:
    raise TooLong


def attempt(read: Callable[[Path, random.Random], None], file: Path, chance: random.Random) -> str:
    """Read a file: "read", "refused", or what else came of it. Warnings are errors, but those of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if file.suffix == ".pt" else "error")
        try:
            read(file, chance)
        except BadInput as error:
            return "refused" if "\n" not in str(error) else f"two lines: {error}"
        except (Exception, TooLong, SystemExit):  # noqa: BLE001 - this is what is looked for
            return traceback.format_exc()
    return "read"


def fuzzed(kind: str, scratch: Path, bait: Path, seed: int, seconds: float) -> tuple[Counter[str], float, int]:
    """Read damaged files of a kind in a process of its own, and in another one if that crashes."""
    total: Counter[str] = Counter()
    slowest, peak, end = 0.0, 0, time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=work, args=(kind, folder, bait, seed, left, sender)
        )
        process.start()
        sender.close()
        try:
            while len(sent := receiver.recv()) == 2:
                keep(kind, *sent)
            total += sent[0]
            slowest, peak = max(slowest, sent[1]), max(peak, sent[2])
        except EOFError:
            process.join()
            keep(kind, f"the process ended with {process.exitcode}", (folder / f"a{SUFFIXES[kind]}").read_bytes())
            total["finding"] += 1
        process.join()
        seed += 1
    return total, slowest, peak


def keep(kind: str, finding: str, content: bytes) -> None:
    """Keep a file that something is wrong with, and say what."""
    FINDINGS.mkdir(exist_ok=True)
    file = FINDINGS / f"{hashlib.sha256(content).hexdigest()[:12]}{SUFFIXES[kind]}"
    file.write_bytes(content)
    print(f"{file}: {finding}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kinds", default=",".join(SUFFIXES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kinds, findings = options.kinds.split(","), 0
    with tempfile.TemporaryDirectory() as name:
        scratch, watched = Path(name, "scratch"), Path(name, "watched")
        scratch.mkdir()
        watched.mkdir()
        (watched / "bait.bin").write_bytes(bytes(4096))
        before = state(watched)
        print(f"{'kind':8} {'files':>9} {'read':>8} {'refused':>9} {'findings':>8} {'slowest':>9} {'memory':>9}")
        for kind in kinds:
            seconds = 60 * options.minutes / len(kinds)
            found, slowest, peak = fuzzed(kind, scratch, watched / "bait.bin", options.seed, seconds)
            findings += found["finding"]
            print(
                f"{kind:8} {found.total():9,} {found['read']:8,} {found['refused']:9,} {found['finding']:8,}"
                f" {slowest:7.2f} s {peak:6,} MB",
                flush=True,
            )
            shutil.rmtree(scratch)
            scratch.mkdir()
        touched = state(watched) != before
        print(f"watched files: {'CHANGED' if touched else 'untouched'}")
    sys.exit(1 if findings or touched else 0)


def state(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in folder.iterdir()
    }


if __name__ == "__main__":
    main()
