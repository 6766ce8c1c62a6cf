"""hpcomm beside a program's own use of MPI, in every order of starting and ending."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support.jobs import hpcomm_run, mpiexec, program, run

import hpcomm


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_own_traffic_on_comm_world_never_meets_ours_mpi4jax(mpi_ranks, monkeypatch, ranks_per_node):
    from mpi4py import MPI

    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    user, peer = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank
    with hpcomm.init() as comm:
        pending = [user.irecv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG) for _ in range(20)]
        for i in range(20):
            theirs = comm.irecv(peer, tag=i % 4, shape=100, dtype="int64")
            user.send(("user", i), dest=peer, tag=i % 4)
            comm.isend(np.full(100, i), peer, tag=i % 4).wait()
            user.Barrier()
            assert comm.allreduce(np.array([i]))[0] == 2 * i
            assert user.allreduce(i) == 2 * i
            assert (theirs.wait() == i).all()
        assert [request.wait() for request in pending] == [("user", i) for i in range(20)]


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_user_level_of_threads_is_kept_and_groups_come_and_go(mpi_ranks, monkeypatch):
    from mpi4py import MPI

    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", "1")
    level = MPI.Query_thread()
    with hpcomm.init() as comm:
        assert MPI.Query_thread() == level
        for _ in range(30):
            child = comm.dup()
            child.barrier()
            child.close()
    assert MPI.COMM_WORLD.allreduce(1) == 2


WORK = """
comm = hpcomm.init()
assert comm.size == 2, comm.size
x = np.full(5000, comm.rank + 1.0, np.float32)
assert (comm.allreduce(x) == 3).all()
works = [comm.allreduce(x, asynchronous=True) for _ in range(5)]
peer = 1 - comm.rank
receive = comm.irecv(peer, shape=5000, dtype="float32")
comm.isend(x, peer).wait()
assert (receive.wait() == peer + 1).all()
assert all((work.wait() == 3).all() for work in works)
assert comm.split(comm.rank).size == 1
print("done", comm.rank, comm._core.has_background_progress, flush=True)
"""


def assert_done(result, ranks=2):
    assert result.code == 0, result.output + result.errors
    assert result.output.count("done") == ranks, result.output + result.errors
    assert "Traceback" not in result.errors
    result.assert_nothing_is_left()


@pytest.mark.parametrize("level", ["single", "funneled", "serialized", "multiple"])
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_every_thread_level_works_horovod_1260(tmp_path, level, ranks_per_node):
    path = program(
        tmp_path,
        f"import mpi4py\nmpi4py.rc.thread_level = {level!r}\nfrom mpi4py import MPI\n" + WORK,
    )
    result = run(
        tmp_path, mpiexec(2, sys.executable, str(path)), {"HPCOMM_RANKS_PER_NODE": ranks_per_node}
    )
    assert_done(result)
    background = level == "multiple" or ranks_per_node == "0"
    assert result.output.count(str(background)) == 2, result.output


ORDERS = {
    "mpi4py_before": ("from mpi4py import MPI\n", ""),
    "mpi4py_after": ("", "from mpi4py import MPI\nassert MPI.COMM_WORLD.allreduce(1) == 2\n"),
    "initialised_by_hand": (
        "import mpi4py\nmpi4py.rc.initialize = False\nfrom mpi4py import MPI\n"
        "MPI.Init_thread(MPI.THREAD_FUNNELED)\n",
        "comm.close()\nMPI.Finalize()\n",
    ),
    "not_initialised_by_wish": (
        "import mpi4py\nmpi4py.rc.initialize = False\nmpi4py.rc.finalize = False\n"
        "from mpi4py import MPI\n",
        "",
    ),
    "finalised_while_open": ("from mpi4py import MPI\n", "comm.barrier()\nMPI.Finalize()\n"),
    "live_requests_at_exit": (
        "",
        "left = comm.irecv(1 - comm.rank, tag=9, shape=10, dtype='int8')\n"
        "other = comm.dup()\nlate = other.irecv(1 - comm.rank, shape=1, dtype='int8')\n",
    ),
    "closed_twice": ("", "comm.close()\ncomm.close()\n"),
}


@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
@pytest.mark.parametrize("order", list(ORDERS))
def test_starts_and_ends_in_any_order_without_warnings_h5py_1117(tmp_path, order, ranks_per_node):
    before, after = ORDERS[order]
    path = program(tmp_path, before + WORK + after)
    strict = (sys.executable, "-X", "dev", "-W", "error", str(path))
    result = run(tmp_path, mpiexec(2, *strict), {"HPCOMM_RANKS_PER_NODE": ranks_per_node})
    assert_done(result)
    assert "Warning" not in result.errors, result.errors


def test_init_after_finalize_says_so(tmp_path):
    path = program(
        tmp_path,
        "from mpi4py import MPI\nMPI.Finalize()\n"
        "try:\n    hpcomm.init()\nexcept hpcomm.LaunchError as error:\n    print('done', error)\n",
    )
    result = run(tmp_path, mpiexec(2, sys.executable, str(path)))
    assert_done(result)
    assert result.output.count("finalised already") == 2


def test_a_program_alone_needs_no_mpi(tmp_path):
    path = program(
        tmp_path,
        "comm = hpcomm.init()\nassert comm.allreduce(np.ones(3)).tolist() == [1.0] * 3\n"
        "assert not any(name.startswith('mpi4py') for name in sys.modules)\nprint('done')\n",
    )
    result = run(tmp_path, [sys.executable, "-X", "dev", "-W", "error", str(path)])
    assert_done(result, ranks=1)


@pytest.mark.parametrize("options", [(), ("--no-mpi",)])
def test_children_of_fork_get_errors_and_can_exit_horovod_2898(tmp_path, options):
    path = program(
        tmp_path,
        WORK
        + """
child = os.fork()
if child == 0:
    try:
        comm.allreduce(np.ones(1))
    except hpcomm.CommunicatorBrokenError as error:
        assert "fork" in str(error), error
        sys.exit(0)
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
quiet = os.fork()
if quiet == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(quiet, 0)[1]) == 0
import multiprocessing
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
assert (comm.allreduce(x) == 3).all()
""",
    )
    assert_done(run(tmp_path, hpcomm_run(2, path, options=options)))
