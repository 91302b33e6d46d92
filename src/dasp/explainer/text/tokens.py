"""Texts of a model that takes tokens: which of them belong to which piece, and what is there without it.

A token belongs to the piece in which its first character is that is no white space. A piece whose characters are all in
a token of the piece before is part of that piece. So are tokens of which several make one character (an emoji, byte by
byte). Special tokens belong to nobody: they are always there, also where the text itself has them (a mask to be
filled). What the model never sees, as the text is too long, is a piece without a player.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dasp.errors import BadInput
from dasp.explainer.text.pieces import Division, divided, starts_of
from dasp.explainer.text.rows import Row, joined
from dasp.explainer.text.vocabulary import Vocabulary

__all__ = ["Tokens"]

log = logging.getLogger("dasp")

_NOBODY = -1


@dataclass(frozen=True)
class _Run:
    """Tokens side by side that come and go together."""

    player: int
    on: Row
    off: Row


class Tokens:
    """A text, or a pair of texts, of which pieces may be absent; `behind` them always come these tokens."""

    def __init__(
        self, texts: Sequence[str], division: Division, vocabulary: Vocabulary, behind: tuple[int, ...] | None = None
    ) -> None:
        self.vocabulary = vocabulary
        encoded = self._encoded(texts, len(behind or ()))
        number = len(encoded["input_ids"])
        if behind is not None:  # what ends a text does not come in the middle of one
            while number and encoded["special_tokens_mask"][number - 1]:
                number -= 1
        ids = tuple(encoded["input_ids"][:number])
        places, self.pieces = self._places(texts, division, encoded, number)
        self.players = sorted({place for place in places if place != _NOBODY})
        player = {place: i for i, place in enumerate(self.players)} | {_NOBODY: _NOBODY}
        types = tuple(encoded.get("token_type_ids", ())[:number])
        tail = behind or ()
        positions = vocabulary.positions(ids + tail) if vocabulary.absent == "pad" else ()
        row = Row(ids, (1,) * number, types, positions[:number])
        self._runs = self._divided(row, [player[place] for place in places])
        self._behind = Row(tail, (1,) * len(tail), types[-1:] * len(tail), positions[number:])
        longest = sum(max(run.on.tokens, run.off.tokens) for run in self._runs) + len(tail)
        if longest > vocabulary.limit:
            raise BadInput(
                f"the text has {number} tokens, and up to {longest} with {vocabulary.absent!r} for what is absent, but "
                f"the model takes {vocabulary.limit}: choose a shorter one, or absent='drop'"
            )

    def without(self, present: Sequence[bool]) -> Row:
        """The row of tokens with only these players."""
        there = [*present, True]  # nobody's are always there
        row = self.vocabulary.begun(joined([Row(), *(run.on if there[run.player] else run.off for run in self._runs)]))
        return joined([row, self._behind])

    def length(self, written: Row) -> int:
        """Tokens."""
        return written.tokens

    def _encoded(self, texts: Sequence[str], reserved: int) -> Any:
        options = {"return_offsets_mapping": True, "return_special_tokens_mask": True, "verbose": False}
        tokenizer, most = self.vocabulary.tokenizer, self.vocabulary.limit - reserved
        whole = tokenizer(*texts, **options)
        number = len(whole["input_ids"])
        if number <= most:
            return whole
        if reserved:
            raise BadInput(
                f"prompt and continuation have {number + reserved} tokens, and the model takes {most + reserved}"
            )
        log.warning(
            "a text has %d tokens, and the model takes %d: what is beyond is cut off, and has no part in the values",
            number, most,
        )  # fmt: skip
        return tokenizer(*texts, truncation=True, max_length=most, **options)

    def _places(
        self, texts: Sequence[str], division: Division, encoded: Any, number: int
    ) -> tuple[list[int], list[str]]:
        """For every token the place of its piece, or nobody's; and the pieces."""
        offsets, texts_of = encoded["offset_mapping"], encoded.sequence_ids(0)
        places, pieces = [_NOBODY] * number, []
        for i, text in enumerate(texts):
            own = [k for k in range(number) if texts_of[k] == i]
            pieces += ["\n"] * (i > 0)  # between the texts of a pair
            spans = [offsets[k] for k in own]
            starts = _starts_of_tokens(text, spans) if division == "token" else starts_of(text, division)
            starts = _seen(starts, spans, text)
            for k in own:
                if encoded["input_ids"][k] not in self.vocabulary.special:
                    places[k] = len(pieces) + _piece(starts, offsets[k], text)
            pieces += divided(text, starts)
        return places, pieces

    def _divided(self, row: Row, players: list[int]) -> list[_Run]:
        """The row in runs of tokens that come and go together."""
        runs: list[_Run] = []
        seen: set[int] = set()
        start = 0
        for end in range(1, len(players) + 1):
            if end < len(players) and players[end] == players[start]:
                continue
            on, player = Row(*(column[start:end] for column in row)), players[start]
            off = on if player == _NOBODY else self.vocabulary.instead(on, again=player in seen)
            runs.append(_Run(player, on, off))
            seen.add(player)
            start = end
        return runs


def _starts_of_tokens(text: str, spans: list[tuple[int, int]]) -> list[int]:
    """Where tokens begin that do not overlap with those before."""
    starts, end = [], 0
    for first, last in spans:
        if last > first >= end:
            starts.append(first)
        end = max(end, last)
    if not starts or text[: starts[0]].strip():  # which was cut off
        return [0, *starts]
    return [0, *starts[1:]]


def _seen(starts: list[int], spans: list[tuple[int, int]], text: str) -> list[int]:
    """Starts without those of pieces that are inside of a token of the piece before."""
    owners = {_piece(starts, span, text) for span in spans}
    covered = [max((last for first, last in spans if first < start), default=0) for start in starts]
    return [start for i, start in enumerate(starts) if i == 0 or i in owners or covered[i] <= start]


def _piece(starts: list[int], span: tuple[int, int], text: str) -> int:
    """Which piece a token belongs to."""
    first, last = span
    inside = text[first:last]
    return bisect_right(starts, first + len(inside) - len(inside.lstrip()) if inside.strip() else first) - 1
