"""Tokenizers and models of a few words, with random weights, made here: nothing is downloaded."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    XLNetConfig,
    XLNetForSequenceClassification,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CORPUS = ["the quick brown fox does not jump over the lazy dog", "a good film is never too long, they say. really?"] * 3
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


def bert_tokenizer(**options):
    """Words in pieces, between [CLS] and [SEP], as BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names, **options)


def gpt_tokenizer():
    """Bytes in pairs, without any special token around them, and with none for masks or padding, as GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    end = "<|endoftext|>"
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=[end], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end)


def classifier(kind, tokenizer, longest=512, **options):
    """A classifier with three labels, whose weights are large enough for words to matter."""
    torch.manual_seed(0)
    labels = {0: "bad", 1: "fair", 2: "good"}
    common = {"vocab_size": len(tokenizer), "id2label": labels, "label2id": {b: a for a, b in labels.items()}}
    if kind == "bert":
        config = BertConfig(**common, **SIZES, max_position_embeddings=longest, initializer_range=0.5, **options)
        return BertForSequenceClassification(config).eval()
    if kind == "roberta":
        config = RobertaConfig(
            **common, **SIZES, max_position_embeddings=longest, initializer_range=0.5, pad_token_id=0
        )
        return RobertaForSequenceClassification(config).eval()
    if kind == "xlnet":  # whose positions are relative: it knows no largest one
        config = XLNetConfig(
            **common, d_model=16, n_layer=2, n_head=2, d_inner=16, initializer_range=0.5, pad_token_id=0
        )
        return XLNetForSequenceClassification(config).eval()
    return GPT2ForSequenceClassification(GPT2Config(**common, **gpt_sizes(longest), **options)).eval()


def language_model(tokenizer, longest=128):
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **gpt_sizes(longest))).eval()


def gpt_sizes(longest):
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": longest, "initializer_range": 0.3}
    return sizes | {"bos_token_id": 0, "eos_token_id": 0}
