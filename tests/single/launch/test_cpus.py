from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcomm.launch import cpus


def machine(folder: Path, cores: list[list[int]], nodes: list[list[int]]) -> Path:
    """What the kernel would say about a machine."""
    for threads in cores:
        for cpu in threads:
            place = folder / f"cpu/cpu{cpu}/topology"
            place.mkdir(parents=True)
            place.joinpath("thread_siblings_list").write_text(",".join(map(str, threads)) + "\n")
    for number, node in enumerate(nodes):
        place = folder / f"node/node{number}"
        place.mkdir(parents=True)
        place.joinpath("cpulist").write_text(f"{node[0]}-{node[-1]}\n")
    return folder


def test_whole_cores_go_to_ranks_where_there_are_enough(tmp_path):
    system = machine(tmp_path, [[0, 4], [1, 5], [2, 6], [3, 7]], [list(range(8))])
    eight = list(range(8))
    assert cpus.shares("core", eight, 2, system) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert cpus.shares("core", eight, 4, system) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert cpus.shares("core", eight, 3, system) == [[0, 4], [1, 5], [2, 3, 6, 7]]
    assert cpus.shares("core", eight, 8, system) == [[cpu] for cpu in eight]
    assert cpus.shares("none", eight, 2, system) == [eight, eight]
    assert cpus.shares("core", [1, 5, 2], 2, system) == [[1, 5], [2]]


def test_numa_shares_do_not_cross_memory_nodes(tmp_path):
    system = machine(tmp_path, [[cpu] for cpu in range(6)], [[0, 1], [2, 3], [4, 5]])
    six = list(range(6))
    assert cpus.shares("numa", six, 3, system) == [[0, 1], [2, 3], [4, 5]]
    assert cpus.shares("numa", six, 2, system) == [[0, 1], [2, 3, 4, 5]]
    for ranks in (4, 5):
        for share in cpus.shares("numa", six, ranks, system):
            assert len({cpu // 2 for cpu in share}) == 1
    assert cpus.shares("numa", [0, 1, 2], 3, system) == [[0], [1], [2]]


def test_machine_without_description_is_one_node_of_single_cores(tmp_path):
    assert cpus.numa_nodes([3, 5], tmp_path) == [[3, 5]]
    assert cpus.cores([3, 5], tmp_path) == [[3], [5]]


@given(
    st.lists(st.integers(0, 63), min_size=1, max_size=32, unique=True),
    st.integers(1, 40),
    st.sampled_from(["core", "numa"]),
)
def test_shares_use_every_cpu_once_and_leave_nobody_without(numbers, ranks, policy):
    allowed = sorted(numbers)
    found = cpus.shares(policy, allowed, ranks, Path("/nowhere"))
    assert len(found) == ranks
    if ranks <= len(allowed):
        assert sorted(cpu for share in found for cpu in share) == allowed
        assert all(found)
        sizes = {len(share) for share in found}
        assert max(sizes) - min(sizes) <= 1
    else:
        assert found == [allowed] * ranks


def test_default_policy_depends_on_cpus_per_rank():
    assert cpus.default_policy(2, 2) == "core"
    assert cpus.default_policy(2, 3) == "none"


def test_threads_fill_the_share():
    allowed = cpus.allowed()
    share, threads = cpus.share_of("none", 0, len(allowed) + 1)
    assert (share, threads) == (allowed, 1)
    share, threads = cpus.share_of("core", 0, 1)
    assert (share, threads) == (allowed, len(allowed))
    variables = cpus.thread_variables(3)
    assert variables["OMP_NUM_THREADS"] == variables["TF_NUM_INTRAOP_THREADS"] == "3"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8\n", [0, 1, 2, 3, 8]), ("5", [5]), ("\n", []), ("0,2-3", [0, 2, 3])],
)
def test_kernel_lists(text, numbers):
    assert cpus._parse_list(text) == numbers
