"""A small table of people, with numbers and categories, and what a model may learn of them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def people(rows=80):
    draw = np.random.default_rng(0)
    table = pd.DataFrame({
        "age": draw.normal(50, 10, rows), "city": draw.choice(["Bern", "Basel", "Genf"], rows),
        "sex": draw.choice(["m", "f"], rows), "pressure": draw.normal(size=rows), "visits": draw.integers(0, 9, rows),
    })  # fmt: skip
    label = table.age / 10 * (table.city == "Bern") + table.pressure * (table.sex == "m") + np.sin(table.visits)
    return table, label
