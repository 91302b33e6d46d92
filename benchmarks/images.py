"""Superpixels of a photo: which regions make a network see a face?

O-Net is the last of the three networks of MTCNN, a face detector that people use, with its trained weights, which come
inside the package facenet-pytorch (`pip install --no-deps facenet-pytorch`; only its file of weights is read). The
photo is scikit-image's, cut around the face; it is explained by about 60 superpixels, in the log-odds of a face. Prints
errors and what was stated against long permutations, and draws the regions.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from skimage.data import astronaut
from torch import Tensor, nn

from dasp import Explainer, PermutationShapley, plots
from dasp.players import superpixels, without

TOP, LEFT, SIDE = 70, 180, 120  # the face
PERMUTATIONS = 600
MEAN, STD = 127.5, 128.0  # as the detector normalises photos


class ONet(nn.Module):
    """The network; it returns a box, landmarks, and the logits of no face and of a face."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 32, 3), (32, 64, 3), (64, 64, 3), (64, 128, 2))
        for i, (before, after, kernel) in enumerate(sizes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(before, after, kernel))
            self.add_module(f"prelu{i}", nn.PReLU(after))
        self.pools = [nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(2, 2)]
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2, self.dense6_3 = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Everything that it finds, by name."""
        for i in range(1, 5):
            x = getattr(self, f"prelu{i}")(getattr(self, f"conv{i}")(x))
            x = self.pools[i - 1](x) if i < 4 else x
        x = self.prelu5(self.dense5(x.permute(0, 3, 2, 1).flatten(1)))
        logits = self.dense6_1(x)
        face = logits[:, 1:] - logits[:, :1]  # log-odds
        return {"face": face, "box": self.dense6_2(x), "landmarks": self.dense6_3(x)}


def detector() -> ONet:
    """With its weights."""
    package = importlib.util.find_spec("facenet_pytorch")
    if package is None or package.origin is None:
        sys.exit("skipped: facenet-pytorch, whose weights are needed, is not installed")
    model = ONet()
    weights = torch.load(Path(package.origin).parent / "data" / "onet.pt", weights_only=True)
    model.load_state_dict(weights)
    return model.eval()


def face() -> Tensor:
    """The photo as O-Net takes it, 48×48 pixels from 0 to 255."""
    photo = torch.tensor(astronaut()).permute(2, 0, 1)[None].float()
    return nn.functional.interpolate(photo[:, :, TOP : TOP + SIDE, LEFT : LEFT + SIDE], (48, 48), mode="area")


def main() -> None:
    torch.set_num_threads(1)
    model, photo = detector(), face()
    mask, off = superpixels(photo[0], 60), without(photo[0], "blur")
    players = int(mask.max()) + 1
    print(f"{players} superpixels; log-odds {log_odds(model, photo):.1f}, of the blur {log_odds(model, off[None]):.1f}")
    truth, error = PermutationShapley(lambda x: model((x - MEAN) / STD)["face"]).attribute(
        photo, off[None], target=0, feature_mask=mask[None], n_permutations=PERMUTATIONS, return_std=True
    )  # fmt: skip
    firsts = [tuple((mask == i).nonzero()[0].tolist()) for i in range(players)]
    true, noise = (torch.stack([part[0][at] for at in firsts]) for part in (truth, error))
    size = true.square().mean().sqrt()
    print(f"root mean square of the values {size:.3f}, known to {noise.square().mean().sqrt():.3f}")
    print("evaluations   seconds  error  stated  held by 95 % intervals   method")
    for number in (64, 128, 256, 1024, None):
        explainer = Explainer(
            model, output="face", mean=MEAN, std=STD, feature_mask=mask, baselines=off, target=0, max_evaluations=number
        )
        explainer.attribute(photo)  # which traces
        start = time.process_time()
        found = explainer.attribute(photo)
        seconds = time.process_time() - start
        values, std = (torch.stack([part[0][at] for at in firsts]) for part in (found.values, found.std))
        held = ((values - true).abs() <= 1.96 * (std**2 + noise**2).sqrt()).float().mean()
        wrong, stated = (part.square().mean().sqrt() / size for part in (values - true, std))
        print(f"{number or 'default':>11}  {seconds:8.2f}  {wrong:5.3f}  {stated:6.3f}  {held:22.0%}   {found.method}")
    plots.image(explainer(photo), feature_mask=mask)
    Path("results").mkdir(exist_ok=True)
    plt.savefig("results/face.png", dpi=150)
    print("results/face.png")


def log_odds(model: ONet, x: Tensor) -> float:
    with torch.no_grad():
        return float(model((x - MEAN) / STD)["face"])


if __name__ == "__main__":
    main()
