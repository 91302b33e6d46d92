"""Two inputs: a network reads a handwritten digit, and knows which field of a form it is in. What decides?

The first digit of a month is 0 or 1, that of a day at most 3, and the last one of a year any. The same doubtful image
is read in two fields; the players are quarters of the image, and the field.

    python two_inputs.py [--small]      draws two_inputs.png
"""

import sys

import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import Tensor, nn

from dasp import Explainer, plots
from dasp.players import blocks

EPOCHS = 6 if "--small" in sys.argv else 20
FIELDS = {"month": 2, "day": 4, "year": 10}  # how many digits are possible
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class FormReader(nn.Module):
    """An image (rows, 1, 8, 8) and a field (rows, 3) → the logits of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32))
        self.field, self.last = nn.Linear(len(FIELDS), 32), nn.Linear(32, 10)

    def forward(self, image: Tensor, field: Tensor) -> Tensor:
        """Return (rows, 10)."""
        return self.last((self.image(image) + self.field(field)).relu())


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images).float()[:, None] / 16, torch.tensor(digits.target)
first = [int(label > 1) + int(label > 3) for label in labels]  # of the fields that a digit may be in
kinds = torch.tensor([int(torch.randint(field, 3, ())) for field in first])
fields = nn.functional.one_hot(kinds, 3).float()
model = FormReader()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
for part in torch.arange(1500).repeat(EPOCHS).split(50):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images[part], fields[part]), labels[part]).backward()
    optimizer.step()
model.eval()

unread = images[1500:]


def inputs(rows: Tensor, field: str) -> dict[str, Tensor]:
    """Return images in a field."""
    place = torch.full((len(rows),), list(FIELDS).index(field))
    return {"image": rows, "field": nn.functional.one_hot(place, 3).float()}


read = {field: model(**inputs(unread, field)).argmax(1) for field in FIELDS}
unlike, right = read["day"] != read["year"], read["day"] == labels[1500:]
doubtful = int((2 * unlike + 1 * right).argmax())
image, as_day = unread[doubtful][None], int(read["day"][doubtful])
others = model(**inputs(image, "year"))[0].index_fill(0, torch.tensor(as_day), -torch.inf)
as_year = int(others.argmax())
print(f"in a day it is read as {NAMES[as_day]}, in a year as {NAMES[as_year]}")

explainer = Explainer(
    model, baselines={"image": 0.0, "field": 0.0}, output_names=NAMES,
    feature_mask={"image": blocks((1, 8, 8), 4), "field": torch.full((3,), 4)},
    feature_names={"image": ["top left", "top right", "bottom left", "bottom right"], "field": ["the field"]},
)  # fmt: skip
figure, (left, *panels) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained", width_ratios=[1, 3, 3])
left.imshow(image[0, 0].numpy(), cmap="gray")
left.set_axis_off()
for panel, field in zip(panels, ("day", "year"), strict=True):
    explanation = explainer(inputs(image, field), target=as_day, versus=as_year)[0]
    explanation.data = None  # the means of blocks say little
    plots.waterfall(explanation, title=f"in a {field}", ax=panel)
figure.savefig("two_inputs.png", dpi=110)
