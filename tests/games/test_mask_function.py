"""Functions of masks: each coalition is asked for once, whatever fails, and answers on disk survive being killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from dasp.errors import BadInput, FailedCall, Stopped
from dasp.games import mask_function
from dasp.games.mask_function import KeptAnswers, MaskFunction

ALL = torch.cartesian_prod(*[torch.tensor([False, True])] * 5)


def worth(masks):
    return masks @ np.arange(1.0, 1 + masks.shape[1]) + masks[:, 0] * masks[:, 1]


class Paid:
    """Counts how often each mask is paid for, and how many there were in each call."""

    def __init__(self, function=worth):
        self.function, self.times, self.batches, self.lock = function, Counter(), [], threading.Lock()

    def __call__(self, masks):
        with self.lock:
            self.times.update(map(tuple, np.asarray(masks).tolist()))
            self.batches.append(len(masks))
        return self.function(masks)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses before calls are repeated, which take no time here."""
    taken = []

    class Impatient(threading.Event):
        def wait(self, timeout=None):
            taken.append(timeout)
            return self.is_set()

    monkeypatch.setattr(mask_function, "Event", Impatient)
    return taken


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch_size", [None, 1, 7])
def test_every_mask_is_asked_for_once(workers, batch_size):
    function = Paid()
    game = MaskFunction(function, 5, workers=workers, batch_size=batch_size)
    again = torch.cat([ALL, ALL[:9], ALL[3:4]])
    for masks in (ALL[:10], again, again.double()):
        assert game(masks).tolist() == worth(masks.numpy() > 0).tolist()
    assert set(function.times.values()) == {1}
    assert len(function.times) == game.asked == 32
    assert max(function.batches) == (batch_size or (1 if workers > 1 else 22))


def test_several_calls_run_at_the_same_time():
    together = threading.Barrier(3, timeout=60)

    def function(masks):
        together.wait()  # passes if three are here
        return worth(masks)

    game = MaskFunction(function, 5, workers=3, batch_size=4)
    assert game(ALL[:12]).tolist() == worth(ALL[:12].numpy()).tolist()


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list, lambda x: torch.tensor(x).float()])
def test_what_functions_take_and_give(kind):
    def function(masks):
        assert isinstance(masks, torch.Tensor)
        assert masks.dtype == torch.bool
        return kind(masks.numpy().sum(1))

    found = MaskFunction(function, 5, masks="torch")(ALL)
    assert found.dtype == torch.float64
    assert found.tolist() == ALL.sum(1).tolist()

    def in_numpy(masks):
        assert isinstance(masks, np.ndarray)
        assert masks.dtype == bool
        return np.stack([masks.sum(1), masks[:, 0]], 1)

    assert MaskFunction(in_numpy, 5)(ALL).shape == (32, 2)
    assert MaskFunction(lambda mask: float(mask[0].sum()), 5, batch_size=1)(ALL).tolist() == ALL.sum(1).tolist()


def test_a_function_may_write_into_its_masks():
    def function(masks):
        total = masks.sum(1)
        masks[:] = False
        return total

    assert MaskFunction(function, 5)(ALL).tolist() == ALL.sum(1).tolist()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda m: None, TypeError, "a number for each mask.*gave a NoneType"),
        (lambda m: ["good"] * len(m), TypeError, "gave a list of <U4"),
        (lambda m: [[1], [1, 2]] * (len(m) // 2), TypeError, "gave a list"),
        (lambda m: torch.ones(len(m), dtype=torch.complex64), TypeError, "complex64"),
        (lambda m: 1.0, ValueError, r"shape \(32,\) or \(32, outputs\) for 32 masks; it gave \(\).*batch_size=1"),
        (lambda m: np.ones((len(m), 2, 2)), ValueError, r"it gave \(32, 2, 2\)"),
        (lambda m: np.ones(len(m) - 1), ValueError, r"it gave \(31,\)"),
        (lambda m: np.ones((len(m), 0)), ValueError, r"it gave \(32, 0\)"),
    ],
)
def test_answers_that_are_none(answer, error, message):
    function = Paid(answer)
    with pytest.raises(error, match=message):
        MaskFunction(function, 5, batch_size=32, retries=3)(ALL)
    assert function.batches == [32]  # there is no use in asking again


def test_outputs_that_change():
    with pytest.raises(ValueError, match=r"of shape \(2,\) for a mask, and of shape \(\) before"):
        MaskFunction(lambda m: np.ones(len(m)) if m.any() else np.ones((len(m), 2)), 5, batch_size=1)(ALL.flip(0))


def failing(times, where=lambda mask: True):
    """Fails so many times for each mask of a kind."""
    left = Counter()

    def function(masks):
        for mask in map(tuple, masks.tolist()):
            if where(mask) and left[mask] < times:
                left[mask] += 1
                raise ConnectionError("try again\nlater")
        return worth(masks)

    return function


@pytest.mark.parametrize("workers", [1, 4])
def test_failures_are_repeated_after_growing_pauses(pauses, workers):
    function = Paid(failing(3))
    game = MaskFunction(function, 5, workers=workers, retries=3)
    assert game(ALL).tolist() == worth(ALL.numpy()).tolist()
    assert set(function.times.values()) == {4}
    assert Counter(pauses) == {1.0: 32, 2.0: 32, 4.0: 32}
    assert game.asked == 32


def test_pauses_are_at_most_a_minute(pauses):
    MaskFunction(failing(8), 5, retries=8)(ALL[:1])
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("workers", [1, 4])
def test_what_fails_for_good_is_said_and_the_rest_is_kept(pauses, workers, tmp_path):
    def broken(mask):
        return mask == (True, False, True, False, True)

    def run(function):
        with KeptAnswers(tmp_path / "kept.db", 5) as kept:
            MaskFunction(function, 5, names="abcde", retries=2, workers=workers, kept=kept)(ALL)

    function = Paid(failing(99, broken))
    with pytest.raises(FailedCall) as caught:
        run(function)
    number = caught.value.kept
    assert sum(function.times.values()) == number + 3
    assert number >= 21  # that come before
    assert str(caught.value) == (
        "the function failed 3 times for the coalition with the players a, c, e present: ConnectionError: try again "
        f"later; {number} answers are kept in {tmp_path / 'kept.db'}, and the same call goes on from there"
    )
    assert isinstance(caught.value.__cause__, ConnectionError)
    rest = Paid()
    run(rest)
    assert sum(rest.times.values()) == 32 - number
    again = Paid()
    run(again)
    assert not again.times


def test_what_fails_without_a_file():
    with pytest.raises(FailedCall, match="for 32 coalitions, the first with nobody .*no answers are kept; with keep="):
        MaskFunction(failing(1), 5)(ALL)


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("workers", [1, 4])
def test_what_fails_for_good_is_left_out(pauses, workers, batch_size, tmp_path, caplog):
    def broken(mask):
        return sum(mask) == 2

    with KeptAnswers(tmp_path / "kept.db", 5) as kept:
        game = MaskFunction(
            failing(99, broken), 5, retries=1, workers=workers, batch_size=batch_size, missing="drop", kept=kept
        )
        found = game(ALL).numpy()
        assert kept.number == 22  # what failed may be there another time
        assert np.isnan(game(ALL).numpy()).sum() == 10
    sizes = ALL.sum(1).numpy()
    assert np.isnan(found).tolist() == (sizes == 2).tolist()
    assert found[sizes != 2].tolist() == worth(ALL.numpy())[sizes != 2].tolist()
    assert (game.asked, game.failed) == (22, 10)
    assert caplog.text.count("left out: the function failed") == 10
    with KeptAnswers(tmp_path / "kept.db", 5) as kept:
        game = MaskFunction(worth, 5, missing="drop", kept=kept)
        assert game(ALL).isfinite().all()
        assert game.asked == 10


def test_nobody_and_everybody_are_never_left_out():
    game = MaskFunction(failing(99, all), 5, missing="drop", batch_size=1)
    with pytest.raises(FailedCall, match="the players 0, 1, 2, 3, 4 present"):
        game.ends()


@pytest.mark.parametrize("workers", [1, 4])
def test_an_interrupt_loses_nothing(workers, tmp_path):
    seen = []

    def function(masks):
        if len(seen) == 12:
            raise KeyboardInterrupt
        seen.append(masks)
        return worth(masks)

    with KeptAnswers(tmp_path / "kept.db", 5) as kept, pytest.raises(KeyboardInterrupt):
        MaskFunction(function, 5, workers=workers, kept=kept)(ALL)
    with KeptAnswers(tmp_path / "kept.db", 5) as kept:
        assert kept.number == len(seen) == 12


def test_numbers_come_back_as_they_were(tmp_path):
    values = [0.1, 1 / 3, -0.0, 1e-310, 1.7e308, float("nan"), float("inf"), float("-inf")]
    masks = [f"{i:03b}".encode() for i in range(8)]
    with KeptAnswers(tmp_path / "one.db", 3) as kept:
        kept.add(masks, np.array(values), 0.25)
        found = list(kept.read())
    assert [mask for mask, _, _ in found] == masks
    np.testing.assert_array_equal([value for _, value, _ in found], values)
    assert {seconds for _, _, seconds in found} == {0.25}
    with KeptAnswers(tmp_path / "two.db", 3) as kept:
        kept.add(masks[:1], np.array([[0.1, 0.2]]), 0.25)
        assert [value.tolist() for _, value, _ in kept.read()] == [[0.1, 0.2]]


def kept_file(path, **options):
    with KeptAnswers(path, 5, **options) as kept:
        MaskFunction(worth, 5, kept=kept)(ALL)
    return path


def test_other_games_are_refused(tmp_path):
    path = kept_file(tmp_path / "kept.db", names="abcde", key="v1")
    for arguments, message in [
        ((6, None, "v1"), "has answers of 5 players, not of 6"),
        ((5, None, "v2"), "has answers with the key 'v1', not 'v2'"),
        ((5, "abced", "v1"), "has answers of other players, 'd' for 'e'"),
    ]:
        with pytest.raises(BadInput, match=message):
            KeptAnswers(path, *arguments)
    with KeptAnswers(path, 5, None, "v1") as kept:  # whose players have no names
        assert kept.number == 32


def test_files_of_others_are_refused_and_left_as_they_are(tmp_path):
    text, table = tmp_path / "notes.txt", tmp_path / "table.db"
    text.write_text("not a database, " * 200)
    with closing(sqlite3.connect(table)) as own:
        own.execute("CREATE TABLE answers (mask, value)")
    for path, message in [
        (text, "is damaged, or not a file of kept answers"), (table, "is not a file of kept answers, but somebody's"),
        (tmp_path, "cannot be opened"), (tmp_path / "absent" / "kept.db", "cannot be opened"),
    ]:  # fmt: skip
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(BadInput, match=message) as caught:
            KeptAnswers(path, 5)
        assert str(path) in str(caught.value)
        assert before is None or path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [text, table]


def test_names_are_no_words_of_sqlite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept_file(":memory:")
    assert Path(":memory:").stat().st_size > 0
    with KeptAnswers(":memory:", 5) as kept:
        assert kept.number == 32


def test_damage_is_seen(tmp_path):
    path = kept_file(tmp_path / "kept.db")
    whole = path.read_bytes()
    with KeptAnswers(path, 5) as kept:
        right = {mask: float(value) for mask, value, _ in kept.read()}
    refused = 0
    for place in range(0, len(whole), 61):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            with KeptAnswers(path, 5) as kept:
                found = {mask: float(value) for mask, value, _ in kept.read()}
            assert found == right  # the byte was of no use
        except BadInput as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > 10
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="is damaged"):
        KeptAnswers(path, 5)


def test_a_file_that_cannot_be_written_to(tmp_path):
    kept = KeptAnswers(kept_file(tmp_path / "kept.db"), 5)
    kept.close()
    with pytest.raises(Stopped, match="an answer could not be written"):
        kept.add([b"00000"], np.ones(1), 1.0)


def test_processes_may_share_a_file(tmp_path):
    with KeptAnswers(tmp_path / "kept.db", 5) as one, KeptAnswers(tmp_path / "kept.db", 5) as other:
        MaskFunction(worth, 5, kept=one)(ALL[:20])
        assert MaskFunction(worth, 5, kept=other)(ALL[10:]).tolist() == worth(ALL[10:].numpy()).tolist()
    with KeptAnswers(tmp_path / "kept.db", 5) as kept:
        assert kept.number == 32


PROGRAM = """
import os
import sys
import numpy as np
import torch
from dasp.games.mask_function import KeptAnswers, MaskFunction

def function(masks):
    answer = masks @ 2.0 ** np.arange(10)
    os.write(1, b"%d\\n" % answer[0])
    return answer

masks = torch.cartesian_prod(*[torch.tensor([False, True])] * 10)
with KeptAnswers(sys.argv[1], 10, key="numbers") as kept:
    MaskFunction(function, 10, workers=int(sys.argv[2]), kept=kept)(masks)
"""


@pytest.mark.parametrize("workers", [1, 4])
def test_nothing_is_paid_twice_after_being_killed(tmp_path, workers):
    """But the calls that ran at that moment, whose answers nobody has seen."""
    path, paid = tmp_path / "kept.db", Counter()
    for stop in (70, 150, None):
        command = [sys.executable, "-c", PROGRAM, str(path), str(workers)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for lines, line in enumerate(process.stdout):
                paid[line.strip()] += 1
                if lines == stop:
                    process.kill()  # SIGKILL, wherever it is
        assert (process.returncode == 0) == (stop is None)
    with KeptAnswers(path, 10, key="numbers") as kept:
        found = {mask: float(value) for mask, value, _ in kept.read()}
    assert found == {f"{i:010b}"[::-1].encode(): float(i) for i in range(1024)}
    assert len(paid) == 1024
    assert 1024 <= sum(paid.values()) <= 1024 + 2 * workers
