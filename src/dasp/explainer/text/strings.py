"""Texts for a function that takes texts: an absent piece is left out of the string, or replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from dasp.errors import BadInput
from dasp.explainer.text.tokens import Division, pieces_from, starts_of

__all__ = ["Strings", "baselines_of_strings"]


def baselines_of_strings(model: Any, players: Division, baselines: str | None, output: Any) -> str:
    """Return what is in the place of an absent piece; refuse what needs a tokenizer."""
    if isinstance(model, nn.Module) and hasattr(model, "config"):
        raise BadInput("the model takes tokens: give its tokenizer")
    if players == "token":
        raise BadInput("players='token' needs a tokenizer: choose 'word' or 'sentence'")
    if baselines in ("mask", "pad"):
        raise BadInput(f"baselines={baselines!r} needs a tokenizer: choose 'drop', or a text such as '…'")
    if output is not None:
        raise BadInput("output is for models of tokens: let the function return what is to be explained")
    return baselines or "drop"


class Strings:
    """A text, or a pair of texts, of which pieces may be absent: left out, or replaced by the text `baseline`.

    `pieces` are all pieces, and `players` the places of those that are players.

    >>> text = Strings(("To be, or not",), "word", baseline="…")
    >>> text.pieces, text.without([True, False, True, True])
    (['To ', 'be, ', 'or ', 'not'], 'To … or not')
    """

    def __init__(self, texts: Sequence[str], division: Division, baseline: str | None) -> None:
        self.baseline = baseline  # None: left out
        self._each = [pieces_from(text, starts_of(text, division)) for text in texts]
        self.pieces: list[str] = []
        self.players: list[int] = []
        for i, pieces in enumerate(self._each):
            self.pieces += ["\n"] * (i > 0)  # between the texts of a pair
            for piece in pieces:
                self.players += [len(self.pieces)] * bool(piece.strip())
                self.pieces.append(piece)

    def without(self, present: Sequence[bool]) -> str | tuple[str, ...]:
        """Return the text, or the pair of texts, with only these players."""
        there = iter(present)
        texts = []
        for pieces in self._each:
            own = [not piece.strip() or next(there) for piece in pieces]
            texts.append(_left_of(pieces, own) if self.baseline is None else self._replaced(pieces, own))
        return texts[0] if len(texts) == 1 else tuple(texts)

    def _replaced(self, pieces: list[str], present: list[bool]) -> str:
        return "".join(
            piece if there else piece.replace(piece.strip(), str(self.baseline), 1)
            for piece, there in zip(pieces, present, strict=True)
        )

    def length(self, written: str | tuple[str, ...]) -> int:
        """Return the number of characters."""
        return len(written) if isinstance(written, str) else sum(map(len, written))


def _left_of(pieces: Sequence[str], present: Sequence[bool]) -> str:
    """Return the pieces that are present, one behind the other, without white space where one is missing at the end.

    >>> _left_of(["To ", "be ", "or"], [True, True, False])
    'To be'
    """
    text = "".join(piece for piece, there in zip(pieces, present, strict=True) if there)
    return text if not present or present[-1] else text.rstrip()
