from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hpcomm.launch.session import Session


def rank(session, code, **environment):
    """Run a program as if a supervisor had started it as rank 1."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import os; os.environ['HPCOMM_RANK_PID'] = str(os.getpid())\nimport hpcomm\n" + code,
        ],
        env={
            **os.environ,
            "HPCOMM_SESSION": str(session.path),
            "HPCOMM_RANK": "1",
            "HPCOMM_SIZE": "2",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def session(tmp_path):
    return Session.create(tmp_path)


def test_exception_is_noted_and_left_to_the_launcher_to_print(session):
    answer = rank(session, "raise ValueError('x')")
    assert answer.returncode == 1
    assert answer.stderr == ""
    noted = session.first_failure()
    assert (noted.rank, noted.error) == (1, "ValueError: x")
    assert noted.traceback.startswith("Traceback")
    assert not noted.secondary


def test_echo_of_another_failure_claims_nothing(session):
    rank(session, "raise hpcomm.PeerDiedError('rank 0 is gone', rank=0)")
    assert session.first_failure() is None
    assert session.exception_of(1).secondary


def test_where_no_launcher_reads_the_rank_prints_itself(tmp_path):
    session = Session.create(tmp_path, is_read=False)
    answer = rank(session, "raise ValueError('x')")
    assert "ValueError: x" in answer.stderr
    assert session.exception_of(1) is not None


def test_own_hooks_of_the_program_still_run(session):
    answer = rank(
        session,
        "import sys\ndef mine(*error):\n    print('mine', error[1])\n"
        "sys.excepthook = mine\nfrom hpcomm.launch import hook\n"
        "hook._installed_in = 0\nhook.install()\nraise ValueError('x')",
    )
    assert "mine x" in answer.stdout


def test_children_of_a_rank_are_no_ranks(session):
    answer = rank(
        session,
        "import sys\nif os.fork() == 0:\n    raise ValueError('child')\nos.wait()\n"
        "import subprocess\n"
        "subprocess.run([sys.executable, '-c', 'import hpcomm; raise KeyError(1)'])",
    )
    assert answer.returncode == 0
    assert "child" in answer.stderr
    assert "KeyError" in answer.stderr
    assert session.first_failure() is None


def test_interrupts_that_were_asked_for_are_no_failures(session):
    session.ask_to_stop(2)
    answer = rank(session, "raise KeyboardInterrupt")
    assert answer.stderr == ""
    assert session.first_failure() is None
