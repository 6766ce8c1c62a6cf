from __future__ import annotations

from hpcomm.launch import environment
from hpcomm.launch.environment import hints, local_place, place, torchrun_hint, under_launcher

MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "PMIX_RANK": "2",
}
TORCH = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


def test_nobody_started_a_program_alone():
    assert hints({}) == []
    assert not under_launcher({})
    assert place({}) == (0, 1)
    assert local_place({}) == (0, 1)


def test_each_launcher_is_recognised():
    (mpich,) = hints(MPICH)
    assert (mpich.vendor, mpich.rank, mpich.size) == ("mpich", 1, 4)
    openmpi, pmix = hints(OPENMPI)
    assert (openmpi.vendor, openmpi.rank, openmpi.size) == ("openmpi", 2, 3)
    assert (pmix.rank, pmix.size) == (2, 0)
    assert place(OPENMPI) == (2, 3)
    assert local_place(OPENMPI) == (0, 1)
    assert local_place(MPICH) == (1, 2)


def test_mpiexec_inside_of_a_slurm_job_counts_before_srun():
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    assert hints({**slurm, **MPICH})[0].launcher == "mpiexec of MPICH"
    assert hints({"SLURM_PROCID": "0"}) == []  # an allocation without a step


def test_own_launcher_without_mpi_counts_first():
    own = {
        "HPCOMM_RANK": "3",
        "HPCOMM_SIZE": "8",
        "HPCOMM_LOCAL_RANK": "3",
        "HPCOMM_LOCAL_SIZE": "8",
    }
    assert place({**own, **MPICH}) == (3, 8)


def test_torchrun_needs_all_of_its_variables():
    assert torchrun_hint(TORCH).size == 2
    assert under_launcher(TORCH)
    for name in TORCH:
        assert torchrun_hint({**TORCH, name: ""}) is None


def test_nonsense_is_no_hint():
    assert hints({"PMI_RANK": "first"}) == []
    assert environment.torchrun_hint({**TORCH, "RANK": "x"}) is None


def test_the_size_of_the_job_is_what_any_launcher_says():
    assert environment.job_size({}) == 0
    assert environment.job_size({"PMI_RANK": "1"}) == 0
    assert environment.job_size({"PMI_RANK": "1", "PMI_SIZE": "3"}) == 3
    torchrun = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert environment.job_size(torchrun) == 4
