"""Games on real trained networks: photos, faces, speech, pitch, voices, sentences, reviews, DNA, files, scanned lines,
and on small trained networks of `zoo.py`, of those that are for reporting only.

A game is a network, an input, what is there in the place of absent players, and who the players are. Its true Shapley
values are enumerated where all coalitions are quickly evaluated, and else the mean of antithetic permutations, in parts
of fifty that are kept in results/cache one by one, with their standard error. Of the 50,176 pixels of a photo no
permutation can be walked: the reference is the mean of two independent long runs of gradients at coalitions, from which
no noise is taken out by neighbours (it would be biased), and its error half of their difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
import skimage.transform
import torch
from torch import Tensor, nn

import real_networks as networks
from dasp import ExactShapley, PermutationShapley
from dasp.attribution.gradient_shapley import _combined, _Sample
from dasp.games.progress import Work
from dasp.games.request import Arguments, Request
from dasp.players import blocks, superpixels, windows
from reproduction.dna import DNA
from reproduction.store import Store, checksum
from zoo import CASES

STORE = Store(Path("results") / "cache")
RATE = 16_000  # samples of a second
_PART = 50  # permutations
_REFERENCE_PART, _REFERENCE_GROUPS = 100, 10  # pairs of passes, and groups of pixels that move in turn


@dataclass(frozen=True)
class Setting:
    """All that is needed to play a game: the arguments of `Explainer`, or a text for `TextExplainer`."""

    model: Any
    x: Tensor
    baselines: Tensor
    mask: Tensor | None = None
    target: Any = 0
    background: bool = False
    text: tuple[Callable[[list[str]], Tensor], str] | None = None  # a function of texts, and the text

    def request(self) -> Request:
        """Return what is asked of a method."""
        arguments = Arguments(self.x, self.baselines, self.target, None, self.mask, background=self.background)
        return Request.of(self.model, arguments)

    @property
    def differentiable(self) -> bool:
        """True for a network of PyTorch with inputs that are no whole numbers."""
        return isinstance(self.model, nn.Module) and self.x.is_floating_point()


@dataclass(frozen=True)
class Truth:
    """The true Shapley values and their standard errors, (players, rows)."""

    values: Tensor
    error: Tensor

    @property
    def size(self) -> float:
        """The rms of the values, without what the error adds to it."""
        return float((self.values.square().mean() - self.error.square().mean()).clamp(min=0).sqrt())

    @property
    def relative_error(self) -> float:
        """The rms of the standard errors, relative to that of the values."""
        return float(self.error.square().mean().sqrt()) / self.size


@dataclass(frozen=True)
class RealGame:
    """A game by its name."""

    name: str
    network: str
    players: str  # what they are
    make: Callable[[], Setting]
    permutations: int = 0  # for the truth; 0 if all coalitions are evaluated
    reference: int = 0  # instead, pairs of passes of GradientShapley in each of two halves

    def truth(self, request: Request) -> Truth:
        """Return the truth, as far as it is not kept computed here."""
        ends = torch.stack([request.empty, request.full]).flatten().tolist()
        inputs = [(*game.on, *(off for row in game.baselines for off in row), *game.masks) for game in request.games]
        inputs = [tensor for tensors in inputs for tensor in tensors]
        key = {"inputs": checksum(inputs), "ends": [f"{end:.4g}" for end in ends]}
        if self.reference:
            return self._reference(request, key)
        if not self.permutations:
            (values,) = [STORE.keep(f"real/{self.name}-exact", key, partial(_exact, request))]
            return Truth(values, torch.zeros_like(values))
        parts = [
            STORE.keep(f"real/{self.name}-permutations-{part}", key, partial(_permutations, request, part))
            for part in range(self.permutations // _PART)
        ]
        error = torch.stack([part["error"] for part in parts]).square().mean(0).div(len(parts)).sqrt()
        return Truth(torch.stack([part["values"] for part in parts]).mean(0), error)

    def _reference(self, request: Request, key: dict[str, Any]) -> Truth:
        def half(first: int) -> Tensor:
            seeds = range(first, 2 * self.reference // _REFERENCE_PART, 2)
            return torch.stack([
                STORE.keep(f"real/{self.name}-raw-gradients-{seed}", key, partial(_gradients, request, seed))
                for seed in seeds
            ]).mean(0)  # fmt: skip

        one, other = half(0), half(1)
        error = (one - other).square().mean().sqrt() / 2
        return Truth((one + other) / 2, error.expand_as(one))


def _exact(request: Request) -> Tensor:
    (values,) = ExactShapley(request.function).explain(request).values
    return values.double().flatten(1)


def _permutations(request: Request, part: int) -> dict[str, Tensor]:
    method = PermutationShapley(request.function)
    estimate = method.explain(request, n_permutations=_PART, seed=12_345 + part)
    (values,), (error,) = estimate.values, estimate.std or []
    return {"values": values.double().flatten(1), "error": error.double().flatten(1)}


def _gradients(request: Request, seed: int) -> Tensor:
    (evaluator,), rows = request.evaluators(None, Work("gradients")), torch.arange(len(request.full))
    sample = _Sample(evaluator, 0, _REFERENCE_GROUPS, 54_321 + seed)
    sample.grow(_REFERENCE_PART // _REFERENCE_GROUPS, rows)
    values, _ = _combined(*sample.moving.mean(rows), *sample.resting.mean(rows))
    return values.flatten(1)


# Photos, which come with scikit-image.


@cache
def _photo(name: str, side: int) -> Tensor:
    """Return the middle of a photo as EfficientNet-Lite takes it, (1, 3, side, side); 0 is grey."""
    return (_square(getattr(skimage.data, name)(), side) * 255 - 127) / 128


def _square(photo: np.ndarray, side: int) -> Tensor:
    height, width = photo.shape[:2]
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    small = skimage.transform.resize(photo[top : top + edge, left : left + edge], (side, side), anti_aliasing=True)
    return torch.tensor(small).float().permute(2, 0, 1)[None]


def _photo_game(name: str, side: int, mask: Callable[[Tensor], Tensor]) -> Setting:
    x = _photo(name, side)
    model = networks.efficientnet()
    with torch.no_grad():
        kind = int(model(x).argmax(1))
    return Setting(model, x, torch.zeros_like(x), mask(x), kind)


def _block_mask(size: int) -> Callable[[Tensor], Tensor]:
    return lambda x: blocks(tuple(x.shape[1:]), size)[None]


def _superpixel_mask(number: int) -> Callable[[Tensor], Tensor]:
    return lambda x: superpixels(x, number)


def _face(side: int) -> Tensor:
    """Return the face of the astronaut Eileen Collins as MTCNN takes it; 0 is grey."""
    return (_square(skimage.data.astronaut()[50:200, 150:300], side) * 255 - 127.5) / 128


def _face_game(model: Callable[[], nn.Module], side: int, mask: Callable[[Tensor], Tensor] | None) -> Setting:
    x = _face(side)
    return Setting(model(), x, torch.zeros_like(x), None if mask is None else mask(x))


# Sounds, which are computed: a voice is a row of pulses through three resonances.

_VOWELS = {"a": (730, 1090, 2440), "e": (530, 1840, 2480), "i": (270, 2290, 3010), "u": (300, 870, 2240)}


@cache
def _speech(vowels: str, pitch: float, seconds: float) -> np.ndarray:
    """Return vowels one after the other, with a little noise."""
    samples = int(RATE * seconds / len(vowels))
    generator = np.random.default_rng(0)
    parts = []
    for number, vowel in enumerate(vowels):
        time = (np.arange(samples) + number * samples) / RATE
        sound = np.diff(np.floor(time * pitch * (1 + 0.03 * np.sin(5 * time))), prepend=0.0)
        for formant in _VOWELS[vowel]:
            sound = _resonance(sound, formant, 60 + formant / 20)
        parts.append(sound / np.abs(sound).max())
    return 0.3 * np.concatenate(parts) + 0.003 * generator.standard_normal(samples * len(vowels))


def _resonance(sound: np.ndarray, frequency: float, width: float) -> np.ndarray:
    from scipy.signal import lfilter  # noqa: PLC0415

    radius = np.exp(-np.pi * width / RATE)
    return lfilter([1.0], [1.0, -2 * radius * np.cos(2 * np.pi * frequency / RATE), radius**2], sound)


def _mel(sound: np.ndarray, frames: int) -> Tensor:
    """Return the mel spectrogram that Resemblyzer takes, (1, frames, 40)."""
    from transformers.audio_utils import mel_filter_bank, spectrogram  # noqa: PLC0415

    filters = mel_filter_bank(201, 40, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
    window = np.hanning(401)[:-1]
    mel = spectrogram(sound, window, 400, 160, power=2.0, mel_filters=filters)
    return torch.tensor(mel.T[None, :frames]).float()


def _pitch_game(size: int) -> Setting:
    frame = torch.tensor(_speech("a", 180.0, 0.5)[2048:3072]).float()[None]
    x = (frame - frame.mean()) / frame.std()
    model = networks.crepe()
    with torch.no_grad():
        pitch = int(model(x).argmax(1))
    return Setting(model, x, torch.zeros_like(x), windows((1024,), size)[None], pitch)


def _voice_game(frames: int, bands: int) -> Setting:
    """Two recordings of a voice, other vowels; players are groups of frames and bands of the first."""
    x, other = _mel(_speech("aeiu", 120.0, 0.8), 64), _mel(_speech("uiea", 125.0, 0.8), 64)
    rows, columns = torch.arange(64) // frames, torch.arange(40) // bands
    mask = rows[:, None] * (int(columns.max()) + 1) + columns
    return Setting(networks.resemblance(other), x, torch.zeros_like(x), mask[None])


def _speech_game(size: int) -> Setting:
    x = torch.tensor(_speech("ai", 120.0, 0.5)[1000:1576]).float()[None]
    return Setting(networks.voice_activity(), x, torch.zeros_like(x), windows((576,), size)[None])


# Sentences and texts.

_SENTENCES = {
    "short": ("The old dog sleeps in the warm kitchen near the fire.", "A pet is resting indoors where it is cosy."),
    "long": (
        "Although the train was late and it rained all day, we enjoyed the museum and the little cafe behind it.",
        "In spite of bad weather and delays, visitors liked the exhibition and the coffee.",
    ),
    "words": ("Scientists found a new planet that may have water under its icy crust", "Astronomers discover an ocean"),
}


def _token_game(name: str) -> Setting:
    model, x, mask_token, _ = networks.sentence_similarity(*_SENTENCES[name])
    baselines = mask_token.expand_as(x).contiguous()
    return Setting(model, x, baselines, torch.arange(x.shape[1])[None, :, None].expand(x.shape).contiguous())


def _text_game() -> Setting:
    """Words of a sentence, which are left out; for `TextExplainer`, and as a function of who is there."""
    text, other = _SENTENCES["words"]
    bert, tokenizer = networks.minilm()

    @torch.no_grad()
    def vectors(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        there = tokens["attention_mask"][..., None]
        mean = (bert(**tokens)[0] * there).sum(1) / there.sum(1)
        return nn.functional.normalize(mean, dim=1)

    vector = vectors([other])

    def similarity(texts: list[str]) -> Tensor:
        return torch.cat([vectors(texts[i : i + 64]) for i in range(0, len(texts), 64)]) @ vector.T

    words = text.split(" ")

    def of_presence(present: Tensor) -> Tensor:
        return similarity([" ".join(w for w, p in zip(words, row, strict=True) if p > 0) for row in present.tolist()])

    x = torch.ones(1, len(words))
    return Setting(of_presence, x, torch.zeros_like(x), text=(similarity, text))


def _review_game() -> Setting:
    text = "the food was not bad but the waiter was rude and we will never come back again"
    model, x, padding, number = networks.sentiment(text)
    mask = (
        torch.arange(200).clamp(max=number - 1)[:, None].expand(200, 100)
    )  # padding is nobody's: it is as the baseline
    return Setting(model, x, padding.expand_as(x).contiguous(), mask[None].contiguous())


# Letters of DNA, bytes of a file, a scanned line.


def _splice_game() -> Setting:
    """A made-up gene: an exon of 120 letters with the signals around it that cells look for, among random letters. Its
    donor is explained by 16 windows of 20 letters around it; absent letters are unknown (N)."""
    generator = np.random.default_rng(3)
    letters = generator.integers(0, 4, 10_001)
    donor = 5000

    def write(start: int, text: str) -> None:
        letters[start : start + len(text)] = ["ACGT".index(letter) for letter in text]

    write(donor - 2, "CAGGTAAGTAT")  # the last letter of the exon is in the middle of the window
    write(donor - 142, "TACTAACTTTTCCTTTTCTTTCAGG")
    x = torch.zeros(1, 4, 10_001)
    x[0, letters, torch.arange(10_001)] = 1
    off = x.clone()
    off[..., donor - 160 : donor + 160] = 0
    mask = ((torch.arange(10_001) - (donor - 160)) // 20).clamp(0, 15)
    return Setting(networks.OneOutput(networks.splice(), 2).eval(), x, off, mask.expand(1, 4, -1).contiguous())


@cache
def _dna_network() -> nn.Module:
    experiment = DNA()
    data = experiment.data()
    model = experiment.network(data)
    model.load_state_dict(STORE.keep("real/dna-network", {}, lambda: dict(experiment.train(data).state_dict())))
    return model.eval()


def _dna_game(size: int) -> Setting:
    x = DNA().test.one_hot[3::4][:2]
    return Setting(_dna_network(), x, torch.zeros_like(x), (torch.arange(200) // size).expand(1, 4, 200).contiguous())


_SOURCE = Path(__file__).with_name("settings.py")


def _file_game() -> Setting:
    """Is a file Python? Magika sees the first and the last 1,024 bytes; absent ones are padding. Explained is the
    logarithm of the odds."""
    own = torch.tensor(list(_SOURCE.read_bytes().strip()), dtype=torch.int32)
    x = torch.cat([own[:1024], own[-1024:]])[None]
    network = networks.onnx_function("magika", "models/standard_v3_3/model.onnx")
    kind = int(network(x).argmax(1))

    def odds(rows: Tensor) -> Tensor:
        return network(rows)[:, kind : kind + 1].logit(1e-6)

    return Setting(odds, x, torch.full_like(x, 256), windows((2048,), 64)[None])


def _scanned_line(height: int, width: int) -> Tensor:
    """Return the beginning of the title of a scanned page, as RapidOCR takes it; 0 is grey."""
    page = skimage.data.page()[10:34, 3 : 3 + 24 * width // height]  # its title
    line = skimage.transform.resize(page, (height, width), anti_aliasing=True)
    return torch.tensor((line - 0.5) / 0.5).float().expand(1, 3, -1, -1).contiguous()


def _angle_game() -> Setting:
    x = _scanned_line(48, 192)
    function = networks.onnx_function("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx")
    return Setting(function, x, torch.zeros_like(x), blocks((3, 48, 192), (12, 16))[None])


def _reading_game() -> Setting:
    """How sure is OCR of what it reads: the mean log-probability of the letters, by windows of the line."""
    x = _scanned_line(48, 320)
    network = networks.onnx_function("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx")
    best = network(x).argmax(2)[0]
    places = best.nonzero()[:, 0]  # the others are blank

    def function(rows: Tensor) -> Tensor:
        return network(rows)[:, places, best[places]].clamp(min=1e-6).log().mean(1, keepdim=True)

    return Setting(function, x, torch.zeros_like(x), windows((3, 48, 320), 16)[None])


def _zoo_game(name: str) -> Setting:
    (case,) = (case for case in CASES if case.name == name)
    assert not case.development
    model = case.network.trained(STORE)
    x, off, mask = case.arguments(3)
    with torch.no_grad():
        target = model(x).argmax(1).tolist()
    return Setting(model, x, off, mask, target, background=case.background > 0)


def _zoo(name: str, network: str, players: str, permutations: int = 0) -> RealGame:
    return RealGame(f"zoo-{name}", network, players, partial(_zoo_game, name), permutations)


_refinement, _output = networks.refinement_net, partial(networks.output_net, probability=True)

GAMES = [
    RealGame("photo-49", "EfficientNet-Lite0", "blocks", lambda: _photo_game("chelsea", 224, _block_mask(32)), 400),
    RealGame("photo-16", "EfficientNet-Lite0", "blocks", lambda: _photo_game("coffee", 128, _block_mask(32)), 150),
    RealGame("photo-36", "EfficientNet-Lite0", "blocks", lambda: _photo_game("rocket", 128, _block_mask(22)), 100),
    RealGame(
        "photo-superpixels",
        "EfficientNet-Lite0",
        "superpixels",
        lambda: _photo_game("chelsea", 128, _superpixel_mask(30)),
        100,
    ),
    RealGame(
        "photo-pixels",
        "EfficientNet-Lite0",
        "pixels",
        lambda: _photo_game("chelsea", 224, _block_mask(1)),
        reference=800,
    ),
    RealGame("face-36", "MTCNN R-Net", "blocks", lambda: _face_game(_refinement, 24, _block_mask(4)), 500),
    RealGame("face-pixels", "MTCNN R-Net", "pixels", lambda: _face_game(_refinement, 24, _block_mask(1)), 300),
    RealGame("face-entries", "MTCNN R-Net", "pixels by colour", lambda: _face_game(_refinement, 24, None), 100),
    RealGame("face-144", "MTCNN O-Net", "blocks", lambda: _face_game(_output, 48, _block_mask(4)), 200),
    RealGame(
        "face-superpixels", "MTCNN O-Net", "superpixels", lambda: _face_game(_output, 48, _superpixel_mask(30)), 400
    ),
    RealGame("pitch-16", "CREPE", "windows of sound", lambda: _pitch_game(64), 400),
    RealGame("pitch-64", "CREPE", "windows of sound", lambda: _pitch_game(16), 100),
    RealGame("voice-16", "Resemblyzer", "groups of frames", lambda: _voice_game(4, 40), 300),
    RealGame("voice-40", "Resemblyzer", "frames × mel bands", lambda: _voice_game(8, 8), 200),
    RealGame("speech-18", "Silero VAD", "windows of sound", lambda: _speech_game(32)),
    RealGame("speech-72", "Silero VAD", "windows of sound", lambda: _speech_game(8), 500),
    RealGame("speech-576", "Silero VAD", "samples of sound", lambda: _speech_game(1), 600),
    RealGame("sentence-12", "MiniLM", "tokens", lambda: _token_game("short")),
    RealGame("sentence-22", "MiniLM", "tokens", lambda: _token_game("long"), 100),
    RealGame("sentence-words", "MiniLM as a function", "words", _text_game),
    RealGame("review-17", "torch-sentiment", "words", _review_game, 500),
    RealGame("splice-16", "SpliceAI", "windows of DNA", _splice_game, 50),
    RealGame("dna-20", "DNA network", "windows of DNA", lambda: _dna_game(10), 500),
    RealGame("dna-200", "DNA network", "positions", lambda: _dna_game(1), 300),
    RealGame("file-32", "Magika (ONNX)", "windows of bytes", _file_game, 100),
    RealGame("angle-48", "RapidOCR angle (ONNX)", "blocks", _angle_game, 400),
    RealGame("reading-20", "RapidOCR text (ONNX)", "windows of a line", _reading_game, 50),
    _zoo("hard-parkinsons-0", "perceptron, trained hard", "columns"),
    _zoo("hard-parkinsons12-2-background25", "perceptron, 25 background rows", "columns"),
    _zoo("conv-mnist14-1", "convolutions", "pixels", 300),
    _zoo("resnet20-mnist14-1-7", "ResNet-20", "blocks", 400),
    _zoo("transformer-words-1", "Transformer", "words"),
    _zoo("lstm-words-1", "LSTM", "words"),
]
