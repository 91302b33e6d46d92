"""`TextExplainer` explains a text by its tokens, words or sentences, for models of tokens and functions of texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from torch import Tensor, nn

from dasp.attribution.bayesian.bayesian_shapley import FEWEST as FEWEST_EVALUATIONS
from dasp.errors import BadInput, UndefinedCoalitions, tells_options
from dasp.explainer.explanation import (
    Attributions,
    RowFacts,
    fitting_names,
    name_of_model,
    names_of_outputs,
    names_of_rows,
    shap_explanation_of_texts,
)
from dasp.explainer.inputs import OWN_TARGET
from dasp.explainer.text.owen_values import Contexts, WordsOfSentence, owen_estimate, sentence_game, sentences_of
from dasp.explainer.text.token_model import (
    ContinuationModel,
    Output,
    PlayerText,
    TextGame,
    TokenModel,
    by_piece,
    part_of,
)
from dasp.explainer.text.tokens import Division, Strings, Vocabulary, baselines_of_strings, text_in_tokens
from dasp.formatting import INTERVAL
from dasp.games.call_options import read_options
from dasp.games.computing import computing
from dasp.games.counting import Count, Threads, suited_threads
from dasp.games.progress import working
from dasp.games.request import PREDICTED, SECOND, Arguments, Request, Selection, contrasted, output_number
from dasp.methods import METHODS, find
from dasp.methods.choose import MOST, Budget, Choice, choose_evaluations
from dasp.models.calling import DECIDING, SCALES, Scale, check_evaluation_mode
from dasp.models.row_function import class_names

__all__ = ["TextExplainer"]

log = logging.getLogger("dasp")

_DIVISIONS = ("token", "word", "sentence")
# All that can be done with a text is to evaluate the model.
_EXACT, _BAYESIAN, _PERMUTATION = "exact_shapley", "bayesian_shapley", "permutation_shapley"
_ROUNDING = torch.finfo(torch.float32).eps  # of most models, whatever functions around them make of it
_MOST_PLAYERS = METHODS[_EXACT].players or 0
_NOTHING = 1e-12  # of all sentences together, which is rounding
_CONTEXTS = 8  # of a sentence, in which its words are explained where there are too many
_MANY = 40  # pieces of a text, of which most may be nothing
_BATCH = 32  # texts for the model at once
_ASKED = "it was asked for"

Text = str | tuple[str, str] | list[str]


class TextExplainer:
    """Shapley values of the pieces of a text, as a `shap.Explanation` for `shap.plots.text`.

    Args:
        model: a module in evaluation mode that takes `input_ids` and `attention_mask`, as Hugging Face's do; without a
            tokenizer, any function from a list of texts (or of pairs of texts) to a number, or a row of numbers, for
            each (a tensor, an array or a list), such as the `predict_proba` of a pipeline of scikit-learn.
        tokenizer: the model's, a fast one; None for a function of texts.
        baselines: what is in the place of an absent piece. "mask": the mask token for each of its tokens. "pad":
            nothing, its tokens are masked out in the attention mask, and all others keep their positions. "drop":
            its text is removed, and tokens are made of what is left. Any other text: its tokens. By default "mask"
            where there is a mask token, else "drop".
        players: "word", "sentence", "token", or a function from a text to its pieces. Special tokens are no players.
        method: "auto", "exact", "bayesian" or "permutation". Automatically, exact values where all coalitions are no
            more than `max_evaluations`, else `BayesianShapley`. Every answer has standard deviations.
        target: the output to explain: its number or name, a list of them (one for each text), "predicted" for each
            text's largest, or None for all.
        versus: another output, for "why this one and not that one?": what is explained is target − versus. Its number
            or name, a list, "predicted", or "second" for the largest beside the target.
        output: what of the model's output is explained: the name of a part, or a function of the output that gives a
            tensor (texts, outputs); or "probability" or "logit" (log-odds), whichever of them the model gives. By
            default the `logits`.
        output_names: names of all outputs; by default those of `model.config.id2label`, or the classes of a classifier
            whose `predict_proba` is explained.
        tolerance: stop with a text when its largest standard deviation is below this fraction of its largest value.
            Automatically 0.05: the largest value is known to ± 10 %, unless the budget is used up before.
        max_evaluations: the largest number of coalitions to evaluate for a text. Automatically 2,048.
        max_seconds: instead, the seconds that a text may take, of "auto" and "bayesian".
        error_bars: insist on standard deviations: refuse a budget that is too small for them.
        batch_size: the most texts for the model at once. By default 32.
        device: where to compute; the model is moved there. By default it stays where it is.
        seed: for the choice of coalitions. Texts do not depend on the texts beside them.
        show_progress: None for a bar that appears after two seconds on a terminal or in a notebook, and elsewhere for a
            line every half minute in the log, "dasp"; True for a bar at once, False for nothing.
        threads: how many of torch's threads to compute with. Automatically one, unless the model's operations are large
            and there are idle cores (see `dasp.games.counting`), and never more than torch has; the log says which.

    These are the options of `Explainer`, and mean the same, as far as texts have them: a text has no background, its
    players are made by `players` alone, and all that can be done with a text is to evaluate the model.

    `method` and `reason` of an explanation say which method was taken and why. The explainer itself does not change,
    and threads may share it.

    >>> explainer = TextExplainer(lambda texts: torch.tensor([float("not good" in text) for text in texts]))
    >>> explanation = explainer("The film is not good")
    >>> list(explanation.data), explanation.values[-2:].tolist(), explanation.reason
    (['The ', 'film ', 'is ', 'not ', 'good'], [0.5, 0.5], '5 players have only 32 coalitions')
    """

    @tells_options
    def __init__(
        self,
        model: nn.Module | Callable[[list[Any]], Tensor],
        tokenizer: Any = None,
        *,
        baselines: str | None = None,
        players: Division = "word",
        method: str = "auto",
        target: Any = None,
        versus: Any = None,
        output: Output | int | Scale = None,
        output_names: Sequence[str] | None = None,
        tolerance: float | None = None,
        max_evaluations: int | None = None,
        max_seconds: float | None = None,
        error_bars: bool = False,
        batch_size: int | None = None,
        device: torch.device | str | None = None,
        seed: int = 0,
        show_progress: bool | None = None,
        threads: int | None = None,
    ) -> None:
        if not callable(players) and players not in _DIVISIONS:
            raise BadInput(f"players are 'token', 'word', 'sentence' or a function of a text, not {players!r}")
        if baselines is not None and not isinstance(baselines, str):
            raise BadInput(f"baselines are 'mask', 'pad', 'drop' or a text, not {baselines!r}")
        if not callable(model):
            raise BadInput(_no_function(model))
        given = {"batch_size": batch_size, "threads": threads, "device": device}
        batch_size, threads, device = read_options(given, dict.fromkeys(given)).values()
        if device is not None and isinstance(model, nn.Module):
            model.to(device)
        output = Scale(output) if isinstance(output, str) and output in SCALES else output
        if isinstance(output, int):
            raise BadInput(f"output={output} of a model of texts: give the name of a part, such as 'logits'")
        self.model, self.players, self.output, self.batch_size = model, players, output, batch_size or _BATCH
        self.vocabulary = None if tokenizer is None else _vocabulary(tokenizer, model, baselines)
        if self.vocabulary is None:
            self.baselines = baselines_of_strings(model, players, baselines, output)
        else:
            self.baselines = self.vocabulary.baselines
        self.requested_method = method if method == "auto" else find(method)
        if self.requested_method not in ("auto", _EXACT, _BAYESIAN, _PERMUTATION):
            raise BadInput(f"texts are explained by 'auto', 'exact', 'bayesian' or 'permutation', not by {method!r}")
        self.budget = Budget(tolerance, max_evaluations, error_bars, None, seed, show_progress, max_seconds)
        self.threads = threads
        self._threads: Threads | None = None  # that suit the model
        self.target, self.versus = target, versus
        if output_names is not None:
            self.output_names: list[str] | None = [str(name) for name in output_names]
        else:
            own = isinstance(output, Scale) or not callable(output)  # what a function makes of outputs is anything
            self.output_names = _names(model) or (class_names(model) if own else None)
        self._made: dict[str, Attribution] = {}

    @tells_options
    def __call__(self, texts: Text | Sequence[Text], target: Any = OWN_TARGET, *, versus: Any = OWN_TARGET) -> Any:
        """Explain texts as a `shap.Explanation` whose `data` are the pieces of each text and `values` theirs, with
        `base_values` (of a text without players) and `error_std`. All outputs are a last dimension. Its `method` was
        taken for its `reason`.

        Args:
            texts: a list of texts. A text is a string, a pair of strings for a model of two, or a list of strings that
                are its pieces. A single string or pair is explained by itself, without the dimension of the texts.
            target, versus: the output to explain, and that which is subtracted, if not those of the constructor.
        """
        found = self.attribute(texts, target, versus=versus)
        explanation = self._told(found, *self._names_of(found, self._target(target)))
        return explanation[0] if isinstance(texts, (str, tuple)) else explanation

    @tells_options
    def attribute(
        self, texts: Text | Sequence[Text], target: Any = OWN_TARGET, *, versus: Any = OWN_TARGET
    ) -> Attributions:
        """Explain texts as `Attributions`, which are tensors; this needs no shap. The `pieces[i]` of text i have the
        values `values[i]`, (*outputs, pieces)."""
        if not isinstance(texts, Iterable):
            raise BadInput(f"texts are a string or a list of strings, not {texts!r}")
        several: Sequence[Any] = [texts] if isinstance(texts, (str, tuple)) else list(texts)
        if not several:
            raise BadInput("there are no texts to explain")
        targets = _each("targets", self._target(target), len(several))
        others = _each("outputs as versus", self.versus if versus is OWN_TARGET else versus, len(several))
        numbers = [contrasted(self._number(one), self._number(other, (PREDICTED, SECOND)))
                   for one, other in zip(targets, others, strict=True)]  # fmt: skip
        self._decide(several)
        found = []
        with working("explaining", "text", len(several), show=self.budget.show_progress) as progress:
            for text, (game, number) in enumerate(zip(self._games(several), numbers, strict=True)):
                try:
                    found.append(self._explained(game, number))
                except UndefinedCoalitions as error:
                    names = [game.text.pieces[player].strip() for player in game.text.players]
                    raise error.named(names).after(text) from None
                progress.update()
        if any(text.std is not None for text in found):  # one permutation has no deviation
            found = [replace(text, std=text.std or [torch.full_like(text.values[0], torch.nan)]) for text in found]
        result = Attributions.cat(found)
        result.warn(self.budget.tolerance)
        _note_doubt(found)
        return result

    def _told(self, found: Attributions, outputs: Sequence[str] | str | None, rows: Sequence[str] | None = None) -> Any:
        """Return attributions as an explanation, with the facts that reports tell."""
        explanation = shap_explanation_of_texts(found, outputs, rows)
        absent = "left out" if self.baselines == "drop" else f"replaced by {self.baselines!r}"
        explanation.facts = RowFacts.of(found, name_of_model(self.model), absent, self.output_names)
        return explanation

    def outputs(self, texts: Sequence[Text]) -> Tensor:
        """Return the model's outputs for whole texts, (texts, outputs)."""
        self._decide(texts)
        return torch.cat([game(torch.ones(1, len(game.text.players))) for game in self._games(texts)])

    @tells_options
    def continuation(self, prompt: str | list[str], continuation: str, *, per_token: bool = False) -> Any:
        """Explain why a language model goes on like this: the log-probability of a continuation by the pieces of its
        prompt, as a `shap.Explanation`.

        Args:
            prompt: a text, or a list of strings that are its pieces.
            continuation: a text, as it is to follow: mostly with a space at its beginning.
            per_token: explain each token of the continuation given those before, instead of their sum.
        """
        vocabulary = self.vocabulary
        config = getattr(self.model, "config", None)
        if vocabulary is None or getattr(config, "is_encoder_decoder", False):
            raise BadInput("a continuation needs a language model that reads from left to right, and its tokenizer")
        if isinstance(self.output, Scale):
            raise BadInput("a continuation is explained by its log-probability: leave output out")
        if not isinstance(prompt, (str, list)):
            raise BadInput("a prompt is a text, or a list of its pieces")
        tokens = vocabulary.plain(continuation)
        if not tokens:
            raise BadInput("the continuation has no tokens")
        texts, division = self._read(prompt)
        model, at_once = self._function()
        text = text_in_tokens(texts, division, vocabulary, behind=tokens)
        game = TextGame(text, ContinuationModel(model, tokens, per_token=per_token), at_once)
        with working("explaining", show=self.budget.show_progress):
            found = self._explained(game, None)
        found.warn(self.budget.tolerance)
        names = [vocabulary.tokenizer.decode([token]) for token in tokens]
        single = not per_token or len(tokens) == 1
        return self._told(found, continuation if single else names)[0]

    @tells_options
    def hierarchy(
        self, text: Text, target: Any = OWN_TARGET, *, versus: Any = OWN_TARGET, divided: int | None = 3
    ) -> Any:
        """Explain a long text by its sentences first, and then the most important ones by their words, as one
        `shap.Explanation`: words of these, and the other sentences as wholes. The values of words sum to that of their
        sentence (they are Owen values: see `dasp.explainer.text.owen_values`). All are exact if the budget is large
        enough, and have standard deviations if not. `explanation.sentences` is the explanation by sentences alone.

        Args:
            text: a string, a pair of strings, or a list of strings, such as the segments of a prompt, which then stand
                for sentences.
            target, versus: the output to explain, and that which is subtracted, if not those of the constructor. One
                output is explained.
            divided: how many sentences are explained by their words: those with the largest values. None for all.

        Words are the `players` of the explainer. `max_evaluations`, by default 2,048, are for all of the text: at most
        half of them for sentences, and the rest for the words of those that are divided.

        >>> found = TextExplainer(lambda texts: torch.tensor([float("not good" in text) for text in texts])).hierarchy(
        ...     "I saw it. The film is not good.", divided=1)
        >>> list(found.data), found.values.round(3)
        (['I saw it. ', 'The ', 'film ', 'is ', 'not ', 'good.'], array([ 0. ,  0. ,  0. , -0. ,  0.5,  0.5]))
        >>> found.sentences.values.tolist()
        [0.0, 1.0]
        """
        if self.players == "sentence" or self.requested_method != "auto" or self.budget.max_seconds is not None:
            raise BadInput(
                "a hierarchy is of sentences and what is within them, by methods that the budget decides on: give "
                "players='word', 'token' or a function, max_evaluations, and neither method nor max_seconds"
            )
        if divided is not None and divided < 1:
            raise BadInput(f"divided must be at least 1, or None for all sentences, not {divided}")
        texts, pieces = self._read(text)
        self._decide([text])
        model, at_once = self._function()
        game = TextGame(self._in_pieces(texts, self.players), model, at_once)
        numbers = sentences_of(game.text.pieces, texts, pieces if isinstance(text, list) else "sentence")
        wanted = self._target(target), self.versus if versus is OWN_TARGET else versus
        number = contrasted(self._number(wanted[0]), self._number(wanted[1], (PREDICTED, SECOND)))
        with working("explaining", show=self.budget.show_progress), computing(self.threads or 1):
            whole, found = self._by_sentence_and_word(game, numbers, number, divided)
        found.warn(self.budget.tolerance)
        names = self._names_of(found, wanted[0])
        explanation = self._told(found, *names)[0]
        explanation.sentences = self._told(whole, *names)[0]
        return explanation

    def _by_sentence_and_word(
        self, game: TextGame, numbers: list[int], target: Any, divided: int | None
    ) -> tuple[Attributions, Attributions]:
        """Return the attributions to the sentences of a text, and to the words of the most important ones."""
        ends = game(_both_ends(game))
        select = Selection.of(ends[:1], target)
        if select.chosen.dim() > 1:
            raise BadInput(
                f"a hierarchy is of one output, and the model has {select.chosen.numel()}: choose one by target"
            )
        outputs = select.chosen, *([] if select.against is None else [select.against])

        def value(masks: Tensor) -> Tensor:
            own, *others = (game(masks).reshape(len(masks), -1)[:, int(each)].double() for each in outputs)
            return own - others[0] if others else own

        players = torch.tensor([numbers[place] for place in game.text.players], dtype=torch.int64)
        there, players = torch.unique(players, return_inverse=True)  # a sentence may have no players
        count, total = len(there), self.budget.max_evaluations or MOST
        pieces = ["".join(piece for piece, own in zip(game.text.pieces, numbers, strict=True) if own == number)
                  for number in range(max(numbers, default=0) + 1)]  # fmt: skip
        most = total // 2 if 2**count <= total // 2 else max(FEWEST_EVALUATIONS, total // 4)
        values, std, used, choice = self._estimate(sentence_game(value, players, count), count, most, game)
        by_sentence = torch.zeros(2, len(pieces), dtype=torch.float64)
        values = torch.where(values.abs() <= _NOTHING * values.abs().sum(1, keepdim=True), 0, values)
        by_sentence[:, there] = torch.stack([values[0], std[0]])
        sizes = torch.bincount(players, minlength=count)
        order = [i for i in values[0].abs().argsort(descending=True, stable=True).tolist() if sizes[i] > 1][:divided]
        words: dict[int, Tensor] = {}
        for done, own in enumerate(order):
            budget = (total - used) // (len(order) - done)
            sentence = float(values[0, own]), float(std[0, own])
            estimate, cost = self._within(value, players, own, budget, sentence, game)
            words[int(there[own])] = estimate
            used += cost
        shown, columns = [], []
        places = {place: player for player, place in enumerate(game.text.players)}
        for number, piece in enumerate(pieces):
            if number not in words:
                shown.append(piece)
                columns.append(by_sentence[:, number])
                continue
            inside = iter(words[number].T)
            for place, own in enumerate(numbers):
                if own == number:
                    shown.append(game.text.pieces[place])
                    columns.append(next(inside) if place in places else torch.zeros(2, dtype=torch.float64))
        full, base = select(ends[:1]), select(ends[1:])
        parts = []
        reason = f"of {count} sentences, {len(words)} are divided into words"
        for kept, text in ((by_sentence, pieces), (torch.stack(columns, 1), shown)):
            gap = kept[0].sum() - (full - base).double()
            choice = Choice("Owen values", reason, self.budget) if text is shown else choice
            parts.append(
                Attributions(
                    [kept[0]], [kept[1]], full, base, gap, select.chosen, (choice,), self._missed(None),
                    evaluations=torch.tensor([used]), pieces=[text], versus=select.against,
                )
            )  # fmt: skip
        return parts[0], parts[1]

    def _within(
        self, value: Any, players: Tensor, own: int, budget: int, sentence: tuple[float, float], game: TextGame
    ) -> tuple[Tensor, int]:
        """Return the values of the words of a sentence with their standard deviations, (2, words), and how many texts
        were evaluated."""
        words, sentences = int((players == own).sum()), int(players.max()) + 1
        all_contexts = 2 ** (sentences - 1)
        most = min(all_contexts, budget // 2**words) if words < _MOST_PLAYERS else 0
        most = max(most, min(all_contexts, _CONTEXTS))  # if too few for all coalitions, these are estimated from
        contexts = Contexts.of(sentences, own, most, self.budget.seed)
        each = budget // len(contexts.masks)
        if each < min(FEWEST_EVALUATIONS, 2**words):
            raise BadInput(
                f"{budget} evaluations are left for a sentence of {words} words, which are explained in "
                f"{len(contexts.masks)} contexts: allow for more by max_evaluations, or divide fewer sentences"
            )
        inside = WordsOfSentence(value, players, own, contexts)
        values, std, used, _ = self._estimate(inside, words, each, game)
        return torch.stack(owen_estimate(values, std, sentence, contexts)), used * len(contexts.masks)

    def _estimate(
        self, function: Callable[[Tensor], Tensor], players: int, most: int, game: TextGame
    ) -> tuple[Tensor, Tensor, int, Choice]:
        """Return the Shapley values of a game with their standard deviations, (outputs, players), the coalitions that
        it took, and the method."""
        if players < 2:
            ends = function(torch.tensor([[1.0], [0.0]])[:, :players]).reshape(2, -1).double()
            values = (ends[:1] - ends[1:]).T[:, :players]
            choice = Choice(_EXACT, f"{players} players have only {2**players} coalitions", self.budget)
            return values, torch.zeros_like(values), 2, choice
        on = torch.ones(1, players, dtype=torch.float64)
        request = Request.of(function, Arguments(on, None, None), rounding=_ROUNDING)
        game.remembers = True
        choice = choose_evaluations(players, replace(self.budget, max_evaluations=most))
        found = self._estimated(request, choice)
        shape = (-1, players)
        std = torch.zeros_like(found.values) if found.std is None else found.std
        used = 2**players if found.evaluations is None else int(found.evaluations.max())
        return found.values.double().reshape(shape), std.double().reshape(shape), used, choice

    def _games(self, texts: Sequence[Text]) -> Iterator[TextGame]:
        model, at_once = self._function()
        return (TextGame(self._with_players(text), model, at_once) for text in texts)

    def _decide(self, some: Sequence[Text]) -> None:
        """Decide by the outputs of some texts what brings the outputs to a scale, unless that is known."""
        if not isinstance(self.output, Scale):
            return
        with DECIDING:
            if self.output.kind is None:
                games = list(self._games(some[:_BATCH]))
                self.output.decide(torch.cat([game(_both_ends(game)) for game in games]))

    def _function(self) -> tuple[Any, int]:
        """Return the model as a function of what coalitions are written as, and how many it takes at once."""
        if isinstance(self.model, nn.Module):
            check_evaluation_mode(self.model)
        if self.vocabulary is None:
            wanted = self.output
            if wanted is None:
                return self.model, self.batch_size
            return (lambda texts: part_of(self.model(texts), wanted)), self.batch_size
        model = TokenModel(self.model, self.vocabulary, self.output)  # type: ignore[arg-type]
        return model, model.most_at_once(self.batch_size)

    def _read(self, text: Text) -> tuple[tuple[str, ...], Division]:
        """Return the text or the two of a pair, and how they are divided."""
        if isinstance(text, list) and all(isinstance(piece, str) for piece in text):
            return ("".join(text),), lambda _: text
        if isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text):
            return text, self.players
        if not isinstance(text, str):
            raise BadInput(f"a text is a string, a pair of strings or a list of its pieces, not {text!r}")
        return (text,), self.players

    def _with_players(self, text: Text) -> PlayerText:
        return self._in_pieces(*self._read(text))

    def _in_pieces(self, texts: tuple[str, ...], division: Division) -> PlayerText:
        if self.vocabulary is not None:
            return text_in_tokens(texts, division, self.vocabulary)
        return Strings(texts, division, None if self.baselines == "drop" else self.baselines)

    def _explained(self, game: TextGame, target: Any) -> Attributions:
        """Explain one text by the method that suits its players."""
        players, most = len(game.text.players), torch.get_num_threads()
        with computing(self.threads or 1):  # a few evaluations
            if players < 2:
                found = self._undivided(game, target, players)
            else:
                on = torch.ones(1, players, dtype=torch.float64)
                request = Request.of(game, Arguments(on, None, target), rounding=_ROUNDING)
                choice, threads = self._choice(request), self._suited(request, game.batch_size, most)
        if players >= 2:
            game.remembers = True
            with computing(self.threads or min(threads.number, most)):
                found = self._estimated(request, replace(choice, threads=threads))
        std = None if found.std is None else [by_piece(found.std, game.text)]
        return replace(found, values=[by_piece(found.values, game.text)], std=std, pieces=[game.text.pieces])

    def _suited(self, request: Request, at_once: int, most: int) -> Threads:
        """Return the threads for all texts, by what the model does for the first one."""
        if self.threads is not None:
            return Threads(self.threads, _ASKED)
        if self.vocabulary is None:  # which may be costly to count: an endpoint, say
            return Threads(1, "the model is a function of texts")
        if self._threads is None:
            self._threads = suited_threads(most, request, lambda: Count.of_request(request, at_once))
            if most > 1:  # else there was nothing to choose
                log.info("threads: %s", self._threads)
        return self._threads

    def _undivided(self, game: TextGame, target: Any, players: int) -> Attributions:
        """Explain a text with one player, who has all of prediction − base, or with none."""
        ends = game(_both_ends(game))
        select = Selection.of(ends[:1], target)
        full, base = select(ends[:1]), select(ends[1:])
        values = (full - base)[..., None][..., :players]
        choice = Choice(_EXACT, f"{players} players have only {2**players:,} coalitions", self.budget)
        return Attributions(
            values, torch.zeros_like(values), full, base, torch.zeros_like(full), select.chosen, (choice,),
            self._missed(None), evaluations=torch.tensor([2]), versus=select.against,
        )  # fmt: skip

    def _estimated(self, request: Request, choice: Choice) -> Attributions:
        name = choice.method
        if name not in self._made:  # which keeps its linear algebra for texts of the same length
            self._made[name] = METHODS[name].make(request.function)  # type: ignore[arg-type]
        (game,), (select,) = request.games, request.selections
        estimate = self._made[name].explain(request, **choice.budget.options(METHODS[name], game))
        std = None if estimate.std is None else request.answer(estimate.std)
        return Attributions(
            request.answer(estimate.values), std, request.full, request.empty, request.gaps(estimate.values),
            select.chosen, (choice,), self._missed(estimate.missed), evaluations=estimate.evaluations,
            versus=select.against,
        )  # fmt: skip

    def _missed(self, missed: Tensor | None) -> Tensor | None:
        """Return whether a text missed the user's tolerance; None if there is none, as our own is not theirs."""
        if self.budget.tolerance is None:
            return None
        return torch.zeros(1, dtype=torch.bool) if missed is None else missed

    def _choice(self, request: Request) -> Choice:
        """Return the method for a text, and why."""
        players, budget = request.players, self.budget
        if self.requested_method == _EXACT and players > _MOST_PLAYERS:
            raise BadInput(
                f"the text has {players} players, and exact values are of {_MOST_PLAYERS} at most: choose longer ones "
                "(players='sentence'), or method='bayesian'"
            )
        if self.requested_method != "auto":
            return Choice(self.requested_method, _ASKED, budget)
        return choose_evaluations(players, budget)

    def _target(self, target: Any) -> Any:
        return self.target if target is OWN_TARGET else target

    def _number(self, target: Any, words: tuple[str, ...] = (PREDICTED,)) -> Any:
        """Return the number of an output by its name."""
        if isinstance(target, str):
            return output_number(target, self.output_names, words)
        return None if target is None else int(target)

    def _names_of(self, found: Attributions, target: Any) -> tuple[list[str] | None, list[str] | None]:
        """Return the names of all outputs that are explained, or else the name of what is explained of each text."""
        if found.target.dim() == 1:
            return None, names_of_rows(found, fitting_names(self.output_names, target))
        alike = self.output_names is not None and found.target.shape[1] == len(
            self.output_names
        )  # a function's may not
        return names_of_outputs(found, self.output_names if alike else None), None


def _each(what: str, given: Any, number: int) -> Any:
    """Return what is given for each text, or for all."""
    several = given if isinstance(given, (list, Tensor, np.ndarray)) else [given] * number
    if len(several) != number:
        raise BadInput(f"there are {len(several)} {what} for {number} texts")
    return several


def _note_doubt(found: list[Attributions]) -> None:
    """Say in the log that a text has so many pieces that most of them may be nothing."""
    for each in found:
        if each.std is None or each.values[0].shape[-1] < _MANY:
            continue
        unsure = (each.values[0].abs() <= INTERVAL * each.std[0]) & (each.std[0] > 0)
        if (part := float(unsure.double().mean())) > 0.5:
            log.warning(
                "%.0f %% of the %d pieces of a text may be nothing, as their intervals include 0: explain sentences "
                "(players='sentence', or hierarchy), or allow for more evaluations",
                100 * part, each.values[0].shape[-1],
            )  # fmt: skip
            return


def _both_ends(game: TextGame) -> Tensor:
    """Return the masks of all players and of none."""
    players = len(game.text.players)
    return torch.stack([torch.ones(players), torch.zeros(players)])


def _vocabulary(tokenizer: Any, model: Any, baselines: str | None) -> Vocabulary:
    if not isinstance(model, nn.Module):
        raise BadInput("a tokenizer is for a torch.nn.Module: a function takes texts, and needs none")
    return Vocabulary(tokenizer, model, baselines)


def _no_function(model: Any) -> str:
    """Return what to give in place of what cannot be called."""
    name = type(model).__name__
    method = next((each for each in ("predict_proba", "decision_function", "predict") if hasattr(model, each)), None)
    if method is None:
        return f"the model is a module or a function of a list of texts, not a {name}"
    return f"a {name} is no function of texts: give its method, model.{method}"


def _names(model: Any) -> list[str] | None:
    labels = getattr(getattr(model, "config", None), "id2label", None)
    return None if not labels else [str(labels[number]) for number in sorted(labels)]
