"""A zoo of today's architectures, small: each with a task in which inputs interact, a baseline and players.

Without training, the whole zoo is built in a moment, for tests; `benchmarks/architectures.py` trains it.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from modern import images, libraries, sequences, tables, tasks
from modern.exhibit import Exhibit, of_pixels, output, surprise

__all__ = ["ZOO", "Exhibit"]

_encoder = partial(partial, sequences.Encoder)
_recurrent = partial(partial, sequences.Recurrent)

ZOO = [
    Exhibit("MLP, softmax", tasks.classes, tables.mlp, surprise),
    Exhibit("tabular ResNet", tasks.columns, tables.tabular_resnet),
    Exhibit("FT-Transformer", tasks.columns, tables.FTTransformer, layers=2),
    Exhibit("mixture of experts", tasks.columns, tables.Mixture),
    Exhibit("autoencoder's error", tasks.measurements, tables.ReconstructionError, output),
    Exhibit("Siamese cosine", tasks.pairs, tables.Siamese),
    Exhibit("LSTM", tasks.vectors, _recurrent(kind=nn.LSTM)),
    Exhibit("GRU", tasks.vectors, _recurrent(kind=nn.GRU)),
    Exhibit("bidirectional LSTM", tasks.vectors, _recurrent(kind=nn.LSTM, both=True)),
    Exhibit("Transformer, post-norm, mean", tasks.vectors, _encoder(norm_first=False, own_token=False), layers=2),
    Exhibit(
        "Transformer, post-norm, CLS", tasks.words, _encoder(norm_first=False, own_token=True), layers=2, rate=2e-3
    ),
    Exhibit("Transformer, pre-norm, mean", tasks.words, _encoder(norm_first=True, own_token=False), layers=2),
    Exhibit("Transformer, pre-norm, CLS", tasks.vectors, _encoder(norm_first=True, own_token=True), layers=2),
    Exhibit("causal decoder", tasks.vectors, sequences.Decoder, layers=2),
    Exhibit("temporal CNN", tasks.vectors, sequences.TemporalCNN),
    Exhibit("graph convolution", tasks.graph, sequences.GraphConvolution),
    Exhibit("DeepSets", tasks.sets, sequences.DeepSets),
    Exhibit("ViT", tasks.blocks, images.ViT, layers=2),
    Exhibit("ViT, pixels", tasks.pixels, images.ViT, layers=2),
    Exhibit("MLP-Mixer", tasks.blocks, images.Mixer),
    Exhibit("ConvNeXt", tasks.blocks, images.convnext),
    Exhibit("ConvNeXt, pixels", tasks.pixels, images.convnext),
    Exhibit("ResNet, group norm", tasks.blocks, images.resnet),
    Exhibit("ResNet, group norm, pixels", tasks.pixels, images.resnet),
    Exhibit("DenseNet", tasks.blocks, images.densenet),
    Exhibit("MobileNet, squeeze-excite", tasks.blocks, images.mobilenet),
    Exhibit("PReLU, ceil-mode pooling", tasks.blocks, images.mtcnn),
    Exhibit("U-Net, area", tasks.segments, images.UNet, of_pixels),
    Exhibit("BERT", tasks.vectors, libraries.bert, layers=2, rate=2e-3),
    Exhibit("DistilBERT", tasks.words, libraries.distilbert, layers=2),
    Exhibit("GPT-2", tasks.vectors, libraries.gpt2, layers=2),
    Exhibit("ViT of Hugging Face", tasks.blocks, libraries.vit, layers=2),
]
