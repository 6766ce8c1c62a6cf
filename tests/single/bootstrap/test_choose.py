from __future__ import annotations

import pytest

from hpcomm import LaunchError
from hpcomm.bootstrap import guard
from hpcomm.bootstrap.choose import choose
from hpcomm.config import Config

MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
TORCH = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
LAUNCHER = {"HPCOMM_RENDEZVOUS": "x", "HPCOMM_RANK": "0", "HPCOMM_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "is_mpi_running", "way"),
    [
        ({}, False, "single"),
        ({}, True, "mpi"),
        (MPICH, False, "mpi"),
        (OPENMPI, False, "mpi"),
        (TORCH, False, "torchrun"),
        ({**TORCH, **MPICH}, False, "mpi"),
        (LAUNCHER, False, "launcher"),
        ({**LAUNCHER, **MPICH}, False, "launcher"),
        ({**MPICH, "HPCOMM_BOOTSTRAP": "single"}, False, "single"),
        ({"HPCOMM_BOOTSTRAP": "mpi"}, False, "mpi"),
    ],
)
def test_way_of_meeting_follows_the_launcher(environment, is_mpi_running, way):
    config = Config.from_environment(environment)
    assert choose(config, environment, is_mpi_running=is_mpi_running) == way


def test_singletons_of_several_are_refused_with_the_remedy():
    for environment in (MPICH, OPENMPI):
        with pytest.raises(LaunchError, match="HPCOMM_ALLOW_SINGLETON") as caught:
            guard.check_size(0, 1, "MPI", allow_singleton=False, environment=environment)
        assert caught.value.rank == 1
        guard.check_size(0, 1, "MPI", allow_singleton=True, environment=environment)
        guard.check_size(1, 2, "MPI", allow_singleton=False, environment=environment)
    guard.check_size(0, 1, "MPI", allow_singleton=False, environment={})
    guard.check_size(0, 1, "MPI", allow_singleton=False, environment=TORCH)  # torchrun is exempt
    with pytest.raises(LaunchError):  # PMIx names no size, but rank 3 cannot be alone
        guard.check_size(0, 1, "MPI", allow_singleton=False, environment={"PMIX_RANK": "3"})


def test_library_that_would_die_under_this_launcher_is_refused_before():
    with pytest.raises(LaunchError, match="Open MPI"):
        guard.check_vendor("MPICH 5.0.2", allow_singleton=False, environment=OPENMPI)
    guard.check_vendor("MPICH 5.0.2", allow_singleton=True, environment=OPENMPI)
    guard.check_vendor("MPICH 5.0.2", allow_singleton=False, environment=MPICH)
    guard.check_vendor("Open MPI 5.0.11", allow_singleton=False, environment=OPENMPI)
