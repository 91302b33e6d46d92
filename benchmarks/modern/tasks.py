"""Small tasks in which inputs interact: rows, what is to be learnt of them, a baseline and players."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

_ROWS = 4000
COLUMNS, CLASSES = 10, 3
WORDS, LENGTH, WIDTH = 20, 10, 16  # the words that there are, those of a sentence, and the numbers of a word's vector
NODES, FEATURES = 10, 3  # of a graph or a set
SIDE = 8  # of an image
_NOT, _VERY = 1, 2  # words that turn or double the next one
_GREY = 0.05  # a shade that no pixel has: else pixels that have it are no players


@dataclass(frozen=True)
class Task:
    """Rows with their labels (numbers of classes, or real values); the last fifth is not trained on."""

    x: Tensor
    y: Tensor
    baseline: Tensor  # one row
    mask: Tensor | None = None  # the players; None: every entry is one

    @property
    def outputs(self) -> int:
        """How many outputs a network needs."""
        return 1 if self.y.is_floating_point() else int(self.y.max()) + 1

    @property
    def cut(self) -> int:
        """How many rows are for training."""
        return len(self.x) * 4 // 5

    def rows(self, number: int) -> Tensor:
        """Rows that were not trained on."""
        return self.x[self.cut : self.cut + number]


def _standard(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0)


def _scores(x: Tensor) -> Tensor:
    """Three functions of ten columns: products, kinks and waves."""
    a, b, c, d, e, f, g, h, i, j = x.unbind(1)
    return torch.stack(
        [a * b + c.abs() + torch.relu(d + e) - f, torch.sin(2 * g) + h * a + d.minimum(i), e * f * 0.5 + j - c], 1
    )


@cache
def columns() -> Task:
    """A number, of ten columns."""
    x = torch.randn(_ROWS, COLUMNS, generator=torch.Generator().manual_seed(1))
    return Task(x, _standard(_scores(x).sum(1)), torch.zeros(1, COLUMNS))


@cache
def classes() -> Task:
    """One of three classes, of ten columns."""
    task = columns()
    return replace(task, y=_standard(_scores(task.x)).argmax(1))


@cache
def measurements() -> Task:
    """Ten columns that three hidden causes made; there is nothing to learn beside them."""
    generator = torch.Generator().manual_seed(2)
    causes, mixing = torch.randn(_ROWS, 3, generator=generator), torch.randn(3, COLUMNS, generator=generator)
    x = _standard(torch.tanh(causes @ mixing) + 0.1 * torch.randn(_ROWS, COLUMNS, generator=generator))
    return Task(x, torch.zeros(_ROWS), torch.zeros(1, COLUMNS))


@cache
def pairs() -> Task:
    """Two things of five columns each: do they have the same hidden cause?"""
    generator = torch.Generator().manual_seed(3)
    first, other = torch.randn(2, _ROWS, 2, generator=generator)
    same = torch.rand(_ROWS, 1, generator=generator) < 0.5
    mixing = torch.randn(2, 5, generator=generator)
    both = torch.cat([torch.tanh(first @ mixing), torch.tanh(torch.where(same, first, other) @ mixing)], 1)
    x = both + 0.1 * torch.randn(both.shape, generator=generator)
    return Task(x, same[:, 0].float() * 2 - 1, torch.zeros(1, COLUMNS))


@cache
def words() -> Task:
    """Sentences of words with a weight each; "not" turns the next one, "very" doubles it. Word 0 hides a word."""
    generator = torch.Generator().manual_seed(4)
    weights = torch.randn(WORDS, generator=generator)
    weights[: _VERY + 1] = 0
    x = torch.randint(1, WORDS, (_ROWS, LENGTH), generator=generator)
    modifiers = torch.rand(x.shape, generator=generator) < 0.3
    x = torch.where(modifiers, torch.randint(_NOT, _VERY + 1, x.shape, generator=generator), x)
    before = nn.functional.pad(x, (1, 0))[:, :-1]
    factor = torch.where(before == _NOT, -1.0, torch.where(before == _VERY, 2.0, 1.0))
    return Task(x, _standard((weights[x] * factor).sum(1)), torch.zeros(1, LENGTH, dtype=torch.int64))


@cache
def vectors() -> Task:
    """The same sentences, every word a vector; a hidden word is nought."""
    task = words()
    vocabulary = torch.randn(WORDS, WIDTH, generator=torch.Generator().manual_seed(5))
    place = torch.arange(LENGTH)[:, None].expand(LENGTH, WIDTH)
    return Task(vocabulary[task.x], task.y, torch.zeros(1, LENGTH, WIDTH), place.clone())


@cache
def sets() -> Task:
    """Points of which the spread and the middle count, in no order; a player is a point."""
    x = torch.randn(_ROWS, NODES, FEATURES, generator=torch.Generator().manual_seed(6))
    x = x + torch.randn(_ROWS, 1, FEATURES, generator=torch.Generator().manual_seed(7))
    a, b, c = x.unbind(2)
    y = a.std(1) * b.mean(1) + c.amax(1)
    player = torch.arange(NODES)[:, None].expand(NODES, FEATURES)
    return Task(x, _standard(y), torch.zeros(1, NODES, FEATURES), player.clone())


def ring() -> Tensor:
    """The neighbours of each node of a graph, with itself: a ring with some chords, of which the rows sum to 1."""
    node = torch.arange(NODES)
    near = (node[:, None] - node).remainder(NODES)
    joined = ((near <= 1) | (near == NODES - 1) | ((near == 4) & (node % 3 == 0))).float()
    return joined / joined.sum(1, keepdim=True)


@cache
def graph() -> Task:
    """Nodes of which each counts by what its neighbours are on average; a player is a node."""
    task = sets()
    a, b, c = (ring() @ task.x).unbind(2)
    return replace(task, y=_standard((torch.tanh(2 * a) * b + 2 * torch.relu(c)).sum(1)))


def _blocks(down: int, across: int) -> Tensor:
    place = torch.arange(SIDE)
    return ((place * down // SIDE)[:, None] * across + place * across // SIDE)[None]


@cache
def pixels() -> Task:
    """Handwritten digits of 8×8 pixels, a player each."""
    data = load_digits()
    x = torch.tensor(data.images).float().unsqueeze(1) / 8 - 1
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(8))
    return Task(x[order], torch.tensor(data.target)[order].long(), torch.full((1, 1, SIDE, SIDE), _GREY))


@cache
def blocks() -> Task:
    """The same digits with twelve players: three rows of four blocks."""
    return replace(pixels(), mask=_blocks(3, 4))


@cache
def segments() -> Task:
    """Which pixels are of the ink's outer edge? With the players of `blocks`."""
    task = blocks()
    ink = (task.x > 0).float()
    edge = nn.functional.max_pool2d(ink, 3, 1, 1) - ink
    return replace(task, y=edge[:, 0])


def places(length: int, width: int) -> Tensor:
    """Sines and cosines that tell where in a sequence something is."""
    angle = torch.arange(length)[:, None] / 50 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1)[:, :width] / math.sqrt(2)
