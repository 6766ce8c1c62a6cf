from __future__ import annotations

import pytest

from hpcomm.errors import InvalidArgumentError
from hpcomm.verify.state import StateFile

HERE = {"mpi": "MPICH"}


def test_state_keeps_results_and_the_case_that_was_begun(tmp_path):
    state = StateFile(tmp_path / "deep" / "state.jsonl")
    assert state.results() == {}
    assert state.unfinished() is None
    state.open(HERE)
    state.begin("a")
    assert state.unfinished() == "a"
    state.finish("a", {"passed": True})
    state.begin("b")
    again = StateFile(state.path)
    again.open(HERE)
    assert again.results() == {"a": {"passed": True}}
    assert again.unfinished() == "b"
    again.finish("b", {"passed": False})
    assert again.unfinished() is None
    assert again.environment() == HERE


def test_state_of_another_environment_is_refused(tmp_path):
    state = StateFile(tmp_path / "state.jsonl")
    state.open(HERE)
    with pytest.raises(InvalidArgumentError, match=r"another environment.*name another file"):
        StateFile(state.path).open({"mpi": "Open MPI"})


def test_state_ignores_a_torn_line_and_goes_on_after_it(tmp_path):
    state = StateFile(tmp_path / "state.jsonl")
    state.open(HERE)
    state.finish("a", {"passed": True})
    with state.path.open("a") as file:
        file.write('{"key": "b", "resu')
    state.finish("c", {"passed": True})
    assert set(StateFile(state.path).results()) == {"a", "c"}
