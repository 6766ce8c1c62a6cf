from __future__ import annotations

from itertools import pairwise

import pytest

from hpcomm import LaunchError
from hpcomm.launch import mpiexec
from hpcomm.launch.mpiexec import Mpiexec


@pytest.mark.parametrize(
    ("text", "vendor"),
    [
        ("mpiexec (Open MPI) 5.0.11", "openmpi"),
        ("prterun (PRRTE) 3.0.12", "openmpi"),
        ("HYDRA build details: Version: 5.0.2", "mpich"),
        ("MPICH 5.0.2", "mpich"),
        ("Intel(R) MPI Library 2021.19 for Linux* OS", "mpich"),
        ("something else", ""),
    ],
)
def test_vendors_are_recognised(text, vendor):
    assert mpiexec.vendor_of(text) == vendor


def test_command_lines():
    openmpi = Mpiexec("/o/mpiexec", "openmpi", "")
    line = mpiexec.command(openmpi, 3, ["a", "b"], hosts="x,y", exported=["HPCOMM_TUNE"])
    assert line[:3] == ["/o/mpiexec", "-n", "3"]
    assert line[-2:] == ["a", "b"]
    assert ("--host", "x,y") in pairwise(line)
    assert ("-x", "HPCOMM_TUNE") in pairwise(line)
    assert "-x" not in mpiexec.command(openmpi, 3, ["a"], exported=["HPCOMM_TUNE"])
    mpich = mpiexec.command(Mpiexec("/m/mpiexec", "mpich", ""), 2, ["a"], hostfile="f")
    assert mpich == ["/m/mpiexec", "-n", "2", "-f", "f", "a"]
    hydra = Mpiexec("/m/mpiexec", "mpich", "HYDRA build details")
    here = mpiexec.command(hydra, 2, ["a"])
    assert here == ["/m/mpiexec", "-n", "2", "-disable-auto-cleanup", "a"]
    assert "-disable-auto-cleanup" not in mpiexec.command(hydra, 2, ["a"], hosts="x,y")


def test_environment_of_open_mpi_allows_what_containers_need(monkeypatch):
    openmpi = Mpiexec("/o/mpiexec", "openmpi", "")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    root = mpiexec.environment(openmpi, {"A": "1"})
    assert root["A"] == "1"
    assert root["OMPI_ALLOW_RUN_AS_ROOT"] == root["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in mpiexec.environment(openmpi, {})
    mine = {"PRTE_MCA_rmaps_default_mapping_policy": "ppr:1:core"}
    assert mpiexec.environment(openmpi, mine).items() >= mine.items()
    assert mpiexec.environment(Mpiexec("/m/mpiexec", "mpich", ""), {"A": "1"}) == {"A": "1"}


def launchers(monkeypatch, library, versions):
    monkeypatch.setattr(mpiexec, "library_version", lambda: library)
    monkeypatch.setattr(mpiexec, "_candidates", lambda: list(versions))
    monkeypatch.setattr(mpiexec, "_version", versions.get)


def test_the_launcher_of_the_library_is_found_behind_others(monkeypatch):
    both = {"/a/mpiexec": "mpiexec (Open MPI) 5", "/b/mpiexec": "HYDRA build details"}
    launchers(monkeypatch, "MPICH Version: 5", both)
    assert mpiexec.find().path == "/b/mpiexec"
    launchers(monkeypatch, "Open MPI v5", both)
    assert mpiexec.find().path == "/a/mpiexec"


def test_no_library_means_no_launcher_and_a_foreign_one_is_an_error(monkeypatch):
    foreign = {"/a/mpiexec": "mpiexec (Open MPI) 5"}
    launchers(monkeypatch, "", foreign)
    assert mpiexec.find() is None
    launchers(monkeypatch, "MPICH Version: 5", {})
    assert mpiexec.find() is None
    launchers(monkeypatch, "MPICH Version: 5", foreign)
    with pytest.raises(LaunchError, match="/a/mpiexec"):
        mpiexec.find()
