"""Scaled dot-product attention, softmax(q·kᵀ·scale + mask)·v, as one op.

**Among Gaussians** it is a product, a softmax and another product, by their own rules (`products.contraction`,
`softmax`): the covariance that queries have with keys is in the mean of the logits, and that of weights with values in
the mean of the result. Queries that may attend to nothing give 0, as torch has it.

**Among tokens that are players** (`Conditional` values) it has exact means. Let s_i be the state of the player of token
i: on or off. Given s_i and s_j, the logit l_ij of query i and key j is known up to what third players do to it, so
e_ij = exp l_ij are independent values of two points each for j ≠ i. As e/(e + D) = e ∫ exp(−λ(e + D)) dλ,

    E[Σ_j a_ij v_j] = ∫ Π_j φ_j(λ) Σ_j E[e_ij exp(−λ e_ij) v_j]/φ_j(λ) dλ,      φ_j(λ) = E[exp(−λ e_ij)]

and the mean given the state of a further player p has the same form, with p's factor replaced by its value: the
difference between on and off is the factor column of p. λ = exp u is integrated with equal steps in u, which converge
geometrically. What third players do to logits and values is taken to first order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian, nonnegative
from dasp.propagation.rules.affine import raised
from dasp.propagation.rules.arithmetic import add, mul
from dasp.propagation.rules.products import contraction
from dasp.propagation.rules.registry import RULES, affine
from dasp.propagation.rules.softmax import softmax
from dasp.propagation.values import Conditional, Linear, deviation

aten = torch.ops.aten
Value = Gaussian | Tensor


def _transposed(x: Value) -> Value:
    return x.mT if isinstance(x, Tensor) else x.map(lambda part: part.mT)


def _repeated(x: Any, heads: int) -> Any:
    """Repeat each head of keys or values, so that there are as many as the queries have."""
    return (
        x.map(partial(_repeated, heads=heads))
        if isinstance(x, Gaussian)
        else x.repeat_interleave(heads // x.shape[-3], -3)
    )


def _additive(mask: Value | None, causal: bool, shape: tuple[int, ...], like: Tensor) -> Value | None:
    """Return the mask as numbers to add to the logits: −∞ for a key that is not attended to."""
    if causal:
        mask = torch.ones(shape, dtype=torch.bool, device=like.device).tril()
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -torch.inf)
    return mask


def _weights(query: Value, key: Value, mask: Value | None, causal: bool, scale: float | None) -> Value:
    """softmax(q·kᵀ·scale + mask); a row that is masked altogether is 0."""
    mean, other = (x.mean if isinstance(x, Gaussian) else x for x in (query, key))
    scale = 1 / math.sqrt(mean.shape[-1]) if scale is None else scale
    mask = _additive(mask, causal, (mean.shape[-2], other.shape[-2]), mean)
    scaled = mul(query, scale) if isinstance(query, Gaussian) else query * scale
    logits: Any = contraction(scaled, _transposed(key))
    if mask is None:
        return softmax(logits, -1) if isinstance(logits, Gaussian) else logits.softmax(-1)
    if isinstance(mask, Gaussian):
        return softmax(add(logits, mask), -1)  # type: ignore[no-any-return]
    nothing = (mask == -torch.inf).all(-1, keepdim=True)
    mask = mask.masked_fill(nothing, 0)
    if isinstance(logits, Tensor):
        return (logits + mask).softmax(-1).masked_fill(nothing, 0)
    return mul(softmax(add(logits, mask), -1), (~nothing).to(mask))  # type: ignore[no-any-return]


def _grouped(query: Value, key: Value, value: Value, enable_gqa: bool) -> tuple[Value, Value]:
    if not enable_gqa:
        return key, value
    heads = (query.mean if isinstance(query, Gaussian) else query).shape[-3]
    return _repeated(key, heads), _repeated(value, heads)


@affine(aten.scaled_dot_product_attention.default)
def attention_to_values(
    op: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Any, Linear]:  # fmt: skip
    """A weighted sum of the values, if they alone are random."""
    if not all(isinstance(x, Tensor) or x is None for x in (query, key, attn_mask)):
        return None, lambda data, power: data
    key, _ = _grouped(query, key, key, enable_gqa)
    weights = _weights(query, key, attn_mask, is_causal, scale)

    def linear(data: Tensor, power: Any) -> Tensor:
        return raised(weights, power) @ (_repeated(data, query.shape[-3]) if enable_gqa else data)

    return value, linear


def scaled_dot_product_attention(
    query: Value, key: Value, value: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Gaussian:  # fmt: skip
    """softmax(q·kᵀ·scale + mask)·v; see the module's docstring."""
    key, value = _grouped(query, key, value, enable_gqa)
    weights = _weights(query, key, attn_mask, is_causal, scale)
    result: Any = contraction(weights, value)
    return _balanced(result, weights, value) if isinstance(weights, Gaussian) else result  # type: ignore[no-any-return]


def _balanced(result: Gaussian, weights: Gaussian, value: Value) -> Gaussian:
    """The variance that weights add is Σ_k v_k (b_k − result)² beside values b, as the weights' sum is certain."""
    b = value.mean if isinstance(value, Gaussian) else value
    excess = result.mean * (2 * (weights.variance @ b) - result.mean * weights.variance.sum(-1, keepdim=True))
    return replace(result, variance=nonnegative(result.variance - excess))


_STEP, _BELOW, _ABOVE, _DEEPEST = 1.0, 6.5, 3.0, 60.0  # of u
_MOST_KEYS = 64


def _stacked(x: Conditional) -> Gaussian:
    """Off and on along a new first dimension."""
    parts = [torch.stack([getattr(x.off, name), getattr(x.on, name)], at) for name, at in (
        ("mean", 0), ("variance", 0), ("factors", 1))]  # fmt: skip
    return Gaussian(*parts)


def _owners(x: Conditional) -> Tensor | None:
    """The player of each token; None if tokens have several, or if they differ between rows or heads."""
    number = x.number
    first = number[..., 0].flatten(0, -2)[0]
    return first if bool((number == first.unsqueeze(-1)).all()) else None


def token_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Conditional | None:  # fmt: skip
    """softmax(q·kᵀ·scale + mask)·v among tokens that are players; see the module's docstring.

    None where its assumptions do not hold: queries, keys and values are conditional on their players, each key has a
    player of its own, there are not too many keys, and no logit is too far below the others.
    """
    conditional = [isinstance(x, Conditional) for x in (query, key, value, attn_mask)]
    if enable_gqa or conditional != [True, True, True, False]:
        return None
    asking, asked, valued = map(_owners, (query, key, value))
    if asking is None or asked is None or valued is None or not torch.equal(asked, valued) or len(asked) > _MOST_KEYS:
        return None
    if bool((torch.bincount(asked + 1)[1:] > 1).any()):
        return None
    mask: Any = _additive(attn_mask, is_causal, (len(asking), len(asked)), query.on.mean)
    seen: Any = 1  # 0 for queries that may attend to nothing, whose result is 0
    if mask is not None:
        nothing = (mask == -torch.inf).all(-1, keepdim=True)
        mask, seen = mask.masked_fill(nothing, 0), (~nothing).to(query.on.mean.dtype)
    scale = 1 / math.sqrt(query.on.mean.shape[-1]) if scale is None else scale
    own = (asking[:, None] == asked) & (asked >= 0)
    attention = _TokenAttention(query, key, value, own, mask, scale)
    if attention.depth > _DEEPEST:
        return None
    result = attention.result()
    parts = ((result.mean[s], result.variance[s], result.factors[:, s]) for s in (0, 1))  # type: ignore[index]
    off, on = (Gaussian(*(part * seen for part in half)) for half in parts)
    players = query.players[..., :1].expand((*query.players.shape[:-1], result.mean.shape[-1]))
    return Conditional(on, off, players, query.probabilities)


class _TokenAttention:
    """Attention among tokens, in dimensions x and y: states of query and key, i: queries, j: keys and their players."""

    def __init__(
        self, query: Conditional, key: Conditional, value: Conditional, own: Tensor, mask: Tensor | None, scale: float
    ) -> None:
        self.q, self.k, self.v = _stacked(query), _stacked(key), _stacked(value)
        self.own, self.scale = own, scale
        asked, asking = key.number[..., 0].flatten(0, -2)[0], query.number[..., 0].flatten(0, -2)[0]
        self.known, self.columns = asked >= 0, asked.clamp(min=0)
        self.askers, self.asks = asking.clamp(min=0), asking >= 0
        self.chance = key.chance[..., 0]
        self.state = self._states(query.chance[..., 0], self.asks), self._states(self.chance, self.known)
        self._logits(mask)

    def _states(self, chance: Tensor, known: Tensor) -> Tensor:
        """(s − q)/√(q(1 − q)) for off and on: the noise that a state stands for."""
        spread = deviation(chance)
        scale = torch.where(spread > 0, 1 / torch.where(spread > 0, spread, 1), 0) * known
        return torch.stack([-chance * scale, (1 - chance) * scale])

    def _logits(self, mask: Tensor | None) -> None:
        q, k, v = self.q, self.k, self.v
        # What the other token's player does to each: (x, …, i, j, d), its column at the other token.
        self.to_query = q.factors[self.columns].movedim(0, -2)  # type: ignore[index]
        self.to_key, self.to_value = (x.factors[self.askers].movedim(0, -3) for x in (k, v))  # type: ignore[index]
        asking, asked = self.state[0][:, None, ..., :, None], self.state[1][None, ..., None, :]
        logits = torch.einsum("x...id,y...jd->xy...ij", q.mean, k.mean)
        logits = logits + torch.einsum("rx...id,ry...jd->xy...ij", q.factors, k.factors)
        logits = logits + asked * torch.einsum("x...ijd,y...jd->xy...ij", self.to_query, k.mean)
        logits = logits + asking * torch.einsum("x...id,y...ijd->xy...ij", q.mean, self.to_key)
        logits = logits + asking * asked * torch.einsum("x...ijd,y...ijd->xy...ij", self.to_query, self.to_key)
        logits = logits * self.scale
        if mask is not None:
            logits = logits + mask
        same = torch.stack([logits[0, 0], logits[1, 1]])
        self.asking = asking
        logits = torch.where(self.own, same[:, None], logits)
        self.logits = logits - logits.detach().amax((1, -1), keepdim=True)
        self.depth = -float(self.logits.detach().amin(1).amax(-1).min())  # below the largest, in the worst of states

    def _valued(self, weights: Tensor) -> Tensor:
        """Σ_j weight_ij v_j for weights (x, y, …, i, j, λ), given the states of both: (x, …, i, λ, d)."""
        own = self.own.unsqueeze(-1)
        others, mine = torch.where(own, 0, weights), torch.where(own, weights.sum(1), 0)
        result = torch.einsum("xy...ijl,y...jd->x...ild", others, self.v.mean)
        result = result + torch.einsum("x...ijl,x...jd->x...ild", mine, self.v.mean)
        return result + torch.einsum("xy...ijl,y...ijd->x...ild", others * self.asking.unsqueeze(-1), self.to_value)

    def _each_valued(self, weights: Tensor) -> Tensor:
        """The same for each key by itself, that is not the query's own: (x, …, i, j, d)."""
        result = torch.einsum("xy...ij,y...jd->x...ijd", weights, self.v.mean)
        return result + torch.einsum("xy...ij,y...ijd->x...ijd", weights * self.asking, self.to_value)

    def result(self) -> Gaussian:
        """Return off and on of the result."""
        e = self.logits.exp()
        start, end = -math.log(e.shape[-1]) - _BELOW, _ABOVE + self.depth
        u = torch.arange(start, end, _STEP, dtype=e.dtype, device=e.device)
        rate = u.exp()
        decay = -e.unsqueeze(-1) * rate  # (x, y, …, i, j, λ)
        prob = torch.stack([1 - self.chance, self.chance])[..., None, :]  # (y, …, 1, j)
        nearest = decay.detach().amax(1)
        tiny = torch.finfo(e.dtype).tiny
        phi = (prob.unsqueeze(-1) * (decay - nearest.unsqueeze(1)).exp()).sum(1).clamp(min=tiny).log() + nearest
        weight = phi.sum(-2).exp() * rate  # (x, …, i, λ)
        given = (decay - phi.unsqueeze(1)).exp()
        share = prob.unsqueeze(-1) * e.unsqueeze(-1) * given
        attended = torch.einsum("xy...ijl,x...il->xy...ij", share, weight)
        total = attended.sum((1, -1))
        weight, attended = weight / total.unsqueeze(-1), attended / total[:, None, ..., None]
        mean = self._valued(attended.unsqueeze(-1)).squeeze(-2)
        direct = self._direct(e, given, share, weight)
        return self._with_third_players(mean, attended.sum(1), direct)

    def _direct(self, e: Tensor, given: Tensor, share: Tensor, weight: Tensor) -> Tensor:
        """The change of the result that the player of each key makes by being attended to: (j, x, …, i, d)."""
        level = self._valued(share)
        result: Any = 0
        for state, sign in ((1, 1.0), (0, -1.0)):
            at = weight.unsqueeze(-2) * given[:, state]  # (x, …, i, j, λ)
            beside = -torch.einsum("x...ijl,xy...ijl->xy...ij", at, share)
            itself = torch.zeros_like(beside)
            itself[:, state] = at.sum(-1) * e[:, state]
            change = torch.einsum("x...ijl,x...ild->x...ijd", at, level) + self._each_valued(beside + itself)
            result = result + sign * change
        spread = deviation(self.chance)[..., None, :, None]
        return torch.where((self.own | ~self.known).unsqueeze(-1), 0, result * spread).movedim(-2, 0)

    def _with_third_players(self, mean: Tensor, attended: Tensor, direct: Tensor) -> Gaussian:
        """The result with all its factors: those of keys, and what players do to other tokens' logits and values."""
        chance = self.chance.unsqueeze(-1)
        key, value = (torch.lerp(x.mean[0], x.mean[1], chance) for x in (self.k, self.v))
        keys, values = (torch.lerp(x.factors[:, 0], x.factors[:, 1], chance) for x in (self.k, self.v))  # type: ignore[index]
        count = len(keys)
        third = torch.ones(count, len(self.known), dtype=mean.dtype, device=mean.device)
        third[self.columns[self.known], self.known.nonzero().squeeze(-1)] = 0  # not a key's own player
        third = third.view(count, *[1] * (keys.dim() - 3), -1)
        values = values * third.unsqueeze(-1)
        logits = torch.einsum("rx...id,...jd->rx...ij", self.q.factors, key)
        logits = logits + torch.einsum("x...id,r...jd->rx...ij", self.q.mean, keys)
        logits = logits * self.scale * third.unsqueeze(1).unsqueeze(-2)
        weights = attended * (logits - (attended * logits).sum(-1, keepdim=True))
        factors = torch.einsum("rx...ij,...jd->rx...id", weights, value)
        factors = factors + torch.einsum("x...ij,r...jd->rx...id", attended, values)
        mine = torch.zeros(count, len(self.own), dtype=torch.bool, device=mean.device)
        mine[self.askers, torch.arange(len(self.own), device=mean.device)] = True
        mine = (mine & self.asks).view(count, *[1] * (factors.dim() - 3), len(self.own), 1)
        factors = torch.where(mine, 0, factors).index_add(0, self.columns[self.known], direct[self.known])
        variance = torch.einsum(
            "x...ij,...jd->x...id", attended.square(), torch.lerp(self.v.variance[0], self.v.variance[1], chance)
        )
        return Gaussian(mean + torch.einsum("rx...ij,r...jd->x...id", weights, values), variance, factors)


_OP = aten.scaled_dot_product_attention.default
RULES[_OP] = replace(RULES[_OP], gaussian=scaled_dot_product_attention, conditional=token_attention)
