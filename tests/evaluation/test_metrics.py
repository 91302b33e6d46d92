from __future__ import annotations

import torch
from scipy.stats import spearmanr

from dasp import completeness_gap, rmse, spearman


def test_rmse_by_hand():
    error = rmse(torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]]))
    torch.testing.assert_close(error, torch.tensor([12.5**0.5, 0.0]))


def test_spearman_as_in_scipy_with_ties():
    a = torch.randint(0, 5, (4, 3, 7), generator=torch.Generator().manual_seed(0)).float()
    b = torch.randint(0, 5, (4, 3, 7), generator=torch.Generator().manual_seed(1)).float()
    expected = [spearmanr(x.flatten(), y.flatten()).statistic for x, y in zip(a, b, strict=True)]
    torch.testing.assert_close(spearman(a, b), torch.tensor(expected).float())


def test_completeness_gap():
    gap = completeness_gap(torch.tensor([[[1.0, 2.0]]]), torch.tensor([5.0]), torch.tensor([1.0]))
    assert gap.tolist() == [-1]
