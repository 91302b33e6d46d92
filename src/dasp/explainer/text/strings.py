"""Texts of a function that takes texts: what is absent is left out of the string, or replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from dasp.errors import BadInput
from dasp.explainer.text.pieces import Division, divided, starts_of, unspaced

__all__ = ["Strings", "absent_of_strings"]


def absent_of_strings(model: Any, players: Division, absent: str | None, output: Any) -> str:
    """What is in the place of an absent piece; what needs a tokenizer is refused."""
    if isinstance(model, nn.Module) and hasattr(model, "config"):
        raise BadInput("the model takes tokens: give its tokenizer")
    if players == "token":
        raise BadInput("players='token' needs a tokenizer: choose 'word' or 'sentence'")
    if absent in ("mask", "pad"):
        raise BadInput(f"absent={absent!r} needs a tokenizer: choose 'drop', or a text such as '…'")
    if output is not None:
        raise BadInput("output is for models of tokens: let the function return what is to be explained")
    return absent or "drop"


class Strings:
    """A text, or a pair of texts, of which pieces may be absent.

    >>> text = Strings(("To be, or not",), "word", absent="…")
    >>> text.pieces, text.without([True, False, True, True])
    (['To ', 'be, ', 'or ', 'not'], 'To … or not')
    """

    def __init__(self, texts: Sequence[str], division: Division, absent: str | None) -> None:
        self.absent = absent  # None: left out
        self._each = [divided(text, starts_of(text, division)) for text in texts]
        self.pieces: list[str] = []
        self.players: list[int] = []
        for i, pieces in enumerate(self._each):
            self.pieces += ["\n"] * (i > 0)  # between the texts of a pair
            for piece in pieces:
                self.players += [len(self.pieces)] * bool(piece.strip())
                self.pieces.append(piece)

    def without(self, present: Sequence[bool]) -> str | tuple[str, ...]:
        """The text, or the pair of texts, with only these players."""
        there = iter(present)
        texts = []
        for pieces in self._each:
            own = [not piece.strip() or next(there) for piece in pieces]
            texts.append(unspaced(pieces, own) if self.absent is None else self._replaced(pieces, own))
        return texts[0] if len(texts) == 1 else tuple(texts)

    def _replaced(self, pieces: list[str], present: list[bool]) -> str:
        return "".join(
            piece if there else piece.replace(piece.strip(), str(self.absent), 1)
            for piece, there in zip(pieces, present, strict=True)
        )

    def length(self, written: str | tuple[str, ...]) -> int:
        """Characters."""
        return len(written) if isinstance(written, str) else sum(map(len, written))
