"""How the ranks of one machine share its CPUs; the standard library only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["POLICIES", "Share", "allowed", "default_policy", "describe", "share_of"]

POLICIES = ("none", "core", "numa")
# Libraries read these when they make their thread pools. TensorFlow's own adapter applies the last
# two through its configuration calls.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")

Share = list[int]


def allowed() -> list[int]:
    """Return the CPUs that this process may use, ascending."""
    return sorted(os.sched_getaffinity(0))


def _parse_list(text: str) -> list[int]:
    """Return the numbers of a kernel list such as ``0-3,8``."""
    result: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            result.extend(range(int(first), int(last or first) + 1))
    return result


def _groups(cpus: Sequence[int], lists: Iterable[str]) -> list[list[int]]:
    """Return ``cpus`` grouped by the kernel lists they occur in; alone where they occur in none."""
    left = dict.fromkeys(cpus)
    groups = []
    for text in lists:
        group = [cpu for cpu in _parse_list(text) if cpu in left]
        for cpu in group:
            del left[cpu]
        if group:
            groups.append(group)
    return sorted([*groups, *([cpu] for cpu in left)])


def cores(cpus: Sequence[int], system: Path = Path("/sys/devices/system")) -> list[list[int]]:
    """Return ``cpus`` grouped by physical core (hardware threads of one core together)."""
    files = (system / f"cpu/cpu{cpu}/topology/thread_siblings_list" for cpu in cpus)
    return _groups(cpus, (file.read_text() for file in files if file.exists()))


def numa_nodes(cpus: Sequence[int], system: Path = Path("/sys/devices/system")) -> list[list[int]]:
    """Return ``cpus`` grouped by memory node; one group where the kernel names no nodes."""
    files = sorted((system / "node").glob("node[0-9]*/cpulist"))
    return _groups(cpus, (file.read_text() for file in files)) if files else [list(cpus)]


def _deal(items: Sequence[list[int]], ranks: int) -> list[Share]:
    """Deal groups to ranks in contiguous runs that differ by one group at most."""
    bounds = [rank * len(items) // ranks for rank in range(ranks + 1)]
    runs = (items[bounds[rank] : bounds[rank + 1]] for rank in range(ranks))
    return [sorted(cpu for group in run for cpu in group) for run in runs]


def default_policy(num_cpus: int, ranks: int) -> str:
    """Return "core" where every rank can have a CPU of its own, else "none"."""
    return "core" if ranks <= num_cpus else "none"


def shares(
    policy: str, cpus: Sequence[int], ranks: int, system: Path = Path("/sys/devices/system")
) -> list[Share]:
    """Return the CPUs of every rank of this machine.

    Args:
        policy: "core" deals whole cores (hardware threads if ranks exceed cores), "numa" the same
            without crossing a border of memory nodes, "none" gives everyone everything.
        cpus: CPUs to share.
        ranks: number of ranks on this machine.
        system: where the kernel describes the machine.

    Returns:
        One list of CPUs per rank. They do not overlap unless ``policy`` is "none" or ranks exceed
        CPUs.
    """
    if policy == "none" or ranks > len(cpus):
        return [list(cpus)] * ranks
    if policy == "numa":
        nodes = numa_nodes(cpus, system)
        if ranks > len(nodes):
            by_node = [rank * len(nodes) // ranks for rank in range(ranks)]
            counts = [by_node.count(node) for node in range(len(nodes))]
            if all(count <= len(node) for count, node in zip(counts, nodes, strict=True)):
                parts = (
                    shares("core", node, count, system)
                    for node, count in zip(nodes, counts, strict=True)
                )
                return [share for part in parts for share in part]
        else:
            return _deal(nodes, ranks)
    physical = cores(cpus, system)
    return _deal(physical if ranks <= len(physical) else [[cpu] for cpu in cpus], ranks)


def share_of(policy: str, local_rank: int, local_size: int) -> tuple[Share, int]:
    """Return the CPUs of one rank of this machine, and how many threads it should start."""
    cpus = allowed()
    share = shares(policy, cpus, local_size)[local_rank]
    overlapping = policy == "none" or local_size > len(cpus)
    return share, max(1, len(cpus) // local_size) if overlapping else len(share)


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that give frameworks ``threads`` threads."""
    return {**dict.fromkeys(THREAD_VARIABLES, str(threads)), "TF_NUM_INTEROP_THREADS": "1"}


def describe(policy: str, local_size: int) -> str:
    """Return one line on how the CPUs are shared, for people."""
    cpus = allowed()
    sizes = sorted({len(share) for share in shares(policy, cpus, local_size)})
    _, threads = share_of(policy, 0, local_size)
    if policy == "none" or local_size > len(cpus):
        return (
            f"{local_size} ranks share {len(cpus)} CPUs, {threads} threads each (--bind {policy})"
        )
    each = "-".join(str(size) for size in sizes)
    return f"{local_size} ranks on {len(cpus)} CPUs, {each} of their own each (--bind {policy})"
