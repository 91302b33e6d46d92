"""Texts by their sentences and by the words within these: Owen values, against their definition and in closed form."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
from small_language import bert_tokenizer, classifier

from dasp import TextExplainer
from dasp.errors import BadInput
from dasp.explainer.text.owen_values import Contexts, owen_estimate, sentences_of


def words_of(sizes):
    return [[f"s{sentence}w{word}" for word in range(size)] for sentence, size in enumerate(sizes)]


def text_of(sizes):
    return " ".join(" ".join(words) + "." for words in words_of(sizes))


class ProductsOfWords:
    """Sums of products of words that are there, whose Owen values are known: a product is divided evenly among its
    sentences, and what a sentence has of it among its words."""

    def __init__(self, sizes, seed, terms=60):
        generator = np.random.default_rng(seed)
        self.names = [name for words in words_of(sizes) for name in words]
        number = [sentence for sentence, size in enumerate(sizes) for _ in range(size)]
        several = [generator.choice(len(number), generator.integers(1, 4), replace=False) for _ in range(terms)]
        self.terms = [(members.tolist(), generator.normal()) for members in several]
        self.owen = dict.fromkeys(self.names, 0.0)
        for members, factor in self.terms:
            own = [number[word] for word in members]
            for word in members:
                self.owen[self.names[word]] += factor / len(set(own)) / own.count(number[word])
        self.asked = 0

    def __call__(self, texts):
        self.asked += len(texts)
        there = [{word.strip(".") for word in text.split()} for text in texts]
        return torch.tensor([sum(factor for members, factor in self.terms if all(self.names[i] in own for i in members))
                             for own in there], dtype=torch.float64)  # fmt: skip


def by_definition(function, sizes):
    """Owen values as means over the orders in which sentences, and words within them, may come."""
    words = words_of(sizes)
    found = {name: [] for own in words for name in own}
    inside = [list(permutations(own)) for own in words]
    known = {}

    def worth(there):
        if there not in known:
            left = [[word for word in own if word in there] for own in words]
            known[there] = function(" ".join(word for own in left for word in own))
        return known[there]

    for order in permutations(range(len(words))):
        for chosen in product(*inside):
            there = frozenset()
            for sentence in order:
                for word in chosen[sentence]:
                    found[word].append(worth(there | {word}) - worth(there))
                    there |= {word}
    return {name: np.mean(values) for name, values in found.items()}


@pytest.mark.parametrize("budget", [2048, 200])
def test_all_levels_are_exact_by_the_definition(budget):
    sizes = (3, 1, 3)

    def value(text):
        words = [word.strip(".") for word in text.split()]
        return len(words) ** 1.5 + 2 * ("s0w1 s0w2" in " ".join(words)) + ("s0w0" in words) * (words[-1:] == ["s2w2"])

    def function(texts):
        return torch.tensor([value(text) for text in texts], dtype=torch.float64)

    found = TextExplainer(function, max_evaluations=budget).hierarchy(text_of(sizes), divided=None)
    expected = by_definition(value, sizes)
    assert found.values == pytest.approx([expected[piece.strip().strip(".")] for piece in found.data], abs=1e-9)
    assert not found.error_std.any()
    assert found.sentences.values == pytest.approx([sum(found.values[:3]), found.values[3], sum(found.values[4:])])
    whole = TextExplainer(function, players="sentence")(text_of(sizes))
    assert found.sentences.values == pytest.approx(whole.values)
    assert list(found.sentences.data) == list(whole.data)
    assert found.base_values == 0
    assert found.reason == "of 3 sentences, 2 are divided into words"


def test_words_that_are_estimated_have_honest_error_bars():
    held, errors = [], {}
    for sizes, budget in (((5,) * 6, 2048), ((12,) * 8, 1500)):
        for seed in range(5):
            function = ProductsOfWords(sizes, seed)
            explainer = TextExplainer(function, max_evaluations=budget, seed=seed)
            found = explainer.hierarchy(text_of(sizes))
            assert function.asked <= budget + 30  # which see whether texts are evaluated each by itself
            names = [piece.strip().strip(".") for piece in found.data]
            words = [place for place, name in enumerate(names) if name in function.owen]
            assert len(words) == 3 * sizes[0]  # the three largest sentences
            error = found.values[words] - [function.owen[names[place]] for place in words]
            held += (np.abs(error) <= 1.96 * found.error_std[words] + 1e-9).tolist()
            errors.setdefault(budget, []).append(np.square(error).mean() / np.square(found.values[words]).mean())
            largest = np.sort(np.abs(found.sentences.values))[-3:]
            inside = np.array([found.values[own].sum() for own in np.split(np.array(words), 3)])
            assert np.sort(np.abs(inside)) == pytest.approx(largest)
            assert found.values.sum() + found.base_values == pytest.approx(function([text_of(sizes)]).item())
    assert 0.9 < np.mean(held) <= 1
    assert np.sqrt(np.mean(errors[2048])) < 0.1
    assert np.sqrt(np.mean(errors[1500])) < 0.3


def test_effects_that_no_drawn_context_shows_are_doubted():
    """The sentence has a value, and nobody knows whose it is."""
    contexts, nothing = Contexts.of(12, own=0, most=8, seed=0), torch.zeros(9, 5, dtype=torch.float64)
    values, std = owen_estimate(nothing, nothing, (1.0, 0.0), contexts)
    assert values.tolist() == pytest.approx([0.2] * 5)
    assert std.tolist() == pytest.approx([0.4] * 5)  # of who has all of it, by a die
    values, std = owen_estimate(nothing, nothing, (0.0, 0.0), contexts)
    assert not values.any()
    assert not std.any()


def test_a_word_that_is_the_same_in_all_drawn_contexts_is_doubted_if_others_are_not():
    """Eight contexts of 2,048 do not show all that a word may do."""
    contexts = Contexts.of(12, own=0, most=8, seed=0)
    values = torch.zeros(9, 2, dtype=torch.float64)
    values[1:, 0] = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
    values[0] = values[1:].mean(0)
    _, std = owen_estimate(values, torch.zeros_like(values), (0.5, 0.0), contexts)
    assert std[1] > 0


@pytest.fixture(scope="module")
def bert():
    tokenizer = bert_tokenizer()
    return classifier("bert", tokenizer), tokenizer


@pytest.mark.parametrize("absent", ["mask", "drop"])
def test_a_model_of_tokens(absent, bert):
    model, tokenizer = bert
    explainer = TextExplainer(model, tokenizer, baselines=absent, max_evaluations=400)
    text = "The quick fox. Does it jump over the lazy dog? Never."
    found = explainer.hierarchy(text, target="good", divided=1)
    assert "".join(found.data) == text
    assert len(found.data) in (3 + 2, 7 + 2)
    assert found.output_names == "good"
    with torch.no_grad():
        (logits,) = model(**tokenizer(text, return_tensors="pt")).logits
    assert found.values.sum() + found.base_values == pytest.approx(logits[2].item(), abs=1e-4)
    contrast = explainer.hierarchy(text, target="good", versus="bad", divided=1)
    assert contrast.values.sum() + contrast.base_values == pytest.approx((logits[2] - logits[0]).item(), abs=1e-4)
    assert contrast.output_names == "good − bad"
    with pytest.raises(BadInput, match="of one output, and the model has 3: choose one by target"):
        explainer.hierarchy(text)


def test_segments_pairs_and_short_texts():
    def function(texts):
        return torch.tensor([float(len(str(text).split())) for text in texts], dtype=torch.float64)

    explainer = TextExplainer(function)
    segments = ["You are kind. ", "Be brief. Say why.\n", "Why?"]
    found = explainer.hierarchy(segments, divided=1)
    assert list(found.sentences.data) == segments
    assert list(found.data) == ["You are kind. ", "Be ", "brief. ", "Say ", "why.\n", "Why?"]
    assert found.values == pytest.approx([3, 1, 1, 1, 1, 1])
    pair = explainer.hierarchy(("One two. Three.", "Four five six."), divided=None)
    assert list(pair.sentences.data) == ["One two. ", "Three.\n", "Four five six."]
    assert pair.values.sum() == pytest.approx(pair.sentences.values.sum())
    assert sentences_of(["a ", "b. ", "c", "\n", "d"], ["a b. c", "d"], "sentence") == [0, 0, 1, 1, 2]
    for text, values in (("Hello", [1]), ("", [0]), ("Hello there", [1, 1])):
        assert explainer.hierarchy(text).values == pytest.approx(values)


def test_a_function_may_give_a_list_or_an_array():
    def lengths(texts):
        return [1.5 * len(text) for text in texts]

    text = "One two. Three four."
    expected = TextExplainer(lambda texts: torch.tensor(lengths(texts), dtype=torch.float64)).hierarchy(text)
    for kind in (list, tuple, np.array, torch.tensor):
        found = TextExplainer(lambda texts, kind=kind: kind(lengths(texts))).hierarchy(text)
        assert found.values == pytest.approx(expected.values, abs=1e-5)
    rows = TextExplainer(lambda texts: [[len(text), text.count("o")] for text in texts])(text)
    assert rows.values[:, 1] == pytest.approx([0, 1, 0, 1])
    odds = TextExplainer(lambda texts: [0.5 + len(text) / 100 for text in texts], output="logit")(text)
    assert odds.values.sum() == pytest.approx(np.log(0.7 / 0.3), abs=1e-5)
    for bad in ([1, 2], {}):
        with pytest.raises(TypeError, match="must return a number, or a row of numbers, for each text"):
            TextExplainer(lambda texts, bad=bad: [bad if text else 1 for text in texts])(text)


@pytest.mark.parametrize("call", [TextExplainer.hierarchy, TextExplainer.__call__, TextExplainer.attribute])
def test_options_of_the_constructor_are_named_as_such(call):
    explainer = TextExplainer(ProductsOfWords((2, 2), 0))
    with pytest.raises(TypeError, match=r"give it to the constructor, TextExplainer\(…, max_evaluations=…\)"):
        call(explainer, "One two.", max_evaluations=600)
    with pytest.raises(TypeError, match="TextExplainer has no option 'absent': here it is baselines"):
        TextExplainer(len, absent="drop")


@pytest.mark.parametrize(
    ("options", "asked", "message"),
    [
        ({"players": "sentence"}, {}, "give players='word', 'token' or a function"),
        ({"method": "exact"}, {}, "by methods that the budget decides on"),
        ({"max_seconds": 3}, {}, "neither method nor max_seconds"),
        ({}, {"divided": 0}, "divided must be at least 1"),
        ({"max_evaluations": 60}, {}, "allow for more by max_evaluations, or divide fewer sentences"),
    ],
)
def test_what_is_refused(options, asked, message):
    explainer = TextExplainer(ProductsOfWords((9,) * 7, 0), **options)
    with pytest.raises(BadInput, match=message):
        explainer.hierarchy(text_of((9,) * 7), **asked)
