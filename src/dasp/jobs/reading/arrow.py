"""Between NumPy and Arrow without pandas, which pyarrow's own conversions import where it is installed: it takes longer
than a small job does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["column", "floats", "lists", "strings", "texts"]


def column(values: NDArray[Any]) -> pa.Array:
    """Numbers or truth values in one dimension as an array of Arrow.

    >>> column(np.array([True, False, True])).to_pylist(), column(np.array([0.5, 2])).to_pylist()
    ([True, False, True], [0.5, 2.0])
    """
    kind = pa.from_numpy_dtype(values.dtype)
    packed = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])


def texts(values: Sequence[str]) -> pa.Array:
    """Texts as an array of Arrow.

    >>> texts(["a", "", "Zürich"]).to_pylist()
    ['a', '', 'Zürich']
    """
    encoded = [text.encode() for text in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers).cast(pa.string())


def floats(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of numbers in float64, NaN where an entry is missing.

    >>> floats(pa.chunked_array([[1, None], [3]]))
    array([ 1., nan,  3.])
    """
    cast = values.cast(pa.float64(), safe=False).combine_chunks()
    filled: Any = np.from_dlpack(pc.coalesce(cast, column(np.array([np.nan]))[0]))
    return filled


def strings(values: pa.ChunkedArray) -> NDArray[Any]:
    """A column of texts as objects, None where an entry is missing.

    >>> strings(pa.chunked_array([["a", None], ["Zürich"]])).tolist()
    ['a', None, 'Zürich']
    """
    found = np.empty(len(values), dtype=object)
    found[:] = values.to_pylist()
    return found


def lists(entries: pa.Array, lengths: Sequence[int]) -> pa.Array:
    """Entries, one list behind the other, as lists of these lengths.

    >>> lists(texts(["a", "b", "c"]), [2, 1]).to_pylist()
    [['a', 'b'], ['c']]
    """
    return pa.ListArray.from_arrays(column(np.cumsum([0, *lengths], dtype=np.int32)), entries)
