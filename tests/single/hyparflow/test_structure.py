from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

from hpcomm.hyparflow.structure import concatenate, flatten, is_nested, map_arrays, unpack


def test_map_keeps_containers_keys_and_missing_arrays() -> None:
    pair = namedtuple("pair", "a b")
    value = {"z": [1, None, (2, 3)], "a": pair(4, 5)}
    result = map_arrays(lambda leaf: leaf * 10, value)
    assert result == {"z": [10, None, (20, 30)], "a": pair(40, 50)}
    assert list(result) == ["z", "a"]
    assert isinstance(result["a"], pair)


def test_map_visits_in_the_order_of_flatten() -> None:
    seen: list[int] = []
    value = {"b": [1, 2], "a": 3}
    map_arrays(seen.append, value)
    assert seen == list(flatten(value)) == [3, 1, 2]


def test_concatenate_joins_leaf_by_leaf() -> None:
    parts = [{"y": np.arange(2), "w": None}, {"y": np.arange(3), "w": None}]
    joined = concatenate(parts, np.concatenate)
    assert joined["w"] is None
    np.testing.assert_array_equal(joined["y"], [0, 1, 0, 1, 2])


def test_unpack_reads_what_keras_reads() -> None:
    assert unpack("x") == ("x", None, None)
    assert unpack(("x",)) == ("x", None, None)
    assert unpack(["x", "y"]) == ("x", "y", None)
    assert unpack(("x", "y", "w")) == ("x", "y", "w")
    for bad in ((), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match="tuple of"):
            unpack(bad)
    assert is_nested({})
    assert not is_nested(np.zeros(1))
