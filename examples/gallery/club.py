"""A graph: which friendships decide on whose side a member of the karate club is, when the club breaks up?

A graph convolutional network is told the side of two members only, the instructor and the president, and finds out that
of the 32 others. The players are the friendships.

    python club.py [--small]            draws club.png
"""

import sys

import networkx as nx
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

from dasp import Explainer

EVALUATIONS = 200 if "--small" in sys.argv else 2000
MEMBER = 9  # a friend of the president's, and of one on the instructor's side

club = nx.karate_club_graph()
first, second = torch.tensor(list(club.edges)).T
members = torch.eye(len(club))
pairs = members[first][:, :, None] * members[second][:, None]
pairs = pairs + pairs.mT  # of every friendship, (friendships, members, members)


class GraphNetwork(nn.Module):
    """Two graph convolutions (Kipf and Welling): the weights of friendships → the logit of the president's side."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(len(club), 8, bias=False), nn.Linear(8, 1, bias=False)

    def everyone(self, friendships: Tensor) -> Tensor:
        """Return the logit of every member, (rows, members)."""
        adjacency = members + torch.einsum("re,emn->rmn", friendships, pairs)
        scale = adjacency.sum(2, keepdim=True).rsqrt()
        adjacency = scale * adjacency * scale.mT
        hidden = (adjacency @ self.inner.weight.T).relu()
        return (adjacency @ self.outer(hidden))[..., 0]

    def forward(self, friendships: Tensor) -> Tensor:
        """Return the logit of the member that is explained."""
        return self.everyone(friendships)[:, MEMBER]


torch.manual_seed(0)
model, all_there = GraphNetwork(), torch.ones(1, len(first))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
for _ in range(100):
    optimizer.zero_grad()
    logits = model.everyone(all_there)[0, [0, 33]]  # of the instructor and the president
    nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor([0.0, 1.0])).backward()
    optimizer.step()
model.eval()
sides = model.everyone(all_there)[0].detach() > 0
right = sum(bool(sides[i]) == (club.nodes[i]["club"] == "Officer") for i in club)
print(f"{right} of {len(club)} members are on the side that they took")

explanation = Explainer(model, max_evaluations=EVALUATIONS)(all_there)[0]
values = explanation.values
print(
    f"its logit is {explanation.base_values + values.sum():.2f}, and {explanation.base_values:.2f} without friendships"
)

order = abs(values).argsort()  # the strongest on top
largest = abs(values).max()
places = nx.kamada_kawai_layout(club)
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
nx.draw_networkx_edges(club, places, edge_color="0.85", ax=axes)
nx.draw_networkx_edges(
    club, places, [list(club.edges)[i] for i in order], width=6 * abs(values[order]) / largest,
    edge_color=values[order], edge_cmap=plt.cm.RdBu_r, edge_vmin=-largest, edge_vmax=largest, ax=axes,
)  # fmt: skip
nx.draw_networkx_nodes(
    club, places, node_color=["#f4c9a8" if side else "#b5d4e9" for side in sides], node_size=220, ax=axes,
    edgecolors=["black" if i == MEMBER else "none" for i in club], linewidths=2,
)  # fmt: skip
nx.draw_networkx_labels(club, places, font_size=8, ax=axes)
axes.set_title(f"Why is member {MEMBER} on the president's side? Red friendships speak for it, blue ones against")
axes.title.set_fontsize(10)
axes.set_axis_off()
figure.savefig("club.png", dpi=110)
