from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcomm.errors import InvalidArgumentError
from hpcomm.hyparflow.shares import cut, share


def test_cut_gives_the_first_shares_the_rest() -> None:
    assert cut(10, 4) == [3, 3, 2, 2]
    assert cut(2, 4) == [1, 1, 0, 0]
    assert cut(0, 3) == [0, 0, 0]


@given(st.integers(0, 500), st.integers(1, 40))
def test_shares_are_contiguous_and_even(total: int, parts: int) -> None:
    spans = [share(total, parts, i) for i in range(parts)]
    assert [stop - start for start, stop in spans] == cut(total, parts)
    assert [start for start, _ in spans] == [0] + [stop for _, stop in spans[:-1]]
    assert spans[-1][1] == total
    assert max(cut(total, parts)) - min(cut(total, parts)) <= 1


def test_share_outside_of_its_range_is_an_error() -> None:
    for bad in (lambda: cut(-1, 2), lambda: cut(3, 0), lambda: share(3, 2, 2)):
        with pytest.raises(InvalidArgumentError):
            bad()
