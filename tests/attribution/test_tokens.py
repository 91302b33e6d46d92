"""Transformers whose players are tokens."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from dasp import DASP, ExactShapley, Explainer, GradientDASP, UnsupportedOperation
from dasp.propagation.network import ProbabilisticNetwork

TOKENS, WIDTH = 4, 8


class Encoder(nn.Module):
    """A Transformer on embeddings."""

    def __init__(self, **options) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, 0.1, batch_first=True, **options)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean(1))


class Masked(Encoder):
    """The last token is padding, and none sees those after it."""

    def forward(self, x: Tensor) -> Tensor:
        padding = (torch.arange(TOKENS) == TOKENS - 1).expand(x.shape[0], TOKENS)
        later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        return self.head(self.body(x, later, padding, is_causal=True).mean(1))


class Beginning(Encoder):
    """A token of its own comes first, as many times as there are rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(torch.cat([self.first.expand(len(x), -1, -1), x], 1))[:, 0])


class Block(nn.Module):
    """One attention by itself."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, 0.1, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, need_weights=self.need_weights)[0]


def seeded(build) -> nn.Module:
    torch.manual_seed(0)
    return build().eval()


MODELS = {
    "post-norm": Encoder,
    "pre-norm": lambda: Encoder(norm_first=True, activation="gelu"),
    "masked": Masked,
    "with a token of its own": Beginning,
    "with weights": lambda: Block(True),
    "without weights": lambda: Block(False),
}


@pytest.mark.parametrize("name", MODELS)
def test_transformers_are_traced_without_warnings(name: str) -> None:
    model = seeded(MODELS[name])
    x = torch.randn(2, TOKENS, WIDTH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certain = ProbabilisticNetwork(model)(x, torch.zeros_like(x))
    torch.testing.assert_close(certain.mean, model(x))
    assert bool((certain.variance == 0).all())


def test_weights_need_not_be_asked_for() -> None:
    """Whether attention is one op or its parts, the moments are nearly the same."""
    x = torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    whole, parts = (
        ProbabilisticNetwork(seeded(MODELS[name]), rank="full")(x, 0.1 * x**2)
        for name in ("without weights", "with weights")
    )
    torch.testing.assert_close(whole.mean, parts.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole.total_variance, parts.total_variance, rtol=0.1, atol=1e-3)


@pytest.mark.parametrize("method", [GradientDASP, lambda model: DASP(model, rank="full")])
def test_a_token_is_a_player_as_a_word_or_as_an_embedding(method) -> None:
    embedding, model = seeded(lambda: nn.Embedding(9, WIDTH)), seeded(Encoder)
    words, nothing = torch.tensor([[3, 1, 4, 1], [5, 2, 6, 5]]), torch.zeros(1, TOKENS, dtype=torch.long)
    by_words = method(nn.Sequential(embedding, model).eval()).attribute(words, nothing, target=1)
    tokens = torch.arange(TOKENS)[None, :, None]
    vectors, none = (embedding(x).detach() for x in (words, nothing))
    by_vectors = method(model).attribute(vectors, none, target=1, feature_mask=tokens)
    torch.testing.assert_close(by_vectors, by_words[..., None].expand_as(by_vectors))


class Sharp(nn.Module):
    """Attention with large logits, and a token of its own that nobody plays."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.own = nn.Parameter(torch.randn(1, WIDTH))
        self.project.weight.data *= 3
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.own.expand(x.shape[0], 1, WIDTH), x], 1)
        q, k, v = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in self.project(self.norm(x)).chunk(3, 2))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, **self.options)
        return self.head((x + attended.transpose(1, 2).flatten(2)).mean(1))


BIAS = torch.randn(TOKENS + 1, TOKENS + 1, generator=torch.Generator().manual_seed(3))


def error(model: nn.Module, mask: Tensor, **options) -> float:
    """Of GradientDASP, relative to the size of the exact values."""
    x, off = torch.randn(2, 2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(2))
    exact = ExactShapley(model).attribute(x, off, target=0, feature_mask=mask)
    found = GradientDASP(model, **options).attribute(x, off, target=0, feature_mask=mask, nodes=8)
    return float((found - exact).norm() / exact.norm())


EACH = torch.arange(TOKENS)[None, :, None]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": BIAS}, {"attn_mask": BIAS > -0.5}])
def test_one_attention_among_tokens_is_exact(options) -> None:
    """Up to the quadrature; without being kept apart, tokens were off by several percent."""
    model = seeded(lambda: Sharp(**options))
    assert error(model, EACH) < 2e-3
    assert error(model, EACH, rank=0) > 2e-2


def test_tokens_that_share_a_player_are_mixed() -> None:
    assert 2e-3 < error(seeded(Sharp), EACH // 2) < 0.4


def test_logits_too_far_apart_to_integrate_are_mixed() -> None:
    model = seeded(Sharp)
    model.project.weight.data *= 5
    assert 2e-3 < error(model, EACH) < 1


def test_layers_after_attention_are_near() -> None:
    assert error(seeded(lambda: Encoder(norm_first=True)), EACH) < 1e-2


def test_interactions_of_tokens_are_those_of_the_game() -> None:
    """Two players of two tokens: the interaction is v(12) − v(1) − v(2) + v(∅)."""
    model = seeded(Sharp)
    x, off = torch.randn(2, 1, 2, WIDTH, generator=torch.Generator().manual_seed(2))
    found = GradientDASP(model).interactions(x, off, target=0, feature_mask=torch.arange(2)[None, :, None])
    first, second = (torch.where(torch.arange(2)[None, :, None] == i, x, off) for i in (0, 1))
    expected = (model(x) - model(first) - model(second) + model(off)).item()
    assert found[0, 0, 1].item() == pytest.approx(expected, rel=1e-2, abs=1e-4)


class Attending(nn.Module):
    """Attention among words, with a mask of its own for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        x = self.words(words)
        attended = nn.functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), mask)
        return self.head((x + attended).mean(1))


def test_a_query_that_sees_nothing_concerns_its_row_alone() -> None:
    model, words = seeded(Attending), torch.randint(1, 20, (3, 5), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 5, 5, dtype=torch.bool).tril()
    mask[1, 2] = False
    method = GradientDASP(model, rank="full")
    together = method.attribute(words, target=0, additional_forward_args=(mask,), nodes=5)
    alone = [
        method.attribute(words[i : i + 1], target=0, additional_forward_args=(mask[i : i + 1],), nodes=5)
        for i in range(3)
    ]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)
    exact = ExactShapley(model).attribute(words, target=0, additional_forward_args=(mask,))
    assert (together - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_words_of_models_in_any_precision(dtype) -> None:
    model, words = seeded(Attending), torch.randint(1, 20, (2, 5), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 5, 5, dtype=torch.bool)
    wanted = GradientDASP(model, rank="full").attribute(words, target=0, additional_forward_args=(mask,), nodes=5)
    found = GradientDASP(model.to(dtype), rank="full").attribute(
        words, target=0, additional_forward_args=(mask,), nodes=5
    )
    assert (found.double() - wanted).abs().max() < (1e-5 if dtype == torch.float64 else 0.05) * wanted.abs().max()


class Padded(nn.Module):
    """Word 0 is padding, which is masked out: so is a word that is absent."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, words: Tensor) -> Tensor:
        words = torch.cat([torch.ones_like(words[:, :1]), words], 1)
        x = self.words(words)
        weights = (x @ x.mT).masked_fill((words == 0)[:, None, :], -1e9).softmax(-1)
        return self.head(torch.relu(weights @ x)[:, 0])


def test_a_mask_that_players_decide_about_is_refused() -> None:
    words = torch.randint(1, 20, (2, 5), generator=torch.Generator().manual_seed(0))
    with pytest.raises(UnsupportedOperation, match="as in a mask for softmax"):
        GradientDASP(seeded(Padded)).attribute(words, target=0)
    explainer = Explainer(seeded(Padded), target=0)
    assert explainer(words).method == "exact_shapley"
