"""Texts in pieces, and what a model is given where some pieces are absent: tokens, or strings.

**Pieces** are words, sentences, or what a function makes of a text. Concatenated, they are the text. White space
belongs to the piece before it; at the very beginning, to the first one. A word is what stands between white space, with
its punctuation, so that "don't," is one; of scripts that write no spaces, a word is a character. A sentence ends at .,
!, ? or … (and closing quotes) with white space behind, at a full stop of such scripts, or at the end of a line. Whoever
knows better ("Dr. Smith") gives a function from a text to its pieces.

**Tokens** belong to the piece in which their first character is that is no white space. A piece whose characters are
all in a token of the piece before is part of that piece. So are tokens of which several make one character (an emoji,
byte by byte). Special tokens belong to nobody: they are always there, also where the text itself has them (a mask to be
filled). What the model never sees, as the text is too long, is a piece without a player.

Where absent pieces are **dropped**, they are removed from the text, and tokens are made of what is left of it, as if it
had been written so: a word has other tokens at the beginning of a text, or behind a space that is gone.

**Strings** are for a function that takes texts: an absent piece is left out of the string, or replaced.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dasp.errors import BadInput, line_of

__all__ = [
    "Division", "RewrittenTokens", "Strings", "TokenRow", "Tokens", "Vocabulary", "baselines_of_strings", "batch_of",
    "joined", "pieces_from", "starts_of", "text_in_tokens",
]  # fmt: skip

log = logging.getLogger("dasp")

Division = str | Callable[[str], Sequence[str]]
"""The way to divide a text: "word", "sentence", "token", or a function from a text to its pieces."""

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Japanese kana, Chinese characters
_WORD = re.compile(rf"[{_UNSPACED}][^\w\s]*|[^\s{_UNSPACED}]+")
_END_OF_SENTENCE = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*|\n\s*")
_WAYS = ("mask", "pad", "drop")
_NOBODY = -1


def starts_of(text: str, division: Division) -> list[int]:
    """Return where the pieces of a text begin, the first at 0; an empty text is one piece.

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
        starts = _starts_of_given(text, division(text))
    return [0, *starts[1:]]


def pieces_from(text: str, starts: Sequence[int]) -> list[str]:
    """Return the pieces of a text that begin at these places.

    >>> pieces_from(" To be", [0, 4])
    [' To ', 'be']
    """
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _starts_of_given(text: str, pieces: Sequence[str]) -> list[int]:
    """Return where pieces, given in their order, begin in the text; only white space may be between them."""
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


class TokenRow(NamedTuple):
    """The tokens of one text, by the names that models have for them."""

    input_ids: tuple[int, ...] = ()
    attention_mask: tuple[int, ...] = ()
    token_type_ids: tuple[int, ...] = ()  # none where the tokenizer gives none
    position_ids: tuple[int, ...] = ()  # none where the model counts by place

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.input_ids)


def joined(rows: Iterable[TokenRow]) -> TokenRow:
    """Return rows one behind the other.

    >>> joined([TokenRow((1, 2), (1, 1)), TokenRow((3,), (0,))])
    TokenRow(input_ids=(1, 2, 3), attention_mask=(1, 1, 0), token_type_ids=(), position_ids=())
    """
    columns = zip(*rows, strict=True)
    return TokenRow(*(tuple(chain.from_iterable(column)) for column in columns))


def batch_of(rows: Sequence[TokenRow], padding: TokenRow) -> dict[str, Tensor]:
    """Return rows as tensors, with `padding` (one token) behind the shorter ones.

    >>> batch_of([TokenRow((1, 2), (1, 1)), TokenRow((3,), (1,))], TokenRow((0,), (0,)))["attention_mask"]
    tensor([[1, 1],
            [1, 0]])
    """
    longest = max(row.tokens for row in rows)
    return {
        name: torch.tensor([column + filler * (longest - len(column)) for column in columns])
        for name, columns, filler in zip(TokenRow._fields, zip(*rows, strict=True), padding, strict=True)
        if any(columns)
    }


class Vocabulary:
    """A tokenizer beside the model that it is for: which tokens stand for absent ones, and how long a text may be.

    Args:
        tokenizer: a fast one of Hugging Face's.
        model: takes `input_ids` and `attention_mask`.
        baselines: what is in the place of an absent piece: "mask", "pad", "drop", or a text.
    """

    def __init__(self, tokenizer: Any, model: nn.Module, baselines: str | None) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise BadInput(
                "the tokenizer does not tell where its tokens are in the text: take a fast one, as AutoTokenizer does"
            )
        self.tokenizer = tokenizer
        self.baselines = baselines or ("drop" if tokenizer.mask_token_id is None else "mask")
        if self.baselines == "mask" and tokenizer.mask_token_id is None:
            raise BadInput("the tokenizer has no mask token: choose baselines='drop', 'pad' or a text such as '…'")
        self.replacement = () if self.baselines in _WAYS else self.plain(self.baselines)
        config = getattr(model, "config", None)
        padding = (getattr(config, "pad_token_id", None), tokenizer.pad_token_id, tokenizer.eos_token_id)
        self.padding_id = _first(*padding) or 0
        # Untrained additions of ours would be worse than the token that models have seen before every text.
        self.beginning = _first(tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.cls_token_id)
        self.special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        self.positions, first = _positions(model)
        limit = getattr(config, "max_position_embeddings", None) or 0
        # XLNet, whose positions are relative, says −1.
        self.limit = min(tokenizer.model_max_length, limit - first if limit > 0 else tokenizer.model_max_length)

    def encoded(self, *texts: str | list[str], **options: Any) -> Any:
        """Return what the tokenizer makes of a text, or of a pair of texts; or of lists of them."""
        try:
            return self.tokenizer(*texts, verbose=False, **options)
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of Rust, such as of an expression that is looked for without end
            raise BadInput(f"the tokenizer failed at {line_of(repr(texts[0][:40]))}: {line_of(error)}") from error

    def plain(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text, without special ones around them."""
        return tuple(self.encoded(text, add_special_tokens=False)["input_ids"])

    def instead(self, row: TokenRow, *, again: bool) -> TokenRow:
        """Return what the model is given instead of the tokens of an absent piece; if some of them came before
        (`again`), the replacing text did, too."""
        if self.baselines == "drop":
            return TokenRow()
        if self.baselines == "mask":
            return row._replace(input_ids=(int(self.tokenizer.mask_token_id),) * row.tokens)
        if self.baselines == "pad":
            return row._replace(input_ids=(self.padding_id,) * row.tokens, attention_mask=(0,) * row.tokens)
        number = 0 if again else len(self.replacement)
        return TokenRow(self.replacement[:number], (1,) * number, row.token_type_ids[:1] * number)

    def begun(self, row: TokenRow) -> TokenRow:
        """Return a row of which the model sees something: where nothing is left, the token that texts begin with."""
        if any(row.attention_mask):
            return row
        if self.beginning is None:
            raise BadInput(
                f"nothing is left of a text with baselines={self.baselines!r}, and the tokenizer knows no token that "
                "begins one: set its bos_token, or choose baselines='mask' or a text"
            )
        return row._replace(input_ids=(self.beginning, *row.input_ids[1:]), attention_mask=(1, *row.attention_mask[1:]))


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


def _positions(model: nn.Module) -> tuple[Callable[[tuple[int, ...]], tuple[int, ...]], int]:
    """Return a function that gives tokens their positions, and the number of the first: as a model has them that counts
    tokens which are no padding (as RoBERTa does), or else in their order. A model is given positions where tokens are
    masked out, as some models (OPT) would count only the others."""
    for module in model.modules():
        count = getattr(module, "create_position_ids_from_input_ids", None)
        padding = getattr(module, "padding_idx", None)
        if count is not None and isinstance(padding, int):
            return partial(_counted, count, padding), padding + 1
    return lambda ids: tuple(range(len(ids))), 0


def _counted(count: Callable[..., Tensor], padding: int, ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(count(torch.tensor([ids]), padding)[0].tolist())


@dataclass(frozen=True)
class _Run:
    """Tokens side by side that come and go together: what is there with their player, and without."""

    player: int
    on: TokenRow
    off: TokenRow


class Tokens:
    """A text, or a pair of texts, in tokens, of which pieces may be absent; the tokens `behind` them are always there.

    `pieces` are all pieces, and `players` the places of those that are players.
    """

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
        positions = vocabulary.positions(ids + tail) if vocabulary.baselines == "pad" else ()
        row = TokenRow(ids, (1,) * number, types, positions[:number])
        self._encoding, self._row = encoded, row
        self._runs = self._in_runs(row, [player[place] for place in places])
        self._behind = TokenRow(tail, (1,) * len(tail), types[-1:] * len(tail), positions[number:])
        longest = sum(max(run.on.tokens, run.off.tokens) for run in self._runs) + len(tail)
        if longest > vocabulary.limit:
            raise BadInput(
                f"the text has {number} tokens, and up to {longest} with {vocabulary.baselines!r} for what is absent, "
                f"but the model takes {vocabulary.limit}: choose a shorter one, or baselines='drop'"
            )

    def without(self, present: Sequence[bool]) -> TokenRow:
        """Return the row of tokens with only these players."""
        there = [*present, True]  # nobody's are always there
        row = self.vocabulary.begun(
            joined([TokenRow(), *(run.on if there[run.player] else run.off for run in self._runs)])
        )
        return joined([row, self._behind])

    def length(self, written: TokenRow) -> int:
        """Return the number of tokens of a row."""
        return written.tokens

    def _encoded(self, texts: Sequence[str], reserved: int) -> Any:
        options = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        encoded, most = self.vocabulary.encoded, self.vocabulary.limit - reserved
        whole = encoded(*texts, **options)
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
        return encoded(*texts, truncation=True, max_length=most, **options)

    def _places(
        self, texts: Sequence[str], division: Division, encoded: Any, number: int
    ) -> tuple[list[int], list[str]]:
        """Return for every token the place of its piece, or nobody's; and the pieces."""
        offsets, texts_of = encoded["offset_mapping"], encoded.sequence_ids(0)
        places, pieces = [_NOBODY] * number, []
        for i, text in enumerate(texts):
            own = [k for k in range(number) if texts_of[k] == i]
            pieces += ["\n"] * (i > 0)  # between the texts of a pair
            spans = [offsets[k] for k in own]
            starts = _starts_of_tokens(text, spans) if division == "token" else starts_of(text, division)
            starts = _without_hidden(starts, spans, text)
            for k in own:
                if encoded["input_ids"][k] not in self.vocabulary.special:
                    places[k] = len(pieces) + _piece(starts, offsets[k], text)
            pieces += pieces_from(text, starts)
        return places, pieces

    def _in_runs(self, row: TokenRow, players: list[int]) -> list[_Run]:
        """Return the row in runs of tokens that come and go together."""
        runs: list[_Run] = []
        seen: set[int] = set()
        start = 0
        for end in range(1, len(players) + 1):
            if end < len(players) and players[end] == players[start]:
                continue
            on, player = TokenRow(*(column[start:end] for column in row)), players[start]
            off = on if player == _NOBODY else self.vocabulary.instead(on, again=player in seen)
            runs.append(_Run(player, on, off))
            seen.add(player)
            start = end
        return runs


@dataclass(frozen=True)
class _Piece:
    """A piece of a text: what it says, what of it stays where its player is absent, and who that is."""

    whole: str
    special: str  # tokens in it that are always there
    player: int  # or nobody


class RewrittenTokens(Tokens):
    """A text, or a pair of texts, whose absent pieces are removed before tokens are made of what is left. What the
    model never sees of a text that is too long is not seen either where there would be room for it."""

    def __init__(
        self, texts: Sequence[str], division: Division, vocabulary: Vocabulary, behind: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(texts, division, vocabulary, behind)
        self._prompt = behind is not None
        player = {place: i for i, place in enumerate(self.players)}
        offsets, texts_of = self._encoding["offset_mapping"], self._encoding.sequence_ids(0)
        place = 0
        self._each: list[list[_Piece]] = []
        for i, text in enumerate(texts):
            own = [k for k in range(len(texts_of)) if texts_of[k] == i]
            seen = max((offsets[k][1] for k in own), default=0)
            seen = len(text) if not text[seen:].strip() else seen
            special = [offsets[k] for k in own if self._encoding["input_ids"][k] in vocabulary.special]
            pieces: list[_Piece] = []
            place, start = place + (i > 0), 0
            while start < len(text) or not pieces:
                end = start + len(self.pieces[place])
                kept = "".join(text[a:b] for a, b in special if start <= a < end)
                space = " " * (bool(kept) and text[start:end][-1:].isspace())
                pieces.append(_Piece(text[start : min(end, seen)], kept + space, player.get(place, _NOBODY)))
                place, start = place + 1, end
            self._each.append(pieces)

    def without(self, present: Sequence[bool]) -> TokenRow:
        """Return the row of tokens of the text with only these players."""
        if all(present):
            return super().without(present)
        there = [*present, True]  # nobody's are always there
        texts = []
        for pieces in self._each:
            kept = [
                (piece.whole, True) if there[piece.player] else (piece.special, bool(piece.special)) for piece in pieces
            ]
            texts.append(_left_of(*zip(*kept, strict=True)))
        most = self.vocabulary.limit - self._behind.tokens
        ids, types, special = self._encoded_again(texts)
        if len(ids) > most:  # though there is less of it
            ids, types, special = self._encoded_again(texts, truncation=True, max_length=most)
        number = len(ids)
        while self._prompt and number and special[number - 1]:
            number -= 1
        row = TokenRow(ids[:number], (1,) * number, types[:number] if self._row.token_type_ids else ())
        return joined([self.vocabulary.begun(row), self._behind])

    def _encoded_again(self, texts: Sequence[str], **options: Any) -> list[tuple[int, ...]]:
        """Return the tokens, their types and which are special; as of several texts, since an empty second text of a
        single pair would be taken for none."""
        several = ([text] for text in texts)
        encoded = self.vocabulary.encoded(*several, return_special_tokens_mask=True, **options)
        names = "input_ids", "token_type_ids", "special_tokens_mask"
        return [tuple(encoded[name][0]) if name in encoded else () for name in names]


def text_in_tokens(
    texts: Sequence[str], division: Division, vocabulary: Vocabulary, behind: tuple[int, ...] | None = None
) -> Tokens:
    """Return a text whose absent pieces are what the vocabulary says."""
    return (RewrittenTokens if vocabulary.baselines == "drop" else Tokens)(texts, division, vocabulary, behind)


def _starts_of_tokens(text: str, spans: list[tuple[int, int]]) -> list[int]:
    """Return where tokens begin that do not overlap with those before."""
    starts, end = [], 0
    for first, last in spans:
        if last > first >= end:
            starts.append(first)
        end = max(end, last)
    if not starts or text[: starts[0]].strip():  # which was cut off
        return [0, *starts]
    return [0, *starts[1:]]


def _without_hidden(starts: list[int], spans: list[tuple[int, int]], text: str) -> list[int]:
    """Return starts without those of pieces that are inside of a token of the piece before."""
    owners = {_piece(starts, span, text) for span in spans}
    covered = [max((last for first, last in spans if first < start), default=0) for start in starts]
    return [start for i, start in enumerate(starts) if i == 0 or i in owners or covered[i] <= start]


def _piece(starts: list[int], span: tuple[int, int], text: str) -> int:
    """Return the number of the piece that a token belongs to."""
    first, last = span
    inside = text[first:last]
    return bisect_right(starts, first + len(inside) - len(inside.lstrip()) if inside.strip() else first) - 1


def baselines_of_strings(model: Any, players: Division, baselines: str | None, output: Any) -> str:
    """Return what is in the place of an absent piece; refuse what needs a tokenizer."""
    if isinstance(model, nn.Module) and hasattr(model, "config"):
        raise BadInput("the model takes tokens: give its tokenizer")
    if players == "token":
        raise BadInput("players='token' needs a tokenizer: choose 'word' or 'sentence'")
    if baselines in ("mask", "pad"):
        raise BadInput(f"baselines={baselines!r} needs a tokenizer: choose 'drop', or a text such as '…'")
    if output is not None and not callable(output):
        raise BadInput(f"output={output!r} is for models of tokens: let the function return what is to be explained")
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
