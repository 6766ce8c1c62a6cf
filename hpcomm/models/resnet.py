"""The residual networks of the HyPar-Flow paper as data: blocks, widths and strides.

Version 1 has basic blocks (two 3×3 convolutions, depth 6n+2); version 2 has pre-activated
bottlenecks (1×1, 3×3, 1×1, depth 9n+2) whose widths double from stage to stage, so that depth 1001
has 30 million parameters, as in the paper.

Source: He, Zhang, Ren, Sun, "Deep residual learning" (2016) and "Identity mappings" (2016), in the
arrangement of the Keras CIFAR-10 example.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcomm.errors import InvalidArgumentError

WEIGHT_DECAY = 1e-4
"""L2 penalty on every convolution kernel."""

BATCH_NORM_MOMENTUM = 0.9
"""Share of the old moving statistics that an update keeps; fits runs of a few hundred steps."""

STEM_FILTERS = 16
_STAGES = 3


@dataclass(frozen=True, slots=True)
class Block:
    """One residual block.

    Attributes:
        name: prefix of its layers' names.
        inner: filters inside the block.
        outer: filters of its output.
        stride: of its first convolution.
        projection: whether the shortcut is a 1×1 convolution.
        preactivated: whether batch norm and ReLU precede the first convolution (version 2 only).
    """

    name: str
    inner: int
    outer: int
    stride: int
    projection: bool
    preactivated: bool = True


def blocks_v1(depth: int) -> list[Block]:
    """Return the blocks of a version 1 network.

    Args:
        depth: layers with weights on the main path, 6n+2.

    Raises:
        InvalidArgumentError: depth is not 6n+2 with n ≥ 1.
    """
    per_stage = _blocks_per_stage(depth, layers_per_block=2, version=1)
    blocks = []
    for stage in range(_STAGES):
        filters = STEM_FILTERS << stage
        for index in range(per_stage):
            first = stage > 0 and index == 0
            name = f"s{stage}b{index}"
            blocks.append(Block(name, filters, filters, 2 if first else 1, projection=first))
    return blocks


def blocks_v2(depth: int) -> list[Block]:
    """Return the blocks of a version 2 network.

    Args:
        depth: layers with weights on the main path, 9n+2.

    Raises:
        InvalidArgumentError: depth is not 9n+2 with n ≥ 1.
    """
    per_stage = _blocks_per_stage(depth, layers_per_block=3, version=2)
    blocks = []
    inner = STEM_FILTERS
    for stage in range(_STAGES):
        outer = inner * (4 if stage == 0 else 2)
        for index in range(per_stage):
            first = index == 0
            blocks.append(
                Block(
                    f"s{stage}b{index}",
                    inner,
                    outer,
                    stride=2 if first and stage > 0 else 1,
                    projection=first,
                    preactivated=stage > 0 or not first,
                )
            )
        inner = outer
    return blocks


def _blocks_per_stage(depth: int, *, layers_per_block: int, version: int) -> int:
    per_n = _STAGES * layers_per_block
    count, rest = divmod(depth - 2, per_n)
    if rest or count < 1:
        below = max(count, 1) * per_n + 2
        raise InvalidArgumentError(
            f"resnet{depth}-v{version}: depth must be {per_n}n+2 with n at least 1; "
            f"nearest are {below} and {below + per_n}"
        )
    return count
