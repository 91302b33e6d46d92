"""Raw tables behind scikit-learn's encoders."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import small_tables
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    SplineTransformer,
    StandardScaler,
)  # fmt: skip

from dasp.errors import BadInput
from dasp.explainer.encoders import Encoder, ValueNumbers


def people():
    """With a value that is missing."""
    table, _ = small_tables.people(60)
    table.loc[3, "pressure"] = np.nan
    return table


imputed = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
bins = KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf")
APART = {
    "one-hot and scaled": make_column_transformer(
        (OneHotEncoder(), ["city", "sex"]), (imputed, ["pressure", "age"]), remainder="passthrough"
    ),
    "dropped, binned, splines": make_column_transformer(
        (OneHotEncoder(drop="first"), ["sex"]), (bins, ["visits"]), (SplineTransformer(), ["age"])
    ),
    "by number and by truth": make_column_transformer(
        (OrdinalEncoder(), [1]), ("passthrough", [False, False, False, False, True])
    ),
    "by kind": make_column_transformer(
        (OneHotEncoder(sparse_output=False), make_column_selector(dtype_exclude="number")), remainder=imputed
    ),
    "a union": make_column_transformer((make_union(bins, StandardScaler()), ["age", "visits"])),
}
MIXED = {
    "components": make_column_transformer((make_pipeline(StandardScaler(), PCA(1)), ["age", "visits"])),
    "neighbours": make_column_transformer((KNNImputer(), ["age", "pressure"])),
    "a norm": make_column_transformer((Normalizer(), ["age", "visits"])),
    "a function": make_column_transformer((FunctionTransformer(np.log1p), ["age", "visits"])),
}


@pytest.mark.parametrize("fitted", APART.values(), ids=APART)
def test_numbers_belong_to_the_column_they_are_made_from(fitted):
    table = people()
    encoder = Encoder(fitted.fit(table))
    before = encoder.encoded(encoder.table(table, "X"), "X")
    assert len(encoder.owners) == before.shape[1]
    for place, name in enumerate(table.columns):
        other = table.assign(**{name: table[name].to_numpy()[::-1]})
        after = encoder.encoded(encoder.table(other, "X"), "X")
        changed = ((before != after) & ~(np.isnan(before) & np.isnan(after))).any(0)
        own = np.array(encoder.owners) == place
        assert not changed[~own].any()
        assert changed[own].any() == own.any()


@pytest.mark.parametrize("fitted", MIXED.values(), ids=MIXED)
def test_numbers_that_several_columns_make_are_known(fitted):
    assert Encoder(fitted.fit(people())).owners is None


def test_values_have_numbers():
    table = people().assign(city=lambda t: t.city.where(t.sex == "m", None))
    known = ValueNumbers()
    first, again = known.of(table[:30]), known.of(table)
    assert first.tolist() == again[:30].tolist()
    pd.testing.assert_frame_equal(known.table(again), table, check_dtype=False)


def test_columns_are_found_by_name():
    table = people()
    encoder = Encoder(APART["one-hot and scaled"].fit(table))
    pd.testing.assert_frame_equal(encoder.table(table[table.columns[::-1]], "X"), table)
    with pytest.raises(BadInput, match="X lacks the column 'sex'"):
        encoder.table(table.drop(columns="sex"), "X")
    with pytest.raises(BadInput, match="X has the column 'label', which the encoder was not fitted with"):
        encoder.table(table.assign(label=1), "X")
    with pytest.raises(BadInput, match="the encoder cannot transform X: .*Zug"):
        encoder.encoded(encoder.table(table.assign(city="Zug"), "X"), "X")
    with pytest.raises(BadInput, match="is not fitted yet"):
        Encoder(StandardScaler())
    with pytest.raises(BadInput, match="a fitted scikit-learn transformer is needed"):
        Encoder(3)
