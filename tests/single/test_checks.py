from __future__ import annotations

import numpy as np
import pytest

import hpcomm
from hpcomm import checks


@pytest.fixture(scope="module")
def comm():
    return hpcomm.init()


def test_fast_and_slow_ways_to_a_rank_agree(comm):
    assert checks.peer(comm, "send", "dst", 0) == 0
    assert checks.peer(comm, "send", "dst", np.int64(0)) == 0
    for wrong in (1, -1, True, 0.0, "0", None):
        with pytest.raises(hpcomm.InvalidArgumentError, match="dst"):
            checks.peer(comm, "send", "dst", wrong)


def test_tags_end_where_the_core_begins(comm):
    assert checks.tag(comm, "send", 16383) == 16383
    assert hpcomm._core.TAG_OBJECT > checks.TAG_LIMIT
    for wrong in (16384, -1, 1.5):
        with pytest.raises(hpcomm.InvalidArgumentError, match="tag"):
            checks.tag(comm, "send", wrong)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "1 s", [1]])
def test_timeouts_must_be_positive_seconds(wrong):
    with pytest.raises(hpcomm.InvalidArgumentError, match="timeout_s"):
        checks.timeout_s(wrong, "recv: timeout_s", 1.0)
    assert checks.timeout_s(None, "recv: timeout_s", 7.0) == 7.0
    assert checks.timeout_s(2, "recv: timeout_s", 7.0) == 2.0


def test_names_and_numbers_are_those_of_the_core():
    from hpcomm import _core, buffers, objects

    assert tuple(checks.OPS) == _core.OPS
    assert buffers.DTYPE_NAMES == _core.DTYPES
    assert _core.DTYPES[objects._BYTE] == "uint8"
    assert _core.DTYPES[objects._WORD] == "uint64"


def test_messages_say_call_rank_and_remedy(comm):
    with pytest.raises(hpcomm.InvalidArgumentError) as caught:
        comm.allreduce(np.zeros(2), "mean")
    for word in ("allreduce", "rank 0", "'world'", "'mean'", "sum, avg"):
        assert word in str(caught.value)
    assert caught.value.rank == 0


def test_errors_are_also_what_python_programs_catch():
    assert issubclass(hpcomm.InvalidArgumentError, ValueError)
    assert issubclass(hpcomm.MismatchError, hpcomm.InvalidArgumentError)
    assert issubclass(hpcomm.UnsupportedError, NotImplementedError)
    assert issubclass(hpcomm.CommTimeoutError, TimeoutError)
    assert issubclass(hpcomm.PeerDiedError, ConnectionError)
    for name in hpcomm.__all__:
        value = getattr(hpcomm, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, hpcomm.HpcommError)
            assert value("text", rank=3).rank == 3
