"""Hugging Face's own classes, small and with random weights; nothing is downloaded."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from modern.tasks import LENGTH, SIDE, WIDTH, WORDS, Task


class Logits(nn.Module):
    """A model of Hugging Face that takes one argument and gives its logits."""

    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        return self.model(**{self.argument: x}).logits


_SPREAD = {"initializer_range": 0.2}  # of small random weights, so that attention attends to something


def bert(task: Task, layers: int, attention: str = "eager") -> nn.Module:
    """BERT on vectors of words."""
    from transformers import BertConfig, BertForSequenceClassification  # noqa: PLC0415 (takes seconds)

    config = BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2 * WIDTH, max_position_embeddings=LENGTH, num_labels=task.outputs,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation=attention, **_SPREAD,
    )  # fmt: skip
    return Logits(BertForSequenceClassification(config), "inputs_embeds")


def distilbert(task: Task, layers: int, attention: str = "sdpa") -> nn.Module:
    """DistilBERT on words."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification  # noqa: PLC0415

    config = DistilBertConfig(
        vocab_size=WORDS, dim=WIDTH, n_layers=layers, n_heads=2, hidden_dim=2 * WIDTH, max_position_embeddings=LENGTH,
        num_labels=task.outputs, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0,
        attn_implementation=attention, **_SPREAD,
    )  # fmt: skip
    return Logits(DistilBertForSequenceClassification(config), "input_ids")


def gpt2(task: Task, layers: int, attention: str = "eager") -> nn.Module:
    """GPT-2 on vectors of words."""
    from transformers import GPT2Config, GPT2ForSequenceClassification  # noqa: PLC0415

    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=layers, n_head=2, num_labels=task.outputs,
        bos_token_id=0, eos_token_id=0, pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        attn_implementation=attention, use_cache=False, **_SPREAD,
    )  # fmt: skip
    return Logits(GPT2ForSequenceClassification(config), "inputs_embeds")


def vit(task: Task, layers: int, attention: str = "sdpa") -> nn.Module:
    """ViT on patches of four pixels."""
    from transformers import ViTConfig, ViTForImageClassification  # noqa: PLC0415

    options: dict[str, Any] = {"image_size": SIDE, "patch_size": 2, "num_channels": 1, "num_labels": task.outputs}
    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=2 * WIDTH,
        attn_implementation=attention, **options, **_SPREAD,
    )  # fmt: skip
    return Logits(ViTForImageClassification(config), "pixel_values")
