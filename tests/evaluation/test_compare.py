"""Comparisons of methods: the front of those that nothing beats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dasp.evaluation import front

POINT = st.tuples(st.integers(0, 6), st.integers(0, 6))


@given(st.lists(POINT, min_size=1, max_size=12))
def test_front_is_what_nothing_dominates(points):
    def dominated(p):
        return any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)

    found = front(points)
    assert sorted(found) == [i for i, p in enumerate(points) if not dominated(p)]
    assert [points[i][0] for i in found] == sorted(points[i][0] for i in found)
