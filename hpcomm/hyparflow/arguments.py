"""What the user asked of `fit`, checked; nothing here talks to other ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcomm.choices import STRATEGIES
from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DATA_MODES",
    "GATHER_MODES",
    "STRATEGIES",
    "Layout",
    "check_choice",
    "check_fraction",
    "check_layers",
    "check_whole",
    "resolve_layout",
    "resolve_micro_batches",
]

GATHER_MODES = ("root", "all", "none")
DATA_MODES = ("full", "shard")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the ranks are used.

    Attributes:
        strategy: "data", "model" or "hybrid".
        partitions: parts of one model, P >= 1.
        replicas: copies of the model, R >= 1; P * R ranks.
    """

    strategy: str
    partitions: int
    replicas: int


def check_whole(label: str, value: Any, *, least: int = 1, call: str = "fit") -> int:
    """Return ``value`` as a Python int, or raise.

    Args:
        label: name of the argument, for the message.
        value: what the user gave.
        least: smallest value allowed.
        call: name of the public function, for the message.

    Returns:
        The number.

    Raises:
        InvalidArgumentError: not a whole number, or too small.
    """
    try:
        number = value.__index__()
    except AttributeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise InvalidArgumentError(
            f"{call}: {label} must be a whole number >= {least}, got {value!r}"
        )
    return int(number)


def check_choice(label: str, value: Any, choices: Sequence[str], *, call: str = "fit") -> str:
    """Return ``value`` if it is one of ``choices``.

    Args:
        label: name of the argument, for the message.
        value: what the user gave.
        choices: what is allowed.
        call: name of the public function, for the message.

    Returns:
        The choice.

    Raises:
        InvalidArgumentError: anything else was given.
    """
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise InvalidArgumentError(f"{call}: {label} must be one of {allowed}; got {value!r}")
    return value


def check_fraction(label: str, value: Any, *, call: str = "fit") -> float:
    """Return ``value`` as a float in [0, 1).

    Args:
        label: name of the argument, for the message.
        value: what the user gave; None means 0.
        call: name of the public function, for the message.

    Returns:
        The fraction.

    Raises:
        InvalidArgumentError: not a number in that range.
    """
    number = value if value is not None else 0.0
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0.0 <= number < 1.0:
        raise InvalidArgumentError(f"{call}: {label} must be a number in [0, 1), got {value!r}")
    return float(number)


def check_layers(lpp: Any, *, call: str = "fit") -> tuple[int, ...] | None:
    """Return the layers per partition as a tuple of whole numbers.

    Args:
        lpp: what the user gave; None stays None.
        call: name of the public function, for the message.

    Returns:
        The numbers.

    Raises:
        InvalidArgumentError: not a list of whole numbers.
    """
    if lpp is None:
        return None
    if isinstance(lpp, (str, bytes, dict)) or not hasattr(lpp, "__iter__"):
        raise InvalidArgumentError(
            f"{call}: lpp must be a list with the number of layers of each partition, got {lpp!r}"
        )
    return tuple(check_whole("lpp", item, call=call) for item in lpp)


def resolve_layout(
    strategy: str,
    num_partitions: int | None,
    num_replicas: int | None,
    *,
    world_size: int,
    num_nodes: int = 1,
    call: str = "fit",
) -> Layout:
    """Fill in what the user left open and check that it uses every rank exactly once.

    "data": one partition, a replica per rank. "model": one replica, a partition per rank. "
    ""hybrid": what is not given
    follows from the number of ranks; with neither given, a replica per node.

    Args:
        strategy: "data", "model" or "hybrid".
        num_partitions: P or None.
        num_replicas: R or None.
        world_size: ranks in the communicator.
        num_nodes: nodes that hold them.
        call: name of the public function, for messages.

    Returns:
        The layout.

    Raises:
        InvalidArgumentError: unknown strategy, numbers that contradict it, or P * R is not
            ``world_size``.
    """
    check_choice("strategy", strategy, STRATEGIES, call=call)
    partitions, replicas = num_partitions, num_replicas
    if partitions is not None:
        partitions = check_whole("num_partitions", partitions, call=call)
    if replicas is not None:
        replicas = check_whole("num_replicas", replicas, call=call)
    if strategy == "data":
        if partitions not in (None, 1):
            raise InvalidArgumentError(
                f"{call}: strategy 'data' keeps the model whole, so num_partitions must be 1, got "
                f"{partitions}; "
                "use 'hybrid' to split it as well"
            )
        partitions, replicas = 1, world_size if replicas is None else replicas
    elif strategy == "model":
        if replicas not in (None, 1):
            raise InvalidArgumentError(
                f"{call}: strategy 'model' trains one copy, so num_replicas must be 1, got "
                f"{replicas}; "
                "use 'hybrid' for several"
            )
        partitions, replicas = world_size if partitions is None else partitions, 1
    else:
        partitions, replicas = _derive_hybrid(partitions, replicas, world_size, num_nodes, call)
    if partitions * replicas != world_size:
        raise InvalidArgumentError(
            f"{call}: {partitions} partitions x {replicas} replicas need {partitions * replicas} "
            f"ranks, but {world_size} were started; start that many ranks "
            f"(hpcomm run -n {partitions * replicas}) or change num_partitions or num_replicas"
        )
    return Layout(strategy, partitions, replicas)


def _derive_hybrid(
    partitions: int | None, replicas: int | None, world_size: int, num_nodes: int, call: str
) -> tuple[int, int]:
    if partitions is None and replicas is None:
        if num_nodes < 2 or world_size % num_nodes:
            raise InvalidArgumentError(
                f"{call}: strategy 'hybrid' needs num_partitions or num_replicas; with neither, "
                "each node would hold "
                f"one replica, which {world_size} ranks on {num_nodes} node(s) do not allow"
            )
        return world_size // num_nodes, num_nodes
    if partitions is None:
        assert replicas is not None
        return max(1, world_size // replicas), replicas
    if replicas is None:
        return partitions, max(1, world_size // partitions)
    return partitions, replicas


def resolve_micro_batches(
    micro_batches: int | None, *, layout: Layout, batch_size: int | None, call: str = "fit"
) -> int:
    """Return how many micro-batches a replica's batch is cut into.

    The default is 1 without partitions, else twice the number of partitions (as far as the batch
    allows), which keeps the pipeline's idle share near a third.

    Args:
        micro_batches: what the user gave, or None.
        layout: how the ranks are used.
        batch_size: samples of a global batch; None where the data source decides.
        call: name of the public function, for messages.

    Returns:
        The number, >= 1.

    Raises:
        InvalidArgumentError: the smallest share of a full batch has fewer samples than
            micro-batches, or a replica would get no sample at all.
    """
    smallest = None
    if batch_size is not None:
        smallest = batch_size // layout.replicas
        if smallest < 1:
            raise InvalidArgumentError(
                f"{call}: batch_size {batch_size} gives {layout.replicas} replicas no sample "
                "each; use a batch_size "
                f"of at least {layout.replicas} or fewer replicas"
            )
    if micro_batches is None:
        wanted = 1 if layout.partitions == 1 else 2 * layout.partitions
        return wanted if smallest is None else min(wanted, smallest)
    number = check_whole("micro_batches", micro_batches, call=call)
    if smallest is not None and number > smallest:
        least = number * layout.replicas
        raise InvalidArgumentError(
            f"{call}: batch_size {batch_size} over {layout.replicas} replica(s) leaves {smallest} "
            "sample(s) for "
            f"{number} micro-batches; use a batch_size of at least {least} or fewer micro-batches"
        )
    return number
