"""A text in pieces: words, sentences, or as somebody divides it. Concatenated, the pieces are the text.

White space belongs to the piece before it; at the very beginning, to the first one. A word is what stands between white
space, with its punctuation, so that "don't," is one; of scripts that write no spaces, a word is a character. A sentence
ends at ., !, ? or … (and closing quotes) with white space behind, at a full stop of such scripts, or at the end of a
line. Whoever knows better ("Dr. Smith") gives a function from a text to its pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dasp.errors import BadInput

__all__ = ["divided", "starts_of", "unspaced"]

Division = str | Callable[[str], Sequence[str]]

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese kana, Chinese characters
_WORD = re.compile(rf"[{_UNSPACED}][^\w\s]*|[^\s{_UNSPACED}]+")
_END_OF_SENTENCE = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*|\n\s*")


def starts_of(text: str, division: Division) -> list[int]:
    """Where the pieces of a text begin, the first at 0; an empty text is one piece.

    >>> starts_of(" To be,  or not", "word"), starts_of('Yes. "No!" 3.5 is more.', "sentence")
    ([0, 4, 9, 12], [0, 5, 11])
    """
    if division == "word":
        starts = [match.start() for match in _WORD.finditer(text)]
    elif division == "sentence":
        starts = [0, *(match.end() for match in _END_OF_SENTENCE.finditer(text))]
        starts = [start for start in starts if text[start:].strip()]
    else:
        assert callable(division)
        starts = _found(text, division(text))
    return [0, *starts[1:]]


def divided(text: str, starts: Sequence[int]) -> list[str]:
    """The pieces that begin there.

    >>> divided(" To be", [0, 4])
    [' To ', 'be']
    """
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def unspaced(pieces: Sequence[str], present: Sequence[bool]) -> str:
    """Those of the pieces that are present, one behind the other, without white space where one is missing at the end.

    >>> unspaced(["To ", "be ", "or"], [True, True, False])
    'To be'
    """
    text = "".join(piece for piece, there in zip(pieces, present, strict=True) if there)
    return text if not present or present[-1] else text.rstrip()


def _found(text: str, pieces: Sequence[str]) -> list[int]:
    """Where pieces, given in their order, begin in the text; only white space may be between them."""
    if isinstance(pieces, str) or not all(isinstance(piece, str) for piece in pieces):
        raise BadInput("the pieces of a text are a list of strings")
    starts, end = [], 0
    for piece in pieces:
        start = text.find(piece, end)
        if not piece.strip() or start < 0 or text[end:start].strip():
            raise BadInput(f"the pieces of a text are all of it, in its order, and {piece!r} does not come next")
        starts.append(start)
        end = start + len(piece)
    if text[end:].strip():
        raise BadInput(f"the pieces of a text are all of it, and {text[end:].strip()[:40]!r} is in none of them")
    return starts
