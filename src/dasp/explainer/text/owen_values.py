"""Owen values: a long text by its sentences first, and by the words within the important ones.

A text of hundreds of words has more coalitions than anybody can evaluate, and few words have a value that is not lost
in the errors of all others. Its m sentences are few: they are explained first, by their Shapley values. Then the n
words of a sentence play for what it is worth, while every other sentence is there or not as a whole:

    φ_i = Σ_R Σ_S w(|R|, m) w(|S|, n) (v(R ∪ S ∪ {i}) − v(R ∪ S)),      w(s, n) = s! (n − s − 1)! / n!

over all sets R of the other sentences, and S of the other words of the same sentence. This is Owen's value of a game
whose players have formed unions. It is the Shapley value of the word in the game u(S) = Σ_R w(|R|, m) v(R ∪ S), a mean
over contexts R, so that the words of a sentence sum to the value of the sentence.

Where there are too many contexts, some are drawn: as many of each size, and each with its complement, as errors of the
two go in opposite directions. The game u and those of every context are explained together, as outputs of one game, by
the same coalitions of words. How far pairs of contexts differ gives the error that comes from their choice; a word for
which they hardly differ has a part of that of the average word, as other contexts may show more. What the words then
miss of the value of their sentence is divided among them in proportion to the variances of their errors. If that is
more than chance explains, there are effects that no drawn context shows, and nobody knows whose they are: they make
error bars wider.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import torch
from torch import Tensor

from dasp.explainer.text.tokens import Division, starts_of
from dasp.formatting import INTERVAL, interval_of

_ROUNDING = 1e-12  # of the largest value, which is no error that anybody wants to know

_MORE = 2  # pairs of contexts, in which a word is like the average one of its sentence
_EXPECTED = 2.5  # standard deviations that words may miss the value of their sentence by

__all__ = ["Contexts", "WordsOfSentence", "owen_estimate", "sentence_game", "sentences_of"]


def sentences_of(pieces: Sequence[str], texts: Sequence[str], division: Division) -> list[int]:
    """Return the number of the sentence of each piece of a text, or of a pair of texts, between which there is a piece
    of their own; a piece belongs to the sentence in which its first character is that is no white space.

    >>> sentences_of(["A ", "cat. ", "A ", "dog."], ["A cat. A dog."], "sentence")
    [0, 0, 1, 1]
    """
    found: list[int] = []
    rest = iter(pieces)
    before = 0
    for number, text in enumerate(texts):
        starts, place = starts_of(text, division), 0
        if number:
            next(rest)
            found.append(before - 1)
        for piece in rest:
            first = place + len(piece) - len(piece.lstrip()) if piece.strip() else place
            found.append(before + bisect_right(starts, first) - 1)
            place += len(piece)
            if place >= len(text):
                break
        before += len(starts)
    return found


def sentence_game(game: Callable[[Tensor], Tensor], sentences: Tensor, number: int) -> Callable[[Tensor], Tensor]:
    """Return the game of sentences: masks (rows, sentences) → values, by a game of words whose sentences are known."""

    def of_sentences(masks: Tensor) -> Tensor:
        assert masks.shape[1] == number
        return game((masks > 0)[:, sentences])

    return of_sentences


@dataclass(frozen=True)
class Contexts:
    """Sets of the other sentences, beside which the words of one are explained."""

    masks: Tensor  # (contexts, sentences), where the own sentence is absent
    weights: Tensor  # (contexts,), which sum to 1
    drawn: bool  # True if they are some of all, in pairs of neighbours that are complements

    @staticmethod
    def of(sentences: int, own: int, most: int, seed: int) -> Contexts:
        """Return all of them if there are no more than `most`, else an even number that are drawn.

        >>> Contexts.of(3, own=1, most=4, seed=0).masks.int().tolist()
        [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]
        """
        others = [sentence for sentence in range(sentences) if sentence != own]
        count = len(others)
        if 2**count <= most:
            bits = torch.arange(2**count)[:, None] >> torch.arange(count - 1, -1, -1) & 1
            sizes = bits.sum(1).tolist()
            weights = torch.tensor([1 / (sentences * comb(count, size)) for size in sizes], dtype=torch.float64)
            return Contexts(_placed(bits.bool(), others, sentences), weights, drawn=False)
        generator = torch.Generator().manual_seed(seed)
        pairs = max(2, most // 2)
        rows = []
        for place in (torch.arange(pairs) + torch.rand(pairs, generator=generator)) / (2 * pairs):
            chosen = torch.zeros(count, dtype=torch.bool)
            chosen[torch.randperm(count, generator=generator)[: int(place * sentences)]] = True
            rows += [chosen, ~chosen]
        weights = torch.full((2 * pairs,), 0.5 / pairs, dtype=torch.float64)
        return Contexts(_placed(torch.stack(rows), others, sentences), weights, drawn=True)


def _placed(masks: Tensor, others: list[int], sentences: int) -> Tensor:
    result = torch.zeros(len(masks), sentences, dtype=torch.bool)
    result[:, others] = masks
    return result


class WordsOfSentence:
    """The game of the words of one sentence: masks (rows, words) → (rows, 1 + contexts), the mean over all contexts
    first, and then the value in each of them."""

    def __init__(self, game: Callable[[Tensor], Tensor], sentences: Tensor, own: int, contexts: Contexts) -> None:
        self.game, self.contexts = game, contexts
        self.words = torch.nonzero(sentences == own)[:, 0]
        self.present = contexts.masks[:, sentences]  # (contexts, all words)

    def __call__(self, masks: Tensor) -> Tensor:
        """Return the values of coalitions of words."""
        whole = self.present.expand(len(masks), *self.present.shape).clone()
        whole[:, :, self.words] = (masks > 0)[:, None]
        values = self.game(whole.flatten(0, 1)).reshape(len(masks), -1).double()
        return torch.cat([(values @ self.contexts.weights)[:, None], values], 1)


def owen_estimate(
    values: Tensor, std: Tensor, sentence: tuple[float, float], contexts: Contexts
) -> tuple[Tensor, Tensor]:
    """Return the values of the words of a sentence, which sum to its own, and their standard deviations.

    Args:
        values: of the words in the mean over contexts and in each of them, (1 + contexts, words).
        std: the standard deviations of these.
        sentence: its value, and the standard deviation of it.
        contexts: over which it was averaged.
    """
    mean, each = values[0], values[1:]
    pairs = each.reshape(-1, 2, each.shape[1]).mean(1) if contexts.drawn else each[:0]
    between = _moderated(pairs.var(0), len(pairs)) / len(pairs) if contexts.drawn else torch.zeros_like(mean)
    share = between + std[0].square()
    share = share / share.sum() if bool(share.sum() > 0) else torch.full_like(mean, 1 / len(mean))
    missed = sentence[0] - mean.sum()
    found = mean + share * missed
    variance = std[0].square() + (share * sentence[1]).square()
    if contexts.drawn:  # of what is left when all sums are the same, with few degrees of freedom
        left = pairs - share * pairs.sum(1, keepdim=True)
        variance = (
            variance + _moderated(left.var(0), len(pairs)) / len(pairs) * (interval_of(len(pairs)) / INTERVAL) ** 2
        )
        expected = pairs.sum(1).var() / len(pairs) + sentence[1] ** 2
        unseen = (missed**2 - _EXPECTED**2 * expected).clamp(min=0)  # effects of contexts that were not drawn
        variance = variance + share * (1 - share) * unseen
    rounding = _ROUNDING * float(each.abs().max())
    return found, torch.where(variance.sqrt() <= rounding, 0, variance.sqrt())


def _moderated(variances: Tensor, pairs: int) -> Tensor:
    """Return variances over pairs of contexts as if some more pairs had that of the average word: a word that was the
    same in all of them may have effects that none of them shows.

    >>> _moderated(torch.tensor([0.0, 2.0]), 4)
    tensor([0.4000, 1.6000])
    """
    return ((pairs - 1) * variances + _MORE * variances.mean()) / (pairs - 1 + _MORE)
