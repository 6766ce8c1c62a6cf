from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcomm import InvalidArgumentError, config
from hpcomm.config import Config


def test_defaults_are_documented_values():
    settings = Config.from_environment({})
    assert settings.timeout_s == 600
    assert settings.bootstrap == "auto"
    assert not settings.allow_singleton
    assert settings.ranks_per_node == 0
    for variable in config.VARIABLES:
        assert variable.name.startswith("HPCOMM_")
        assert variable.summary
        assert variable.field in Config.__slots__
    assert len({variable.name for variable in config.VARIABLES}) == len(config.VARIABLES)


def test_values_are_parsed():
    settings = Config.from_environment(
        {
            "HPCOMM_TIMEOUT": "inf",
            "HPCOMM_BOOTSTRAP": "MPI",
            "HPCOMM_ALLOW_SINGLETON": "1",
            "HPCOMM_RANKS_PER_NODE": "4",
            "HPCOMM_RING_BYTES": "2M",
            "HPCOMM_LOG": "debug",
        }
    )
    assert math.isinf(settings.timeout_s)
    assert settings.bootstrap == "mpi"
    assert settings.allow_singleton
    assert settings.ranks_per_node == 4
    assert settings.ring_bytes == 2 << 20
    assert settings.log_level == "debug"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HPCOMM_TIMEOUT", "0"),
        ("HPCOMM_TIMEOUT", "nan"),
        ("HPCOMM_TIMEOUT", "soon"),
        ("HPCOMM_BOOTSTRAP", "magic"),
        ("HPCOMM_ALLOW_SINGLETON", "perhaps"),
        ("HPCOMM_RANKS_PER_NODE", "-1"),
        ("HPCOMM_RANKS_PER_NODE", "1.5"),
        ("HPCOMM_SLOT_BYTES", "many"),
        ("HPCOMM_LOG", "loud"),
    ],
)
def test_value_that_cannot_be_understood_is_named_with_what_would_be(name, value):
    with pytest.raises(InvalidArgumentError, match=name) as caught:
        Config.from_environment({name: value})
    assert repr(value) in str(caught.value)
    assert "must be" in str(caught.value)


@given(st.integers(0, 1 << 50))
def test_sizes_of_any_number_are_read_back(nbytes):
    assert config.parse_size(str(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("64k", 65536),
        ("64KiB", 65536),
        ("1.5G", 3 << 29),
        ("2gb", 2 << 30),
        ("10B", 10),
        (" 1M ", 1 << 20),
    ],
)
def test_sizes_with_suffixes(text, nbytes):
    assert config.parse_size(text) == nbytes


@given(st.text(max_size=8))
def test_any_other_text_is_refused_or_a_size(text):
    with contextlib.suppress(ValueError):
        assert config.parse_size(text) >= 0
