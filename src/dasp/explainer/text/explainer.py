"""Explain a text by its tokens, words or sentences: one class for models of tokens and for functions of texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from torch import Tensor, nn

from dasp.errors import BadInput
from dasp.explainer.result import Attributed
from dasp.explainer.text.coalitions import Divided, Worth
from dasp.explainer.text.models import Continued, Output, TokenModel
from dasp.explainer.text.pieces import Division
from dasp.explainer.text.shap_format import TextAttributed, explanation_of_texts
from dasp.explainer.text.strings import Strings, absent_of_strings
from dasp.explainer.text.tokens import Tokens
from dasp.explainer.text.vocabulary import Vocabulary
from dasp.games.request import Arguments
from dasp.games.request import Request
from dasp.games.request import Selection, output_number
from dasp.methods import METHODS, find
from dasp.methods.choose import MOST, TOLERANCE, Budget
from dasp.propagation.tracing import check_evaluation_mode

__all__ = ["TextExplainer"]

log = logging.getLogger("dasp")

_DIVISIONS = ("token", "word", "sentence")
# All that can be done with a text is to evaluate the model.
_EVALUATE = ("exact_shapley", "bayesian_shapley", "permutation_shapley")
_ROUNDING = torch.finfo(torch.float32).eps  # of most models, whatever functions around them make of it
_MOST_PLAYERS = METHODS["exact_shapley"].players or 0
_OF_A_VALUE = 0.2  # tolerances are for values that are a part of many

Text = str | tuple[str, str] | list[str]


class TextExplainer:
    """Shapley values of the pieces of a text, as a `shap.Explanation` for `shap.plots.text`.

    Args:
        model: a module in evaluation mode that takes `input_ids` and `attention_mask`, as Hugging Face's do; without a
            tokenizer, any function from a list of texts (or of pairs of texts) to a tensor (texts, outputs).
        tokenizer: the model's, a fast one; None for a function of texts.
        players: "word", "sentence", "token", or a function from a text to its pieces. Special tokens are no players.
        absent: what is in the place of an absent piece. "mask": the mask token for each of its tokens. "pad": nothing,
            its tokens are masked out in the attention mask, and all others keep their positions. "drop": nothing, the
            others close up. Any other text: its tokens. By default "mask" where there is a mask token, else "drop".
        output: what of the model's output is explained: the name of a part, or a function of the output that gives a
            tensor (texts, outputs). By default the `logits`.
        output_names: of all outputs; by default those of `model.config.id2label`.
        method: "auto", "exact", "bayesian" or "permutation". Automatically, exact values where all coalitions are no
            more than `max_evaluations`, else `BayesianShapley`. Every answer has standard deviations.
        batch_size: the most texts for the model at once.
        seed: for the choice of coalitions. Texts do not depend on the texts beside them.
        show_progress: show a progress bar.

    >>> explainer = TextExplainer(lambda texts: torch.tensor([float("not good" in text) for text in texts]))
    >>> explanation = explainer("The film is not good")
    >>> list(explanation.data), explanation.values[-2:].tolist()
    (['The ', 'film ', 'is ', 'not ', 'good'], [0.5, 0.5])
    """

    def __init__(
        self,
        model: nn.Module | Callable[[list[Any]], Tensor],
        tokenizer: Any = None,
        *,
        players: Division = "word",
        absent: str | None = None,
        output: Output = None,
        output_names: Sequence[str] | None = None,
        method: str = "auto",
        batch_size: int = 32,
        seed: int = 0,
        show_progress: bool = False,
    ) -> None:
        if not callable(players) and players not in _DIVISIONS:
            raise BadInput(f"players are 'token', 'word', 'sentence' or a function of a text, not {players!r}")
        if absent is not None and not isinstance(absent, str):
            raise BadInput(f"absent is 'mask', 'pad', 'drop' or a text, not {absent!r}")
        self.model, self.players, self.output, self.batch_size = model, players, output, batch_size
        self.vocabulary = None if tokenizer is None else _vocabulary(tokenizer, model, absent)
        if self.vocabulary is None:
            self.absent = absent_of_strings(model, players, absent, output)
        else:
            self.absent = self.vocabulary.absent
        self.automatic = method == "auto"
        self.method = method if self.automatic else find(method)
        if not self.automatic and self.method not in _EVALUATE:
            raise BadInput(f"texts are explained by 'auto', 'exact', 'bayesian' or 'permutation', not by {method!r}")
        self.wanted = Budget(batch_size=batch_size, seed=seed, show_progress=show_progress)
        self.output_names = _names(model) if output_names is None else [str(name) for name in output_names]
        self._methods: dict[str, Attribution] = {}

    def __call__(
        self,
        texts: Text | Sequence[Text],
        target: Any = None,
        *,
        max_evaluations: int | None = None,
        tolerance: float | None = None,
    ) -> Any:
        """Texts explained, as a `shap.Explanation` whose `data` are the pieces of each text and `values` theirs, with
        `base_values` (of a text without players) and `error_std`. All outputs are a last dimension.

        Args:
            texts: a list of texts. A text is a string, a pair of strings for a model of two, or a list of strings that
                are its pieces. A single string is explained by itself, without the dimension of the texts.
            target: the output to explain: its number or name, a list of them (one for each text), "predicted" for each
                text's largest, or None for all.
            max_evaluations: how many coalitions to evaluate for a text, at most. By default 2,048.
            tolerance: stop with a text when its largest standard deviation is below this fraction of
                |prediction − base|. By default 0.01, less for more than 20 players.
        """
        if not isinstance(texts, Iterable):
            raise BadInput(f"texts are a string or a list of strings, not {texts!r}")
        several = [texts] if isinstance(texts, (str, tuple)) else list(texts)
        found = self.attribute(several, target, max_evaluations=max_evaluations, tolerance=tolerance)
        explanation = explanation_of_texts(found, self._names_of(found, target))
        return explanation[0] if isinstance(texts, (str, tuple)) else explanation

    def attribute(self, texts: Sequence[Text], target: Any = None, **limits: Any) -> list[TextAttributed]:
        """The same of each text by itself, as tensors, without shap; `limits` are those of a call."""
        if not texts:
            raise BadInput("there are no texts to explain")
        targets = target if isinstance(target, (list, Tensor, np.ndarray)) else [target] * len(texts)
        if len(targets) != len(texts):
            raise BadInput(f"there are {len(targets)} targets for {len(texts)} texts")
        numbers = [self._number(each) for each in targets]
        wanted = self._wanting(**limits)
        worths = self._worths(texts)
        return [self._explained(worth, number, wanted) for worth, number in zip(worths, numbers, strict=True)]

    def outputs(self, texts: Sequence[Text]) -> Tensor:
        """The model's outputs for whole texts, (texts, outputs)."""
        return torch.cat([worth(torch.ones(1, len(worth.divided.players))) for worth in self._worths(texts)])

    def _worths(self, texts: Sequence[Text]) -> Iterator[Worth]:
        model, at_once = self._function()
        return (Worth(self._divided(text), model, at_once) for text in texts)

    def continuation(
        self,
        prompt: str | list[str],
        continuation: str,
        *,
        per_token: bool = False,
        max_evaluations: int | None = None,
        tolerance: float | None = None,
    ) -> Any:
        """Why does a language model go on like this? The log-probability of a continuation by the pieces of its prompt,
        as a `shap.Explanation`.

        Args:
            prompt: a text, or a list of strings that are its pieces.
            continuation: a text, as it is to follow: mostly with a space at its beginning.
            per_token: explain each token of the continuation given those before, instead of their sum.
            max_evaluations, tolerance: as in a call.
        """
        vocabulary = self.vocabulary
        config = getattr(self.model, "config", None)
        if vocabulary is None or getattr(config, "is_encoder_decoder", False):
            raise BadInput("a continuation needs a language model that reads from left to right, and its tokenizer")
        if not isinstance(prompt, (str, list)):
            raise BadInput("a prompt is a text, or a list of its pieces")
        tokens = vocabulary.plain(continuation)
        if not tokens:
            raise BadInput("the continuation has no tokens")
        texts, division = self._read(prompt)
        model, at_once = self._function()
        worth = Worth(
            Tokens(texts, division, vocabulary, behind=tokens), Continued(model, tokens, per_token=per_token), at_once
        )
        found = self._explained(worth, None, self._wanting(max_evaluations, tolerance))
        names = [vocabulary.tokenizer.decode([token]) for token in tokens]
        single = not per_token or len(tokens) == 1
        return explanation_of_texts([found], continuation if single else names)[0]

    def _function(self) -> tuple[Any, int]:
        """The model as a function of what coalitions are written as, and how many it takes at once."""
        if isinstance(self.model, nn.Module):
            check_evaluation_mode(self.model)
        if self.vocabulary is None:
            return self.model, self.batch_size
        model = TokenModel(self.model, self.vocabulary, self.output)  # type: ignore[arg-type]
        return model, model.most_at_once(self.batch_size)

    def _read(self, text: Text) -> tuple[tuple[str, ...], Division]:
        """The text or the two of a pair, and how they are divided."""
        if isinstance(text, list) and all(isinstance(piece, str) for piece in text):
            return ("".join(text),), lambda _: text
        if isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text):
            return text, self.players
        if not isinstance(text, str):
            raise BadInput(f"a text is a string, a pair of strings or a list of its pieces, not {text!r}")
        return (text,), self.players

    def _divided(self, text: Text) -> Divided:
        texts, division = self._read(text)
        if self.vocabulary is not None:
            return Tokens(texts, division, self.vocabulary)
        return Strings(texts, division, None if self.absent == "drop" else self.absent)

    def _wanting(self, max_evaluations: int | None = None, tolerance: float | None = None) -> Budget:
        own = self.wanted
        return Budget(tolerance, max_evaluations, seed=own.seed, show_progress=own.show_progress)

    def _explained(self, worth: Worth, target: Any, wanted: Budget) -> TextAttributed:
        """The players of one text, by the method that suits them."""
        number = len(worth.divided.players)
        if number < 2:
            found = _undivided(worth, target, number)
        else:
            on = torch.ones(1, number, dtype=torch.float64)
            request = Request.of(worth, Arguments(on, None, target), rounding=_ROUNDING)
            worth.remembers = True
            found = self._estimated(request, wanted)
        return TextAttributed(worth.divided.pieces, worth.divided.players, found)

    def _estimated(self, request: Request, wanted: Budget) -> Attributed:
        name, own = self._choice(request.players, wanted)
        if name not in self._methods:  # which keeps its linear algebra for texts of the same length
            self._methods[name] = METHODS[name].make(request.function)  # type: ignore[arg-type]
        (game,), (select,) = request.games, request.selections
        estimate = self._methods[name].explain(request, **own.options(METHODS[name], game))
        std = None if estimate.std is None else request.answer(estimate.std)
        gap = request.gaps(estimate.values)
        found = Attributed(
            request.answer(estimate.values), std, request.full, request.empty, gap, select.chosen, name,
            estimate.missed if wanted.tolerance is not None else None, evaluations=estimate.evaluations,
        )  # fmt: skip
        found.warn(wanted.tolerance)
        return found

    def _choice(self, players: int, wanted: Budget) -> tuple[str, Budget]:
        """The method, and what is wanted of it."""
        if self.method == "exact_shapley" and players > _MOST_PLAYERS:
            raise BadInput(
                f"the text has {players} players, and exact values are of {_MOST_PLAYERS} at most: choose longer ones "
                "(players='sentence'), or method='bayesian'"
            )
        if not self.automatic:
            return self.method, wanted
        most = wanted.max_evaluations or MOST
        if 2**players <= most and players <= _MOST_PLAYERS:
            log.info("Exact: %d players have only %d coalitions", players, 2**players)
            return "exact_shapley", wanted
        log.info("BayesianShapley: %d players have more than %d coalitions", players, most)
        return "bayesian_shapley", wanted.settled(most, min(TOLERANCE, _OF_A_VALUE / players))

    def _number(self, target: Any) -> Any:
        """The number of an output by its name."""
        if isinstance(target, str):
            return output_number(target, self.output_names)
        return None if target is None else int(target)

    def _names_of(self, found: list[TextAttributed], target: Any) -> list[str] | str | None:
        """The names of the outputs that are explained: of all (a function may have fewer), or of one that all have."""
        chosen = [text.found.target.flatten().tolist() for text in found]
        if self.output_names is None or any(each != chosen[0] for each in chosen):
            return None
        if max(chosen[0]) >= len(self.output_names):
            raise BadInput(f"there are {len(self.output_names)} output_names, but more outputs")
        if target is None and len(chosen[0]) < len(self.output_names):
            return None
        names = [self.output_names[number] for number in chosen[0]]
        return names if found[0].found.target.dim() > 1 else names[0]


def _vocabulary(tokenizer: Any, model: Any, absent: str | None) -> Vocabulary:
    if not isinstance(model, nn.Module):
        raise BadInput("a tokenizer is for a torch.nn.Module: a function takes texts, and needs none")
    return Vocabulary(tokenizer, model, absent)


def _undivided(worth: Worth, target: Any, players: int) -> Attributed:
    """A text with one player, who has all of prediction − base, or with none."""
    ends = worth(torch.tensor([[1.0], [0.0]])[:, :players])
    select = Selection.of(ends[:1], target)
    full, base = select(ends[:1]), select(ends[1:])
    values = (full - base)[..., None][..., :players]
    known = (values, torch.zeros_like(values), full, base, torch.zeros_like(full), select.chosen, "exact_shapley")
    return Attributed(*known, evaluations=torch.tensor([2]))


def _names(model: Any) -> list[str] | None:
    labels = getattr(getattr(model, "config", None), "id2label", None)
    return None if not labels else [str(labels[number]) for number in sorted(labels)]
