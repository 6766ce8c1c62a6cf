"""What `import hpcomm` does, and above all what it does not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROBE = """
import json, os, sys, threading, time
{prelude}
before = set(sys.modules)
threads = len(os.listdir("/proc/self/task"))
started_s = time.perf_counter()
{statement}
print(json.dumps({{
    "seconds": time.perf_counter() - started_s,
    "threads": len(os.listdir("/proc/self/task")) - threads,
    "modules": sorted(set(sys.modules) - before),
    "hook": sys.excepthook is sys.__excepthook__,
}}))
"""


def probe(statement, prelude="", **environment):
    import os

    answer = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            "-c",
            PROBE.format(statement=statement, prelude=prelude),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert answer.stderr == ""
    return json.loads(answer.stdout)


@pytest.mark.parametrize(
    "statement",
    ["import hpcomm", "from hpcomm import *", "import hpcomm.communicator, hpcomm.launch.job"],
)
def test_import_starts_no_mpi_no_thread_and_loads_no_framework(statement):
    found = probe(statement, prelude="import numpy")  # whose linear algebra has threads
    heavy = {"mpi4py", "tensorflow", "keras", "torch", "jax", "matplotlib"}
    assert not heavy & {name.partition(".")[0] for name in found["modules"]}
    assert found["threads"] == 0
    assert found["hook"]


def test_import_of_the_package_alone_loads_next_to_nothing():
    found = probe("import hpcomm")
    assert "numpy" not in found["modules"]
    assert "hpcomm._core" not in found["modules"]


def test_supervisor_needs_the_standard_library_alone():
    found = probe("import hpcomm.launch.supervisor")
    foreign = {
        name.partition(".")[0] for name in found["modules"] if not name.startswith("_")
    } - set(sys.stdlib_module_names)
    assert foreign == {"hpcomm"}


def test_ranks_of_a_job_note_their_exceptions_from_the_import_on(tmp_path):
    assert not probe("import hpcomm", HPCOMM_SESSION=str(tmp_path))["hook"]


def test_names_are_found_and_others_are_not():
    import hpcomm

    for name in hpcomm.__all__:
        assert getattr(hpcomm, name) is not None
        assert name in dir(hpcomm)
    with pytest.raises(AttributeError, match="frobnicate"):
        hpcomm.frobnicate  # noqa: B018
