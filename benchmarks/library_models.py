"""What do `GradientDASP` and `Explainer` do with the architectures of public libraries, as these build them?

    python benchmarks/library_models.py [MODEL …] [--library timm] [--again] [--table]

Small versions of real depth, with random weights: nothing is downloaded. For every model: the processor's seconds of
one thread to trace and lift it, the error of `GradientDASP` (RMSE against exact Shapley values of 8 or 9 players,
relative to their root mean square; rank "auto", and 0), what a user is told who asks for `method="gradient"` (how far
coalitions of the first row say that its values are off), or the sentence by which it is refused; and what `Explainer`
takes by itself, with its error, and the same if it may evaluate only 128 coalitions. Players are groups of tokens,
blocks of pixels, windows of a recording, or groups of nodes of a graph.

Libraries' own beginnings leave networks nearly linear: scales of residual branches are 0 or 1e-6, and weights of width
64 have a deviation of 0.02. Here weights deviate at least by what their width asks for, constants are shaken, and
normalisations by batches have seen one. Tokens are absent as one and the same random vector, all else as zeros.

Every model has a process of its own, which is ended after some seconds of processor time. What is found is appended to
benchmarks/library-models.csv, and what is there is not measured again. A library that cannot be imported is
skipped, with the reason.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import logging
import math
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp import ExactShapley, Explainer, GradientDASP
from dasp.errors import BadInput, UnexplainedRows, UnsupportedOperation, UntraceableModel, line_of
from dasp.games.request import Arguments, Request
from dasp.methods import METHODS

FILE = Path(__file__).parent / "library-models.csv"
SECONDS = 180  # of processor time, for a model
POOR = 0.3  # an error beyond which values say little
WIDTH, HEADS, LAYERS, TOKENS, GROUPS, SIDE = 64, 4, 6, 16, 8, 3
LIMITED = 128  # evaluations of a default answer that may not enumerate all coalitions
_FOLDERS = r'[^\s"]*/site-packages/'  # of a machine, which are nobody's business
_REFUSALS = (UnsupportedOperation, UntraceableModel, UnexplainedRows, BadInput)


@dataclass(frozen=True)
class Setting:
    """A model with a row, its baseline and its players."""

    model: nn.Module
    x: Tensor
    baseline: Tensor
    players: Tensor

    @property
    def arguments(self) -> Arguments:
        """What is asked: the only output."""
        return Arguments(self.x, self.baseline, feature_mask=self.players)


@dataclass(frozen=True)
class Exhibit:
    """A model of a library."""

    name: str
    library: str
    make: Callable[[], Setting]


class Readout(nn.Module):
    """One output of a model: a random direction of what it has at the end, averaged over places."""

    def __init__(self, model: nn.Module, argument: str | None = None) -> None:
        super().__init__()
        self.model, self.argument, self.head = model, argument, nn.Linear(1, 1)

    def features(self, x: Tensor) -> Tensor:
        """Return (rows, features)."""
        found = self.model(x) if self.argument is None else self.model(**{self.argument: x})
        if not isinstance(found, Tensor):
            found = found.logits if getattr(found, "logits", None) is not None else found[0]
        if found.dim() == 4 and self.argument is not None:  # channels first
            found = found.flatten(2).transpose(1, 2)
        return found if found.dim() == 2 else found.flatten(1, -2).mean(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, 1)."""
        return self.head(self.features(x))


def _settled(model: Readout, x: Tensor) -> Readout:
    """Shake constants, raise small weights, let normalisations see a batch, and give the readout its width."""
    for name, parameter in model.named_parameters():
        if parameter.numel() == 1:
            continue
        own, inputs = float(parameter.detach().std()), parameter[0].numel()
        if own == 0:
            near = 0 if name.endswith("bias") else max(0.5, float(parameter.detach().flatten()[0]))
            parameter.data = near + (near or 0.5) * 0.2 * torch.randn_like(parameter)
        elif parameter.dim() > 1:
            parameter.data *= max(1, inputs**-0.5 / own)
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    with torch.no_grad():
        batch = torch.randn(8 if norms else 2, *x.shape[1:])
        features = model.features(batch)
    model.head = nn.Linear(features.shape[1], 1)
    return model.eval().requires_grad_(requires_grad=False)


def _groups(length: int) -> Tensor:
    return torch.arange(length) * GROUPS // length


def _blocks(pixels: int, channels: int) -> Tensor:
    place = torch.arange(pixels) * SIDE // pixels
    return (place[:, None] * SIDE + place).expand(1, channels, pixels, pixels).clone()


# Hugging Face's transformers.


def _hugging_face(
    kind: str, argument: str, shape: Sequence[int], part: str | None, settings: dict[str, Any]
) -> Readout:
    from transformers import AutoConfig, AutoModel  # noqa: PLC0415 (takes seconds)

    config = AutoConfig.for_model(kind, **settings)
    model = AutoModel.from_config(config)
    if part is not None:
        model = getattr(model, part) if not part.startswith("get_") else getattr(model, part)()
    return _settled(Readout(model, argument), torch.zeros(1, *shape))


_TEXT = {
    "vocab_size": 50, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_DECODER = {"use_cache": False, "num_key_value_heads": 2, "head_dim": WIDTH // HEADS}


def _text(kind: str, part: str | None = None, width: int = WIDTH, **settings: Any) -> Setting:
    shape = (TOKENS, width)
    model = _hugging_face(
        kind,
        "inputs_embeds",
        shape,
        part,
        {key: value for key, value in (_TEXT | settings).items() if value is not None},
    )
    absent = torch.randn(1, 1, width).expand(1, *shape).clone()
    return Setting(model, torch.randn(1, *shape), absent, _groups(TOKENS)[:, None].expand(1, *shape).clone())


def _image(
    kind: str, pixels: int = 64, part: str | None = None, argument: str = "pixel_values", **settings: Any
) -> Setting:
    shape = (3, pixels, pixels)
    model = _hugging_face(kind, argument, shape, part, settings)
    return Setting(model, torch.randn(1, *shape), torch.zeros(1, *shape), _blocks(pixels, 3))


def _series(
    kind: str, argument: str, shape: Sequence[int], part: str | None = None, axis: int = 0, **settings: Any
) -> Setting:
    """A recording, a spectrogram or a series, whose windows along an axis are the players."""
    model = _hugging_face(kind, argument, shape, part, settings)
    players = _groups(shape[axis]).view([-1 if i == axis else 1 for i in range(len(shape))]).expand(1, *shape)
    return Setting(model, torch.randn(1, *shape), torch.zeros(1, *shape), players.clone())


_VIT = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 2 * WIDTH,
    "image_size": 64, "patch_size": 16,
}  # fmt: skip
_SPEECH = {
    "hidden_size": WIDTH, "num_hidden_layers": 4, "num_attention_heads": HEADS, "intermediate_size": 2 * WIDTH,
    "conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": 32,
}  # fmt: skip
_SEQUENCE = {"d_model": WIDTH, "encoder_layers": 4, "decoder_layers": 1, "encoder_attention_heads": HEADS,
             "decoder_attention_heads": HEADS, "encoder_ffn_dim": 2 * WIDTH, "decoder_ffn_dim": WIDTH}  # fmt: skip
_REFORMER = {"attention_head_size": 16, "feed_forward_size": 128, "axial_pos_embds": False, "hash_seed": 0,
             "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8, "num_buckets": 4,
             "is_decoder": False}  # fmt: skip
_HF: dict[str, Callable[[], Setting]] = {
    # Encoders of text
    "BERT": partial(_text, "bert"),
    "DistilBERT": partial(_text, "distilbert", hidden_dim=2 * WIDTH),
    "ALBERT": partial(_text, "albert", embedding_size=WIDTH),
    "RoBERTa": partial(_text, "roberta"),
    "ELECTRA": partial(_text, "electra", embedding_size=WIDTH),
    "DeBERTa": partial(_text, "deberta", relative_attention=True, pos_att_type="c2p|p2c"),
    "DeBERTa-v2": partial(
        _text, "deberta-v2", relative_attention=True, pos_att_type="c2p|p2c", position_buckets=16, share_att_key=True,
        norm_rel_ebd="layer_norm",
    ),
    "XLNet": partial(_text, "xlnet", d_head=16, d_inner=2 * WIDTH, max_position_embeddings=None),
    "MPNet": partial(_text, "mpnet"),
    "FNet": partial(_text, "fnet"),
    "Funnel": partial(
        _text, "funnel", architectures=["FunnelModel"], num_hidden_layers=None, hidden_size=None,
        block_sizes=[2, 2, 2], d_model=WIDTH, n_head=HEADS, d_head=16, d_inner=2 * WIDTH,
    ),
    "Longformer": partial(_text, "longformer", attention_window=8),
    "BigBird": partial(_text, "big_bird", attention_type="block_sparse", block_size=2, num_random_blocks=1),
    "MobileBERT": partial(
        _text, "mobilebert", embedding_size=WIDTH, intra_bottleneck_size=32, true_hidden_size=32,
        num_feedforward_networks=2,
    ),
    "SqueezeBERT": partial(_text, "squeezebert", embedding_size=WIDTH),
    "ConvBERT": partial(_text, "convbert", embedding_size=WIDTH),
    "Reformer, local": partial(_text, "reformer", num_hidden_layers=4, attn_layers=["local"] * 4, **_REFORMER),
    "Reformer, LSH": partial(_text, "reformer", num_hidden_layers=4, attn_layers=["local", "lsh"] * 2, **_REFORMER),
    "Nyströmformer": partial(_text, "nystromformer", num_landmarks=8, segment_means_seq_len=TOKENS),
    "RoFormer": partial(_text, "roformer", embedding_size=WIDTH),
    "ESM": partial(_text, "esm", position_embedding_type="rotary", mask_token_id=3),
    "ModernBERT": partial(_text, "modernbert"),
    "T5 encoder": partial(
        _text, "t5", "get_encoder", d_model=WIDTH, d_ff=2 * WIDTH, d_kv=16, num_layers=LAYERS, num_heads=HEADS,
    ),
    "BART encoder": partial(_text, "bart", "get_encoder", **_SEQUENCE),
    # Decoders of text
    "GPT-2": partial(_text, "gpt2", use_cache=False),
    "GPT-Neo": partial(
        _text, "gpt_neo", num_hidden_layers=4, num_heads=HEADS, attention_types=[[["global", "local"], 2]],
        use_cache=False,
    ),
    "GPT-NeoX": partial(_text, "gpt_neox", use_cache=False),
    "GPT-J": partial(_text, "gptj", rotary_dim=8, use_cache=False),
    "OPT": partial(_text, "opt", ffn_dim=2 * WIDTH, word_embed_proj_dim=WIDTH, use_cache=False),
    "BLOOM": partial(_text, "bloom", use_cache=False),
    "LLaMA": partial(_text, "llama", **_DECODER),
    "Mistral": partial(_text, "mistral", **_DECODER),
    "Mixtral": partial(_text, "mixtral", num_local_experts=4, **_DECODER),
    "Qwen2": partial(_text, "qwen2", **_DECODER),
    "Qwen3": partial(_text, "qwen3", **_DECODER),
    "Gemma": partial(_text, "gemma", **_DECODER),
    "Gemma 2": partial(_text, "gemma2", **_DECODER),
    "Phi": partial(_text, "phi", use_cache=False),
    "Falcon": partial(_text, "falcon", use_cache=False),
    "OLMo 2": partial(_text, "olmo2", **_DECODER),
    "Mamba": partial(_text, "mamba", state_size=8, num_hidden_layers=4, use_cache=False),
    "RWKV": partial(_text, "rwkv", attention_hidden_size=WIDTH, num_hidden_layers=4, use_cache=False),
    # Images
    "ViT": partial(_image, "vit", **_VIT),
    "DeiT": partial(_image, "deit", **_VIT),
    "BEiT": partial(_image, "beit", **_VIT),
    "DINOv2": partial(_image, "dinov2", **_VIT),
    "CLIP vision": partial(_image, "clip_vision_model", **_VIT),
    "Swin": partial(
        _image, "swin", image_size=64, patch_size=4, embed_dim=24, depths=[2, 2, 2], num_heads=[2, 4, 8], window_size=4,
    ),
    "Swin v2": partial(
        _image, "swinv2", image_size=64, patch_size=4, embed_dim=24, depths=[2, 2, 2], num_heads=[2, 4, 8],
        window_size=4,
    ),
    "ConvNeXt": partial(_image, "convnext", hidden_sizes=[24, 48, 64, 96], depths=[2, 2, 4, 2]),
    "ConvNeXt v2": partial(_image, "convnextv2", hidden_sizes=[24, 48, 64, 96], depths=[2, 2, 4, 2]),
    "ResNet": partial(
        _image, "resnet", embedding_size=16, hidden_sizes=[32, 48, 64, 96], depths=[2, 2, 2, 2], layer_type="basic",
    ),
    "RegNet": partial(
        _image, "regnet", embedding_size=16, hidden_sizes=[32, 48, 64, 96], depths=[1, 2, 4, 2], groups_width=16,
    ),
    "MobileNet v1": partial(_image, "mobilenet_v1", depth_multiplier=0.25),
    "MobileNet v2": partial(_image, "mobilenet_v2", depth_multiplier=0.35),
    "MobileViT": partial(
        _image, "mobilevit", hidden_sizes=[32, 48, 64], neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 96], image_size=64,
        num_attention_heads=HEADS,
    ),
    "EfficientNet": partial(
        _image, "efficientnet", width_coefficient=0.35, depth_coefficient=0.5, image_size=64, hidden_dim=448,
    ),
    "LeViT": partial(
        _image, "levit", 224, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4], depths=[2, 2, 2],
        key_dim=[8] * 3, attention_ratio=[2] * 3, mlp_ratio=[2] * 3,
    ),
    "CvT": partial(_image, "cvt", embed_dim=[16, 32, 64], num_heads=[1, 2, 4], depth=[1, 2, 4]),
    "PoolFormer": partial(_image, "poolformer", hidden_sizes=[16, 32, 48, 64], depths=[2, 2, 4, 2]),
    "SegFormer": partial(_image, "segformer", hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 3, 4]),
    "PVT": partial(_image, "pvt", image_size=64, hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 3, 4]),
    "FocalNet": partial(_image, "focalnet", image_size=64, embed_dim=24, depths=[2, 2, 2, 2]),
    "SwiftFormer": partial(_image, "swiftformer", 96, image_size=96, depths=[2, 2, 2, 2], embed_dims=[24, 32, 48, 64]),
    # Sound and series
    "Perceiver": partial(
        _series, "perceiver", "inputs", (32, 16), num_latents=16, d_latents=WIDTH, d_model=16, num_blocks=1,
        num_self_attends_per_block=4, num_self_attention_heads=HEADS, num_cross_attention_heads=1,
    ),
    "Wav2Vec 2": partial(_series, "wav2vec2", "input_values", (3200,), **_SPEECH),
    "HuBERT": partial(_series, "hubert", "input_values", (3200,), **_SPEECH),
    "WavLM": partial(_series, "wavlm", "input_values", (3200,), **_SPEECH),
    "Whisper encoder": partial(
        _series, "whisper", "input_features", (20, 64), "get_encoder", axis=1, num_mel_bins=20, max_source_positions=32,
        vocab_size=60, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, **_SEQUENCE,
    ),
    "AST": partial(
        _series, "audio-spectrogram-transformer", "input_values", (64, 32), num_mel_bins=32, max_length=64,
        **{key: value for key, value in _VIT.items() if key != "image_size"},
    ),
    "PatchTST": partial(
        _series, "patchtst", "past_values", (64, 3), num_input_channels=3, context_length=64, patch_length=8,
        patch_stride=8, d_model=32, num_hidden_layers=LAYERS, num_attention_heads=HEADS, ffn_dim=64,
    ),
    "PatchTSMixer": partial(
        _series, "patchtsmixer", "past_values", (64, 3), num_input_channels=3, context_length=64, patch_length=8,
        patch_stride=8, d_model=32, num_layers=4,
    ),
    "TimeSeriesTransformer encoder": partial(
        _series, "time_series_transformer", "inputs_embeds", (32, 9), "get_encoder", prediction_length=8,
        context_length=32, **_SEQUENCE,
    ),
    "Informer encoder": partial(
        _series, "informer", "inputs_embeds", (32, 9), "get_encoder", prediction_length=8, context_length=32,
        **_SEQUENCE,
    ),
}  # fmt: skip


# timm.


def _timm_without_torchvision() -> None:
    """Import timm where torchvision cannot be had: timm's models need nothing of it, only its data sets do.

    What timm imports are empty classes meanwhile, with which nothing could be computed, and two modes of resizing.
    """

    class _Nothing(ModuleType):
        def __getattr__(self, name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            modes = ("NEAREST", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")
            return type(name, (), {mode: mode for mode in modes})

    parts = ("", ".datasets", ".ops", ".ops.misc", ".transforms", ".transforms.functional")
    names = [f"torchvision{part}" for part in parts]
    for name in names:
        sys.modules[name] = _Nothing(name)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, sys.modules[name])
    try:
        importlib.import_module("timm")
    finally:  # other libraries ask whether it is there
        for name in names:
            del sys.modules[name]


_TIMM: dict[str, tuple[str, int, dict[str, Any]]] = {
    "ResNet-18": ("resnet18", 64, {}),
    "ResNet-50": ("resnet50", 64, {}),
    "SE-ResNet-18": ("seresnet18", 64, {}),
    "VGG-11": ("vgg11", 64, {}),
    "DenseNet": ("densenet121", 64, {"growth_rate": 8, "block_config": (3, 6, 8, 6)}),
    "MobileNet v3": ("mobilenetv3_small_050", 96, {}),
    "EfficientNet-Lite0": ("efficientnet_lite0", 64, {}),
    "GhostNet": ("ghostnet_050", 96, {}),
    "RegNetY": ("regnety_002", 64, {}),
    "RepVGG": ("repvgg_a0", 64, {}),
    "MobileOne": ("mobileone_s0", 64, {}),
    "NF-ResNet": ("nf_resnet26", 64, {}),
    "ConvNeXt-Atto": ("convnext_atto", 64, {}),
    "FastViT": ("fastvit_t8", 96, {}),
    "ReXNet": ("rexnet_100", 64, {}),
    "MLP-Mixer": ("mixer_s32_224", 96, {"img_size": 96}),
    "ResMLP": ("resmlp_12_224", 64, {"img_size": 64}),
    "gMLP": ("gmlp_ti16_224", 64, {"img_size": 64}),
    "ViT-Tiny": ("vit_tiny_patch16_224", 96, {"img_size": 96, "depth": 8}),
    "EVA-02": ("eva02_tiny_patch14_224", 84, {"img_size": 84, "depth": 6}),
    "CaiT": ("cait_xxs24_224", 64, {"img_size": 64, "embed_dim": 64, "depth": 6}),
    "XCiT": ("xcit_nano_12_p16_224", 96, {"img_size": 96, "depth": 6}),
    "PiT": ("pit_ti_224", 112, {"img_size": 112}),
    "Twins": ("twins_svt_small", 64, {"img_size": 64, "embed_dims": (16, 32, 48, 64), "depths": (1, 1, 2, 1)}),
    "CoAtNet": ("coatnet_pico_rw_224", 64, {"img_size": 64}),
    "EdgeNeXt": ("edgenext_xx_small", 96, {}),
}  # fmt: skip


def _timm(name: str, pixels: int, settings: dict[str, Any]) -> Setting:
    import timm  # noqa: PLC0415 (not everybody has it)

    model = timm.create_model(name, pretrained=False, num_classes=10, **settings)
    x = torch.randn(1, 3, pixels, pixels)
    return Setting(_settled(Readout(model), x), x, torch.zeros_like(x), _blocks(pixels, 3))


# PyTorch Geometric.

_NODES, _FEATURES = 16, 8
_CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "GCNConv": {}, "GATConv": {}, "GATv2Conv": {}, "GINConv": {}, "SAGEConv": {}, "GraphConv": {}, "ChebConv": {"K": 3},
    "TAGConv": {}, "TransformerConv": {}, "ResGatedGraphConv": {},
}  # fmt: skip


class _Graphs(nn.Module):
    """Convolutions over one graph, whose nodes are averaged at the end. Rows are graphs beside each other."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        super().__init__()
        from torch_geometric import nn as geometric  # noqa: PLC0415 (not everybody has it)

        def layer(inputs: int, outputs: int) -> nn.Module:
            if kind == "GINConv":
                return geometric.GINConv(
                    nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))
                )
            return getattr(geometric, kind)(inputs, outputs, **options)

        self.layers = nn.ModuleList([layer(_FEATURES, 32), layer(32, 32), layer(32, 32)])
        ring = torch.arange(_NODES)
        far = (ring * 5 + 3) % _NODES
        edges = torch.cat([torch.stack([ring, (ring + 1) % _NODES]), torch.stack([ring, far])], 1)
        self.register_buffer("edges", torch.cat([edges, edges.flip(0)], 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, nodes, features)."""
        starts = _NODES * torch.arange(len(x))
        edges = (self.edges[:, None] + starts[:, None]).flatten(1)
        nodes = x.flatten(0, 1)
        for layer in self.layers:
            nodes = layer(nodes, edges).relu()
        return nodes.view(len(x), _NODES, -1)


def _geometric(kind: str, options: dict[str, Any]) -> Setting:
    x = torch.randn(1, _NODES, _FEATURES)
    players = _groups(_NODES)[:, None].expand_as(x).clone()
    return Setting(_settled(Readout(_Graphs(kind, options)), x), x, torch.zeros_like(x), players)


EXHIBITS = (
    *(Exhibit(name, "transformers", make) for name, make in _HF.items()),
    *(Exhibit(name, "timm", partial(_timm, *how)) for name, how in _TIMM.items()),
    *(Exhibit(kind, "torch_geometric", partial(_geometric, kind, how)) for kind, how in _CONVOLUTIONS.items()),
)


# Measurements.


@dataclass(frozen=True)
class Found:
    """What one model came to; NaN and empty texts where there is nothing."""

    name: str
    library: str
    players: int = 0
    parameters: int = 0
    tracing: float = math.nan  # processor seconds to trace and lift
    error: float = math.nan  # of rank "auto"
    error_rank_0: float = math.nan
    said: float = math.nan  # how far off its values are, by what a user is told
    logged: int = 0  # warnings in the log
    refused: str = ""  # by which sentence
    automatic: str = ""  # the method that Explainer takes by itself
    automatic_error: float = math.nan
    limited: str = ""  # the method that it takes if it may not evaluate all coalitions
    limited_error: float = math.nan
    failed: str = ""  # with which error, that is no sentence of ours

    @property
    def traced(self) -> bool:
        """True if values were propagated."""
        return not math.isnan(self.error)

    @property
    def warned(self) -> bool:
        """True if a user is told that the values say little."""
        return self.said > POOR

    @staticmethod
    def read(cells: dict[str, str]) -> Found:
        """Return the line of a file."""
        kinds = {"int": int, "float": lambda text: float(text or "nan"), "str": str}
        return Found(**{each.name: kinds[str(each.type)](cells[each.name]) for each in fields(Found)})

    def cells(self) -> dict[str, str]:
        """Return a line of a file."""
        return {
            key: ("" if math.isnan(value) else f"{value:.4g}") if isinstance(value, float) else str(value)
            for key, value in asdict(self).items()
        }


class _Warnings(logging.Handler):
    """Counts what is logged as a warning."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record."""
        self.count += record.levelno >= logging.WARNING


@contextmanager
def _listening() -> Iterator[_Warnings]:
    heard, log = _Warnings(), logging.getLogger("dasp")
    log.addHandler(heard)
    try:
        yield heard
    finally:
        log.removeHandler(heard)


def _error(values: Tensor, truth: Tensor) -> float:
    return float((values - truth).square().mean().sqrt() / truth.square().mean().sqrt())


def _of_players(setting: Setting, values: Tensor) -> Tensor:
    """Return one value for each player, of values in the shape of the row."""
    mask = setting.players.flatten()
    first = [int((mask == player).nonzero()[0]) for player in range(int(mask.max()) + 1)]
    return values.flatten()[first].double()


def measured(exhibit: Exhibit) -> Iterator[Found]:
    """Return what is known of a model, more and more of it."""
    torch.manual_seed(0)
    setting = exhibit.make()
    request = Request.of(setting.model, setting.arguments)
    size = sum(each.numel() for each in setting.model.parameters())
    yield (found := Found(exhibit.name, exhibit.library, request.players, size))
    keywords = {"baselines": setting.baseline, "feature_mask": setting.players, "threads": 1}
    truth = _of_players(
        setting, ExactShapley(setting.model).attribute(setting.x, setting.baseline, feature_mask=setting.players)
    )
    for name, options in (("automatic", {}), ("limited", {"max_evaluations": LIMITED})):
        answer = Explainer(setting.model, **keywords, **options).attribute(setting.x, target=0)
        error = _error(_of_players(setting, answer.values), truth)
        found = replace(found, **{name: METHODS[answer.choices[0].method].name, f"{name}_error": error})
    yield found
    try:
        start = time.process_time()
        GradientDASP(setting.model).lifts(request)
        found = replace(found, tracing=time.process_time() - start)
        yield found
        with _listening() as heard:
            answer = Explainer(setting.model, method="gradient", **keywords).attribute(setting.x, target=0)
        if answer.propagation_error is not None:
            found = replace(found, said=float(answer.propagation_error.middle.max()))
        found = replace(found, error=_error(_of_players(setting, answer.values), truth), logged=heard.count)
        yield found
        plain = GradientDASP(setting.model, rank=0).attribute(setting.x, setting.baseline, feature_mask=setting.players)
        yield replace(found, error_rank_0=_error(_of_players(setting, plain), truth))
    except _REFUSALS as error:
        said = getattr(error, "summary", None) or line_of(error)
        yield replace(found, refused=re.sub(_FOLDERS, "", said))


def _work(exhibit: Exhibit, seconds: int, results: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    warnings.filterwarnings("ignore")
    logging.getLogger("dasp").propagate = False
    found = Found(exhibit.name, exhibit.library)
    try:
        for found in measured(exhibit):
            results.send(found)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what was found)
        results.send(replace(found, failed=f"{type(error).__name__}: {re.sub(_FOLDERS, '', line_of(error))}"))


def alone(exhibit: Exhibit, seconds: int) -> Found:
    """Measure a model in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(exhibit, seconds, sender))
    process.start()
    sender.close()
    found = Found(exhibit.name, exhibit.library)
    while True:
        try:
            found = receiver.recv()
        except EOFError:
            break
    process.join()
    if process.exitcode == -signal.SIGXCPU:
        return replace(found, failed=f"more than {seconds} s of processor time")
    return replace(found, failed=f"ended by signal {-process.exitcode}") if process.exitcode else found


def _warm_up(exhibits: Sequence[Exhibit]) -> None:
    """Import what models need, once for all of them."""
    for library in {exhibit.library for exhibit in exhibits}:
        next(exhibit for exhibit in exhibits if exhibit.library == library).make()
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    for method in ("gradient", "bayesian"):
        Explainer(model, method=method).attribute(torch.ones(1, 8))


def _read(file: Path) -> dict[str, Found]:
    if not file.exists():
        return {}
    with file.open(newline="") as lines:
        return {row["name"]: Found.read(row) for row in csv.DictReader(line for line in lines if line[0] != "#")}


def _append(file: Path, found: Found) -> None:
    new = not file.exists()
    with file.open("a", newline="") as lines:
        if new:
            lines.write(f"# by: benchmarks/library_models.py\n# version: {dasp.__version__}\n")
            lines.write(f"# date: {datetime.now(UTC):%Y-%m-%d}\n")
        writer = csv.DictWriter(lines, [each.name for each in fields(Found)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(found.cells())


def missing(library: str) -> str | None:
    """Say why a library cannot be imported; None if it can."""
    try:
        if library == "timm" and find_spec("timm") and not find_spec("torchvision"):
            _timm_without_torchvision()
        importlib.import_module(library)
    except ImportError as error:
        return line_of(error)
    return None


def line(found: Found) -> str:
    """Return a line of the table."""
    numbers = (found.tracing, found.error, found.error_rank_0, found.said)
    shown = "".join(f"{'–' if math.isnan(x) else f'{x:.{d}f}':>8}" for x, d in zip(numbers, (1, 3, 3, 2), strict=True))
    word = "warned" if found.warned else ""
    end = found.failed or (f"refused: {found.refused}" if found.refused else "")
    own = "".join(
        f"{method:16}{'' if math.isnan(error) else f'{error:.3f}':6}"
        for method, error in ((found.automatic, found.automatic_error), (found.limited, found.limited_error))
    )
    return (
        f"{found.library:16}{found.name:31}{found.players:2}{found.parameters / 1e3:8.0f}k{shown} {word:7}{own}  {end}"
    )


def show(every: Sequence[Found]) -> None:
    """Print the table, and what it comes to."""
    print(
        f"\n{'library':16}{'model':29}players{'size':>6}{'trace s':>8}{'error':>8}{'rank 0':>8}{'said':>8} {'':7}"
        f"{'by itself':16}{'error':6}{f'{LIMITED} evaluations':16}{'error':6}"
    )
    for found in every:
        print(line(found))
    traced = [found for found in every if found.traced]
    print(f"{len(every)} models: {len(traced)} traced, {sum(bool(found.refused) for found in every)} refused in a "
          f"sentence, {sum(bool(found.failed) for found in every)} failed otherwise")  # fmt: skip
    if not traced:
        return
    poor = [found for found in traced if found.error > POOR]
    silent = [found.name for found in poor if not found.warned]
    slowest = max(traced, key=lambda found: found.tracing)
    print(f"error: median {median(found.error for found in traced):.3f}, "
          f"at rank 0 {median(f.error_rank_0 for f in traced if not math.isnan(f.error_rank_0)):.3f}")  # fmt: skip
    print(f"above {POOR}: {len(poor)}, of which without a warning: {len(silent)} ({', '.join(silent) or 'none'})")
    alarms = [found.name for found in traced if found.warned and found.error <= POOR]
    print(f"warned though not above {POOR}: {len(alarms)} ({', '.join(alarms) or 'none'})")
    own = [found.automatic_error for found in every if found.automatic]
    few = [found.limited_error for found in every if found.limited]
    print(f"by itself: {len(own)} answered, largest error {max(own):.3f}; with {LIMITED} evaluations median "
          f"{median(few):.3f}, largest {max(few):.3f}")  # fmt: skip
    print(f"tracing: median {median(found.tracing for found in traced):.1f} s, slowest {slowest.name} "
          f"with {slowest.tracing:.1f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Architectures of public libraries, with random weights.")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--library", choices=sorted({exhibit.library for exhibit in EXHIBITS}))
    parser.add_argument("--again", action="store_true", help="measure also what is in the file")
    parser.add_argument("--table", action="store_true", help="print what was measured before")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of processor time that a model may take")
    parser.add_argument("--save", type=Path, default=FILE, metavar="FILE")
    arguments = parser.parse_args()
    if unknown := {*arguments.models} - {exhibit.name for exhibit in EXHIBITS}:
        parser.error(f"there is no model {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    known = _read(arguments.save)
    wanted = [
        exhibit for exhibit in EXHIBITS
        if (not arguments.models or exhibit.name in arguments.models)
        and arguments.library in (None, exhibit.library)
        and (arguments.again or exhibit.name not in known)
    ]  # fmt: skip
    if not arguments.table:
        _measure(wanted, arguments.save, arguments.seconds)
    known = _read(arguments.save)
    show([known[exhibit.name] for exhibit in EXHIBITS if exhibit.name in known])


def _measure(wanted: Sequence[Exhibit], file: Path, seconds: int) -> None:
    """Measure models one after the other, but for those of a library that is not there."""
    reasons = {library: missing(library) for library in {exhibit.library for exhibit in wanted}}
    for library, reason in reasons.items():
        if reason is not None:
            number = sum(exhibit.library == library for exhibit in wanted)
            print(f"{number} models skipped, as {library} cannot be imported: {reason}", flush=True)
    there = [exhibit for exhibit in wanted if reasons[exhibit.library] is None]
    _warm_up(there)
    for exhibit in there:
        _append(file, found := alone(exhibit, seconds))
        print(line(found), flush=True)


if __name__ == "__main__":
    main()
