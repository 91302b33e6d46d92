"""Texts: which pieces play, what a model is given without them, and that the values are the Shapley values."""

from __future__ import annotations

import itertools
import re
import warnings
from copy import deepcopy
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from captum.attr import LLMAttribution, ShapleyValues, TextTemplateInput
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from small_language import bert_tokenizer, classifier, gpt_tokenizer, language_model
from torch import nn

from dasp import Explainer, TextExplainer
from dasp.attribution import refinement
from dasp.errors import BadInput
from dasp.explainer.text import token_model
from dasp.explainer.text.token_model import TextGame
from dasp.explainer.text.tokens import Tokens, Vocabulary, pieces_from, starts_of, text_in_tokens

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's own, about matplotlib
    import shap

TEXT = "The quick fox does not jump"
LONG = "The quick brown fox does not jump over the lazy dog, they really say."
ODD = ["", "   ", "fox", " fox", "fox\n\n dog ", "fox 😀👍🏽 dog", "naïve 東京 fox", "the\tdog\u00a0says", "é́ fox"]


@pytest.fixture(scope="module")
def bert():
    tokenizer = bert_tokenizer(model_max_length=512)
    return classifier("bert", tokenizer), tokenizer


@pytest.fixture(scope="module")
def gpt():
    tokenizer = gpt_tokenizer()
    return language_model(tokenizer), tokenizer


def by_enumeration(worth, players):
    """The mean over all orders of what each player adds when it joins; the slow and obvious way."""
    values = []
    known = {present: worth(present) for present in product([False, True], repeat=players)}
    for order in permutations(range(players)):
        present, added = [False] * players, [None] * players
        for player in order:
            before = known[tuple(present)]
            present[player] = True
            added[player] = known[tuple(present)] - before
        values.append(torch.stack(added))
    return torch.stack(values).mean(0)


def close(explanation, expected):
    np.testing.assert_allclose(np.asarray(explanation.values, dtype=float), expected.detach().numpy(), atol=2e-5)


# Pieces


@pytest.mark.parametrize("text", [*ODD, LONG, "Yes. No! “Really?” 3.5 of them…\nso"])
@pytest.mark.parametrize("division", ["word", "sentence"])
def test_pieces_are_the_text(text, division):
    pieces = pieces_from(text, starts_of(text, division))
    assert "".join(pieces) == text
    assert all(piece.strip() for piece in pieces[1:])


def test_words_and_sentences():
    def pieces(text, division):
        return [piece.strip() for piece in pieces_from(text, starts_of(text, division))]

    assert pieces("I don't, really", "word") == ["I", "don't,", "really"]
    assert pieces("東京、fox です", "word") == ["東", "京、", "fox", "で", "す"]
    said = pieces("Yes. No! “Really?” 3.5 of them…\nso", "sentence")
    assert said == ["Yes.", "No!", "“Really?”", "3.5 of them…", "so"]
    assert pieces("fox, dog", re.compile(r"\w+|[^\w\s]+").findall) == ["fox", ",", "dog"]


@pytest.mark.parametrize(
    ("division", "message"),
    [
        (lambda text: ["fox"], "'dog' is in none of them"),
        (lambda text: ["fox", "cat"], "'cat' does not come next"),
        (lambda text: ["dog"], "'dog' does not come next"),
        (lambda text: text, "a list of strings"),
    ],
)
def test_pieces_that_are_not_the_text(division, message):
    with pytest.raises(BadInput, match=message):
        TextExplainer(len, players=division)("fox dog")


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("players", ["token", "word", "sentence"])
@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_tokens_have_pieces_and_special_ones_have_none(text, players, kind, bert, gpt):
    model, tokenizer = bert if kind == "bert" else gpt
    tokens = Tokens((text,), players, Vocabulary(tokenizer, model, "drop"))
    assert "".join(tokens.pieces) == text
    number = len(tokens.players)
    whole = tokens.without([True] * number)
    assert list(whole.input_ids) == (tokenizer(text)["input_ids"] or [tokenizer.bos_token_id])
    nobody = tokens.without([False] * number)
    ends = [tokenizer.cls_token_id, tokenizer.sep_token_id] if kind == "bert" else [tokenizer.bos_token_id]
    assert list(nobody.input_ids) == ends
    each = [tokens.without([i == k for i in range(number)]).tokens for k in range(number)]
    if number:
        assert sum(each) - (number * 2 if kind == "bert" else 0) == whole.tokens - (2 if kind == "bert" else 0)


def test_a_model_that_knows_no_largest_position():
    """XLNet's `max_position_embeddings` is −1."""
    tokenizer = bert_tokenizer()
    model = classifier("xlnet", tokenizer)
    found = TextExplainer(model, tokenizer)("the quick brown fox")
    with torch.no_grad():
        (logits,) = model(**tokenizer("the quick brown fox", return_tensors="pt")).logits
    np.testing.assert_allclose(found.values.sum(0) + found.base_values, logits.numpy(), atol=1e-5)


def test_special_tokens_of_the_text_itself_stay(bert):
    model, tokenizer = bert
    explanation = TextExplainer(model, tokenizer, baselines="drop")("the quick [MASK] jump", target=0)
    assert list(explanation.data) == ["the ", "quick ", "[MASK] ", "jump"]
    assert explanation.values[2] == explanation.error_std[2] == 0
    assert np.abs(explanation.values[[0, 1, 3]]).min() > 1e-4


def test_a_character_of_several_tokens_is_one_player(gpt):
    model, tokenizer = gpt
    tokens = text_in_tokens(("fox😀",), "token", Vocabulary(tokenizer, model, "drop"))
    assert tokens.pieces[-1] == "😀"
    assert len(tokenizer("😀")["input_ids"]) == 4


def test_a_token_over_two_pieces_joins_them(gpt):
    model, tokenizer = gpt
    tokens = text_in_tokens(("the the",), lambda _: ["t", "he", " the"], Vocabulary(tokenizer, model, "drop"))
    assert len(tokens.pieces) == len(tokens.players) == len(tokenizer("the the")["input_ids"])


# Values


def test_the_values_of_a_function_are_exact():
    def function(texts):
        return torch.tensor([[len(text) ** 0.5, float("not jump" in text)] for text in texts])

    explanation = TextExplainer(function)(TEXT)
    words = TEXT.split()

    def worth(present):
        return function([" ".join(word for word, there in zip(words, present, strict=True) if there)])[0]

    close(explanation, by_enumeration(worth, 6))
    assert list(explanation.data) == ["The ", "quick ", "fox ", "does ", "not ", "jump"]
    assert explanation.error_std.shape == explanation.values.shape == (6, 2)
    np.testing.assert_allclose(explanation.values.sum(0) + explanation.base_values, function([TEXT])[0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_a_large_offset_takes_no_digits_from_exact_values(dtype):
    def function(texts):
        return torch.tensor([2**40 + 3 * text.count("fox") + ("not jump" in text) * 8 for text in texts], dtype=dtype)

    explanation = TextExplainer(function)(TEXT)
    assert explanation.values.tolist() == pytest.approx([0, 0, 3, 0, 4, 4], abs=1e-3)
    assert explanation.base_values == 2**40
    alone = TextExplainer(function)("fox")
    assert alone.values.tolist() == [3]


def test_a_function_may_compute_in_less_than_it_returns():
    """Rounding that depends on the texts beside one, as by their padding, is no reason to refuse it."""

    def function(texts):
        longest = max(map(len, texts))
        return torch.tensor([len(text) * (1 + 1e-6 * longest / len(TEXT)) for text in texts], dtype=torch.float64) + 1

    explanation = TextExplainer(function)(TEXT)
    assert explanation.values.sum() == pytest.approx(len(TEXT), rel=1e-5)


def test_a_continuation_is_as_precise_as_its_model(gpt):
    model, tokenizer = gpt
    single, double = (
        TextExplainer(own, tokenizer).continuation("the quick fox", " jumps")
        for own in (model, deepcopy(model).double())
    )
    assert double.base_values != np.float32(double.base_values)
    np.testing.assert_allclose(single.values, double.values, atol=1e-4)


def replaced(tokenizer, absent, present):
    """The tokens of TEXT, word by word, as the model takes them, by hand."""
    ids, attention = [tokenizer.cls_token_id], [1]
    for word, there in zip(TEXT.split(), present, strict=True):
        own = tokenizer(word, add_special_tokens=False)["input_ids"]
        instead = {"mask": [tokenizer.mask_token_id] * len(own), "pad": [tokenizer.pad_token_id] * len(own), "drop": []}
        text = tokenizer(absent, add_special_tokens=False)["input_ids"]
        new = own if there else instead.get(absent, text)
        ids += new
        attention += [int(there or absent != "pad")] * len(new)
    return torch.tensor([[*ids, tokenizer.sep_token_id]]), torch.tensor([[*attention, 1]])


@pytest.mark.parametrize("absent", ["mask", "pad", "drop", "a dog"])
def test_what_is_absent(absent, bert):
    model, tokenizer = bert

    @torch.no_grad()
    def worth(present):
        ids, attention = replaced(tokenizer, absent, present)
        return model(input_ids=ids, attention_mask=attention).logits[0]

    explanation = TextExplainer(model, tokenizer, baselines=absent)(TEXT)
    expected = by_enumeration(worth, 6)
    assert expected.abs().max() > 0.01
    close(explanation, expected)
    assert list(explanation.output_names) == ["bad", "fair", "good"]
    by_name = TextExplainer(model, tokenizer, baselines=absent)([TEXT], target="good")
    close(by_name[0], expected[:, 2])
    assert by_name.output_names == "good"


def test_masked_out_tokens_leave_the_positions_of_others():
    """Also where a model counts those tokens that are no padding."""
    tokenizer = bert_tokenizer(model_max_length=60)
    model = classifier("roberta", tokenizer, longest=64)
    tokens = Tokens(("the quick fox",), "word", Vocabulary(tokenizer, model, "pad"))
    row = tokens.without([False, True, True])
    hidden = {}
    model.roberta.embeddings.register_forward_pre_hook(
        lambda module, given, named: hidden.update(positions=named["position_ids"]), with_kwargs=True
    )
    TextExplainer(model, tokenizer, baselines="pad")("the quick fox")
    assert hidden["positions"][0].tolist() == list(range(1, 1 + row.tokens))  # padding_idx is 0
    assert Vocabulary(tokenizer, model, "pad").limit == 60


def written_again(tokenizer, pieces, present):
    """The tokens of the text of some pieces."""
    text = "".join(piece for piece, there in zip(pieces, present, strict=True) if there)
    return tokenizer(text if present[-1] else text.rstrip())["input_ids"]


@pytest.mark.parametrize("absent", ["drop", "pad", "…"])
def test_a_classifier_without_mask_and_padding_tokens(absent, caplog):
    tokenizer = gpt_tokenizer()
    model = classifier("gpt", tokenizer)
    assert model.config.pad_token_id is None
    words = ["the", " quick", " dog"]

    @torch.no_grad()
    def worth(present):
        new = tokenizer("…")["input_ids"]
        ids = []
        for word, there in zip(words, present, strict=True):
            own = tokenizer(word)["input_ids"]
            ids += own if there else new
        ids = written_again(tokenizer, ["the ", "quick ", "dog"], present) if absent == "drop" else ids
        return model(input_ids=torch.tensor([ids or [0]])).logits[0]

    one_by_one = TextExplainer(model, tokenizer, baselines=absent)("".join(words))
    assert "one by one" in caplog.text
    if absent != "pad":
        close(one_by_one, by_enumeration(worth, 3))
    model.config.pad_token_id = 0  # the last token of a row is the last that is no padding
    together = TextExplainer(model, tokenizer, baselines=absent)("".join(words))
    if absent != "pad":
        close(together, torch.tensor(one_by_one.values))
    np.testing.assert_allclose(together.values.sum(0) + together.base_values, model(
        input_ids=torch.tensor([tokenizer("".join(words))["input_ids"]])).logits[0].detach(), atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("absent", ["mask", "pad", "drop", "a very lazy dog"])
@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_rows_do_not_depend_on_the_batch(absent, kind, bert):
    tokenizer = bert_tokenizer(model_max_length=512) if kind == "bert" else gpt_tokenizer()
    model = bert[0] if kind == "bert" else classifier(kind, tokenizer, pad_token_id=0)
    if kind == "gpt" and absent == "mask":
        with pytest.raises(BadInput, match="no mask token: choose baselines='drop', 'pad' or a text"):
            TextExplainer(model, tokenizer, baselines=absent)
        return
    texts = ["The quick fox", "dog", "a good film is long"]
    results = [TextExplainer(model, tokenizer, baselines=absent, batch_size=size)(texts) for size in (1, 5, 64)]
    for other in results[1:]:
        for one, two in zip(results[0].values, other.values, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("absent", ["drop", "a dog"])
def test_types_of_tokens_are_kept(absent, bert):
    model, tokenizer = bert
    pair = ("the quick fox", "a good dog")
    explanation = TextExplainer(model, tokenizer, baselines=absent)([pair])[0]
    assert list(explanation.data) == ["the ", "quick ", "fox", "\n", "a ", "good ", "dog"]
    assert not explanation.values[3].any()

    @torch.no_grad()
    def worth(present):
        ids, types = [tokenizer.cls_token_id], [0]
        for i, (text, own) in enumerate(zip(pair, (present[:3], present[3:]), strict=True)):
            instead = "" if absent == "drop" else absent
            left = " ".join(word if there else instead for word, there in zip(text.split(), own, strict=True))
            new = [*tokenizer(left, add_special_tokens=False)["input_ids"], tokenizer.sep_token_id]
            ids, types = ids + new, types + [i] * len(new)
        return model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]

    players = np.delete(explanation.values, 3, 0)
    np.testing.assert_allclose(players, by_enumeration(worth, 6), atol=2e-5)


def test_functions_of_pairs():
    def shared(pairs):
        return torch.tensor([float(len(set(a.split()) & set(b.split()))) for a, b in pairs])

    explanation = TextExplainer(shared)(("the fox", "a fox"))
    assert list(explanation.data) == ["the ", "fox", "\n", "a ", "fox"]
    np.testing.assert_allclose(explanation.values, [0, 0.5, 0, 0, 0.5])


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("players", ["token", "word"])
def test_odd_texts(text, players, bert):
    model, tokenizer = bert
    whole = model(**tokenizer(text, return_tensors="pt")).logits[0].detach().numpy()
    one = TextExplainer(model, tokenizer, players=players)([text])[0]
    assert "".join(one.data) == text
    np.testing.assert_allclose(one.values.sum(0) + one.base_values, whole, atol=1e-5)


def test_a_text_of_512_tokens_and_one_that_is_longer(bert, caplog):
    model, tokenizer = bert
    fits, longer = ("the " * 510).strip(), ("the " * 520).strip()
    explainer = TextExplainer(model, tokenizer, players=lambda text: [text[:400], text[400:1200], text[1200:]])
    first = explainer([fits], target=1)[0]
    assert not caplog.text
    second = explainer([longer], target=1)[0]
    assert "has 522 tokens, and the model takes 512: what is beyond is cut off" in caplog.text
    np.testing.assert_allclose(first.values, second.values, atol=1e-5)
    by_word = Tokens((longer,), "word", Vocabulary(tokenizer, model, "mask"))
    assert (len(by_word.pieces), len(by_word.players)) == (520, 510)
    assert "".join(by_word.pieces) == longer


def test_many_words_have_error_bars():
    weights = torch.linspace(-1, 1, 14)
    words = [f"w{i}" for i in range(14)]

    def function(texts):
        there = torch.tensor([[float(word in text.split()) for word in words] for text in texts])
        return torch.tanh(there @ weights) + there[:, 0] * there[:, 1]

    truth = TextExplainer(function, method="exact")(" ".join(words))
    assert not truth.error_std.any()
    for options in (dict(max_evaluations=100), dict(max_evaluations=1000, tolerance=0.05)):
        explanation = TextExplainer(function, **options)(" ".join(words))
        error = np.abs(explanation.values - truth.values)
        assert (error < 5 * explanation.error_std + 1e-6).all()
        assert explanation.error_std.max() > 0
    sampled = TextExplainer(function, method="permutation", max_evaluations=600)(" ".join(words))
    assert (np.abs(sampled.values - truth.values) < 5 * sampled.error_std + 1e-6).all()


def lengths(texts):
    return torch.tensor([[float(len(text)), float(text.count("o"))] for text in texts])


def test_tensors_are_of_the_type_of_all_explainers():
    texts = ["the fox", LONG, "dog"]
    explainer = TextExplainer(lengths, max_evaluations=100, tolerance=0.5)
    found, explanation = explainer.attribute(texts), explainer(texts)
    assert type(found) is type(Explainer(nn.Linear(2, 1).eval()).attribute(torch.ones(1, 2)))
    assert [choice.method for choice in found.choices] == ["exact_shapley", "bayesian_shapley", "exact_shapley"]
    assert found.method == explanation.method == "exact_shapley, bayesian_shapley"
    assert [explanation[i].reason for i in range(3)] == [choice.reason for choice in found.choices]
    torch.testing.assert_close(found.prediction, lengths(texts))
    assert len(found.gap) == len(found.evaluations) == len(found.missed) == 3
    for i, text in enumerate(texts):
        assert "".join(found.pieces[i]) == text
        assert found.values[i].shape == found.std[i].shape == (2, len(found.pieces[i]))
        np.testing.assert_array_equal(found.values[i].T, explanation[i].values)
    assert "fox" in explainer.attribute("the fox", target=0)._repr_html_()
    assert explainer.attribute("the fox", target=0).values[0].shape == (2,)


def test_the_target_of_the_constructor():
    explainer = TextExplainer(lengths, target=1)
    np.testing.assert_array_equal(explainer(TEXT).values, explainer(TEXT, target=1).values)
    assert explainer(TEXT, target=None).values.shape == (6, 2)


def test_a_text_may_take_so_many_seconds(monkeypatch):
    now = itertools.count()
    monkeypatch.setattr(refinement.time, "perf_counter", lambda: next(now) / 1000)  # a millisecond for every look at it
    found = TextExplainer(lengths, max_seconds=0.001, target=0).attribute(LONG)
    assert (found.method, int(found.evaluations)) == ("bayesian_shapley", 10)  # the fewest
    assert int(TextExplainer(lengths, max_seconds=0.05, target=0, tolerance=1e-9).attribute(LONG).evaluations) > 10
    assert TextExplainer(lengths, max_seconds=60, target=0).attribute(TEXT).method == "exact_shapley"
    with pytest.raises(BadInput, match="leave max_seconds to 'auto'"):
        TextExplainer(lengths, max_seconds=1, method="permutation")(TEXT)


def test_one_permutation_has_no_error_bars():
    options = {"method": "permutation", "max_evaluations": 2 + 2 * 13, "target": 0}
    found = TextExplainer(lengths, **options).attribute([LONG, "the fox"])
    assert found.std[0].isnan().all()
    assert not found.std[1].isnan().any()
    with pytest.raises(BadInput, match="too few for error bars"):
        TextExplainer(lengths, error_bars=True, **options)(LONG)


def test_a_coalition_is_evaluated_once_and_none_too_many():
    seen = []

    def function(texts):
        seen.extend(texts)
        return torch.tensor([float(len(text)) for text in texts])

    TextExplainer(function)("very very very good film")
    different = {text for text in seen if seen.count(text) == 1}
    assert {text for text in seen if text not in different} <= {"", "very very very"}  # at the checks
    assert len(set(seen)) == 4 * 2 * 2
    seen.clear()
    TextExplainer(function, max_evaluations=100)(LONG)
    assert len(seen) <= 104


def test_short_texts_are_evaluated_together(bert):
    model, tokenizer = bert
    tokens = text_in_tokens((TEXT,), "word", Vocabulary(tokenizer, model, "drop"))
    lengths = []

    def evaluate(rows):
        lengths.append({row.tokens for row in rows})
        return torch.zeros(len(rows))

    everybody = torch.tensor(list(product([0.0, 1.0], repeat=6)))
    TextGame(tokens, evaluate, 16)(everybody)
    assert max(max(one) for one in lengths[:-1]) <= min(lengths[-1])


def test_targets(bert):
    model, tokenizer = bert
    explainer = TextExplainer(model, tokenizer)
    texts = [TEXT, "a good dog", "never"]
    everything = explainer(texts)
    assert everything[0].shape == (6, 3)
    for k, name in enumerate(["bad", "fair", "good"]):
        one = explainer(texts, target=name)
        for i in range(3):
            np.testing.assert_allclose(one[i].values, everything[i].values[:, k], atol=1e-6)
            np.testing.assert_allclose(one[i].base_values, everything[i].base_values[k], atol=1e-6)
    largest = [int((e.values.sum(0) + e.base_values).argmax()) for e in everything]
    predicted, given = explainer(texts, target="predicted"), explainer(texts, target=largest)
    for i in range(3):
        np.testing.assert_array_equal(predicted[i].values, given[i].values)
    probability = TextExplainer(model, tokenizer, output=lambda out: out.logits.softmax(-1))(TEXT)
    np.testing.assert_allclose((probability.values.sum(0) + probability.base_values).sum(), 1, atol=1e-6)
    assert list(probability.output_names) == ["bad", "fair", "good"]
    difference = TextExplainer(model, tokenizer, output=lambda out: out.logits[:, 2] - out.logits[:, 0])(TEXT)
    assert difference.output_names is None  # it is none of the labels
    likely = TextExplainer(model, tokenizer, output="probability")(TEXT)
    np.testing.assert_allclose(likely.values, probability.values, atol=1e-6)
    contrast = explainer(TEXT, target="good", versus="bad")
    np.testing.assert_allclose(contrast.values, difference.values, atol=1e-6)
    assert contrast.output_names == "good − bad"


# Continuations


@pytest.mark.parametrize("absent", ["drop", "…", "pad"])
def test_continuations(absent, gpt):
    model, tokenizer = gpt
    segments, continuation = ["the quick", " brown fox", " does not"], " jump over"
    explainer = TextExplainer(model, tokenizer, baselines=absent, batch_size=3)
    each = explainer.continuation(segments, continuation, per_token=True)
    whole = explainer.continuation(segments, continuation)
    tokens = tokenizer(continuation)["input_ids"]

    @torch.no_grad()
    def worth(present):
        ids, seen = [], []
        for segment, there in zip(segments, present, strict=True):
            own = tokenizer(segment)["input_ids"]
            new = own if there else {"drop": [], "pad": [0] * len(own)}.get(absent, tokenizer("…")["input_ids"])
            ids += new
            seen += [int(there or absent != "pad")] * len(new)
        if not any(seen):
            ids, seen = [0, *ids[1:]], [1, *seen[1:]]
        logits = model(
            input_ids=torch.tensor([ids + tokens]), attention_mask=torch.tensor([seen + [1] * len(tokens)])
        ).logits[0]
        return logits.log_softmax(-1)[range(len(ids) - 1, len(ids) + len(tokens) - 1), tokens]

    expected = by_enumeration(worth, 3)
    close(each, expected)
    close(whole, expected.sum(1))
    assert list(whole.data) == segments
    assert "".join(each.output_names) == continuation
    assert whole.output_names == continuation


def test_what_is_dropped_is_a_text_without_it(gpt):
    """Also where a piece ends in a space, which makes other tokens of what follows; the prompt is not cut behind it."""
    model, tokenizer = gpt
    pieces, continuation = ["the quick ", "brown fox ", "does not"], " jump over"
    found = TextExplainer(model, tokenizer, baselines="drop").continuation(pieces, continuation)
    tokens = tokenizer(continuation)["input_ids"]

    @torch.no_grad()
    def worth(present):
        ids = written_again(tokenizer, pieces, present) or [0]
        logits = model(input_ids=torch.tensor([ids + tokens])).logits[0]
        return logits.log_softmax(-1)[range(len(ids) - 1, len(ids) + len(tokens) - 1), tokens].sum()

    close(found, by_enumeration(worth, 3))
    whole, last = tokenizer("".join(pieces))["input_ids"], tokenizer("does not")["input_ids"]
    assert whole[-len(last) :] != last  # which removing tokens would leave


@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_a_cut_text_stays_cut_where_pieces_are_dropped(kind, caplog):
    """What the model never sees does not come in where there is room for it."""
    tokenizer = bert_tokenizer(model_max_length=8) if kind == "bert" else gpt_tokenizer()
    model = classifier(kind, tokenizer, longest=8, pad_token_id=0)
    text = "the quick brown fox does not jump over the lazy dog"
    tokens = text_in_tokens((text,), "word", Vocabulary(tokenizer, model, "drop"))
    assert "cut off" in caplog.text
    assert 0 < len(tokens.players) < 11
    number = len(tokens.players)
    seen = {token for i in range(number) for token in tokens.without([i == k for k in range(number)]).input_ids}
    nobody = tokens.without([False] * number).input_ids
    lazy = set(tokenizer(" lazy dog", add_special_tokens=False)["input_ids"]) - set(nobody)
    cut = tokenizer(text)["input_ids"][:7]
    assert lazy - set(cut)
    assert not seen & (lazy - set(cut))


def test_continuations_are_what_captum_gives(gpt):
    model, tokenizer = gpt
    segments, continuation = ["the quick", " brown fox", " does not", " ever"], " jump over"
    given = TextTemplateInput("{}{}{}{}", values=segments, baselines=["…"] * 4)
    captum = LLMAttribution(ShapleyValues(model), tokenizer).attribute(given, continuation, use_cached_outputs=False)
    explainer = TextExplainer(model, tokenizer, baselines="…")
    close(explainer.continuation(segments, continuation), captum.seq_attr)
    close(explainer.continuation(segments, continuation, per_token=True), captum.token_attr.T)


def test_continuations_by_word_and_by_sentence(gpt):
    model, tokenizer = gpt
    by_word = TextExplainer(model, tokenizer).continuation("the quick fox", " does not")
    assert list(by_word.data) == ["the ", "quick ", "fox"]
    by_sentence = TextExplainer(model, tokenizer, players="sentence").continuation("Really? The fox. They say", " so")
    assert list(by_sentence.data) == ["Really? ", "The fox. ", "They say"]
    by_token = TextExplainer(model, tokenizer, players="token", max_evaluations=100).continuation(LONG, " fox")
    assert by_token.error_std.max() > 0


def test_an_end_of_the_prompt_is_no_part_of_it():
    """BERT's [SEP] does not stand between a prompt and its continuation."""
    tokenizer = bert_tokenizer()
    tokens = Tokens(("the fox",), "word", Vocabulary(tokenizer, language_model(tokenizer), "mask"), behind=(7, 8))
    ids = tokenizer("the fox", add_special_tokens=False)["input_ids"]
    assert list(tokens.without([True, True]).input_ids) == [tokenizer.cls_token_id, *ids, 7, 8]


# What SHAP's plots take


def test_shap_draws_the_text(bert):
    model, tokenizer = bert
    explainer = TextExplainer(model, tokenizer)
    texts = ["a good film", "the quick brown fox"]
    single, ragged, every = explainer(texts[0], target=2), explainer(texts, target=2), explainer(texts)
    assert ragged.shape == (2, None)
    assert ragged[1].error_std.shape == (4,)
    for explanation, words in ((single, texts[0]), (ragged, " ".join(texts)), (every, " ".join(texts)), (every[0], "")):
        html = shap.plots.text(explanation, display=False)
        assert all(f">{word}" in html for word in words.split())
    html = shap.plots.text(single, display=False)
    shown = re.findall(
        r"font-size: 12px;'>([-\d.]+)</div\s*><div id='_tp_\w+_ind_\d+'.*?>([^<>]*)</div></div>", html, re.DOTALL
    )
    assert [piece for _, piece in shown] == ["a ", "good ", "film"]
    np.testing.assert_allclose([float(value) for value, _ in shown], single.values.round(3))


# What cannot be done


class Plain(nn.Module):
    def forward(self, x):
        return x


def cases():
    tokenizer = bert_tokenizer()
    model, plain = classifier("bert", tokenizer), TextExplainer(lambda texts: torch.zeros(len(texts)))
    own = TextExplainer(model, tokenizer)
    yield lambda: TextExplainer(model), "the model takes tokens: give its tokenizer"
    yield lambda: TextExplainer(len, tokenizer), "a function takes texts, and needs none"
    yield lambda: TextExplainer(Plain(), tokenizer)("a b"), "takes no input_ids or no attention_mask"
    yield lambda: TextExplainer(len, players="token"), "needs a tokenizer: choose 'word' or 'sentence'"
    yield lambda: TextExplainer(len, baselines="mask"), "needs a tokenizer: choose 'drop'"
    yield lambda: TextExplainer(len, output="logits"), "let the function return"
    yield lambda: TextExplainer(len, players="letters"), "players are 'token', 'word', 'sentence'"
    yield lambda: TextExplainer(len, baselines=3), "baselines are 'mask', 'pad', 'drop' or a text"
    yield lambda: TextExplainer(len, method="gradient"), "texts are explained by 'auto'"
    yield lambda: TextExplainer(len, method="guess"), "there is no method 'guess'"
    yield lambda: TextExplainer(len, object()), "a function takes texts"
    yield lambda: TextExplainer(model, object()), "take a fast one"
    yield lambda: plain([]), "there are no texts"
    yield lambda: plain(None), "texts are a string or a list of strings, not None"
    exact = TextExplainer(lambda texts: torch.tensor([float(len(text)) for text in texts]), method="exact")
    yield lambda: exact(" ".join("a" * 30)), "(players='sentence'), or method='bayesian'"
    yield lambda: plain(["a b", 3]), "a text is a string, a pair of strings or a list of its pieces, not 3"
    yield lambda: plain(["a b"], target=[0, 1]), "there are 2 targets for 1 texts"
    yield lambda: plain("a b", target="good"), "'good': output_names are not known; give them as output_names=[…]"
    yield lambda: own("a b", target="best"), "there is no output 'best': output_names are "
    yield lambda: own("a b", target=7), "target 7 does not fit"
    yield lambda: TextExplainer(len, max_evaluations=0), "max_evaluations must be at least 1"
    yield lambda: TextExplainer(len, tolerance=-1), "tolerance must be positive"
    yield lambda: TextExplainer(model, tokenizer, output="hidden")("a b"), "no 'hidden', but logits"
    yield lambda: TextExplainer(lambda texts: torch.zeros(len(texts), 2, 3))("a b"), "one row of outputs for each text"
    yield lambda: TextExplainer(lambda texts: [{}] * len(texts))("a b"), "must return a number, or a row"
    yield lambda: TextExplainer(lambda texts: torch.rand(len(texts)))("a b"), "differ from one evaluation to the next"
    yield lambda: plain.continuation("a", "b"), "a continuation needs a language model"
    yield lambda: own.continuation("a", ""), "the continuation has no tokens"
    yield lambda: own.continuation("a b", "c"), "are no language model's"
    yield lambda: TextExplainer(model, tokenizer, baselines="a " * 300)("a b c"), "or baselines='drop'"
    yield lambda: TextExplainer(classifier("bert", tokenizer).train(), tokenizer)("a b"), "call model.eval"
    longest = language_model(tokenizer, longest=8)
    yield lambda: TextExplainer(longest, tokenizer).continuation("a b c d e", "f g h"), "and the model takes 8"


@pytest.mark.parametrize(("call", "message"), [pytest.param(*case, id=case[1]) for case in cases()])
def test_bad_arguments(call, message):
    with pytest.raises((BadInput, ValueError, TypeError)) as error:
        call()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_package_does_not_import_transformers():
    """Whoever has a model of theirs has imported them."""
    files = list(Path(token_model.__file__).parent.glob("*.py"))
    assert len(files) > 3
    assert not any(re.search(r"(import|from) (transformers|tokenizers)", file.read_text()) for file in files)


def test_classifiers_of_scikit_learn_are_explained_by_a_method():
    texts = ["a good film", "a bad film", "good good", "bad one"]
    fitted = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, ["praise", "blame"] * 2)
    with pytest.raises(BadInput, match=r"a Pipeline is no function of texts: give its method, model\.predict_proba"):
        TextExplainer(fitted)
    with pytest.raises(BadInput, match="a module or a function of a list of texts, not a dict"):
        TextExplainer({})
    with pytest.raises(BadInput, match="explain predict_proba, say, for predict"):
        TextExplainer(fitted.predict)("a good film")
    found = TextExplainer(fitted.predict_proba)("a good film")
    assert list(found.output_names) == ["blame", "praise"]
    assert TextExplainer(fitted.predict_proba)("good", "praise").output_names == "praise"
    named = TextExplainer(fitted.predict_proba, output_names=["no", "yes"])("good")
    assert list(named.output_names) == ["no", "yes"]
    made = TextExplainer(fitted.predict_proba, output=lambda p: p[:, ::-1].copy())("good")
    assert list(made.output_names) == ["Output 0", "Output 1"]
