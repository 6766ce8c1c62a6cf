from __future__ import annotations

import sys

import pytest

from hpcomm.errors import InvalidArgumentError, ModelError
from hpcomm.models import registry
from hpcomm.models.resnet import blocks_v1, blocks_v2
from hpcomm.models.task import BuildOptions


def test_listed_names_are_the_documented_ones():
    assert registry.names() == [
        "mlp",
        "resnet20-v1",
        "resnet56-v1",
        "resnet110-v1",
        "resnet29-v2",
        "resnet110-v2",
        "resnet1001-v2",
        "resnet4997-v2",
        "vgg16",
        "two-towers",
        "tied",
        "regularized",
    ]
    for name in registry.names():
        assert registry.get(name).name == name


@pytest.mark.parametrize("n", [1, 3, 9, 18])
def test_blocks_v1_count_layers_and_widths(n):
    depth = 6 * n + 2
    blocks = blocks_v1(depth)
    assert 2 * len(blocks) + 2 == depth
    assert [b.outer for b in blocks] == [16] * n + [32] * n + [64] * n
    assert [b.stride for b in blocks].count(2) == 2
    assert [b.projection for b in blocks] == [b.stride == 2 for b in blocks]
    assert len({b.name for b in blocks}) == len(blocks)
    assert registry.get(f"resnet{depth}-v1").arguments == (depth,)


@pytest.mark.parametrize("n", [1, 3, 12, 111, 555])
def test_blocks_v2_count_layers_and_widths(n):
    depth = 9 * n + 2
    blocks = blocks_v2(depth)
    assert 3 * len(blocks) + 2 == depth
    assert [b.outer for b in blocks] == [64] * n + [128] * n + [256] * n
    assert [b.inner for b in blocks] == [16] * n + [64] * n + [128] * n
    assert sum(b.projection for b in blocks) == 3
    assert [b.preactivated for b in blocks] == [False] + [True] * (3 * n - 1)
    assert registry.get(f"resnet{depth}-v2").arguments == (depth,)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet21-v1", "6n\\+2 with n at least 1; nearest are 20 and 26"),
        ("resnet2-v1", "nearest are 8 and 14"),
        ("resnet1000-v2", "9n\\+2 .* nearest are 992 and 1001"),
        ("resnet0-v2", "9n\\+2"),
        ("resnet20-v3", "not known; known are mlp"),
        ("alexnet2", "package.module:function"),
    ],
)
def test_names_outside_the_registry_are_refused(name, message):
    with pytest.raises(InvalidArgumentError, match=message):
        registry.get(name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image_size": 0}, "image size"),
        ({"image_size": 8, "num_classes": 1}, "at least 2 classes"),
        ({"image_size": 8, "dropout": 1.0}, "dropout rate"),
    ],
)
def test_build_options_are_checked(values, message):
    with pytest.raises(InvalidArgumentError, match=message):
        BuildOptions(**values)


def test_options_take_the_models_defaults():
    assert registry.get("resnet20-v1").options().image_size == 32
    assert registry.get("resnet20-v1").options(image_size=8).image_size == 8
    assert registry.get("tied").options().num_classes == 32
    with pytest.raises(InvalidArgumentError, match="takes no image"):
        registry.get("tied").options(image_size=8)


def test_user_function_is_found_and_called(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(
        "def fixed():\n    return 'fixed'\n"
        "def sized(image_size=7):\n    return image_size\n"
        "value = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.is_user_function("own_models:fixed")
    assert not registry.is_user_function("resnet20-v1")
    fixed = registry.load_user_function("own_models:fixed")
    sized = registry.load_user_function("own_models:sized")
    assert registry.call_user_function(fixed, None) == "fixed"
    assert registry.call_user_function(sized, None) == 7
    assert registry.call_user_function(sized, 9) == 9
    with pytest.raises(ModelError, match="fixed takes no argument image_size"):
        registry.call_user_function(fixed, 9)
    with pytest.raises(ModelError, match="has no function 'absent'"):
        registry.load_user_function("own_models:absent")
    with pytest.raises(ModelError, match="has no function 'value'"):
        registry.load_user_function("own_models:value")
    with pytest.raises(ModelError, match="cannot be imported"):
        registry.load_user_function("no_such_module_here:f")
    sys.modules.pop("own_models", None)
