from __future__ import annotations

import pytest

from hpcomm import environment
from hpcomm.environment import sources
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
    assert again.environment() == HERE | {"sources": sources()}


def test_results_count_for_their_own_sources_only(tmp_path):
    path = tmp_path / "state.jsonl"
    for version in ("one", "two", "one", "one"):
        state = StateFile(path, version)
        state.open(HERE)
        number = len(state.results())
        state.begin(f"{version}{number}")
        state.finish(f"{version}{number}", {"passed": True})
    one, two = StateFile(path, "one"), StateFile(path, "two")
    assert set(one.results()) == {"one0", "one1", "one2"}
    assert set(two.results()) == {"two0"}
    assert two.outdated() == {"one0", "one1", "one2"}
    assert (one.num_begun(), two.num_begun()) == (3, 1)
    assert path.read_text().count("environment") == 3
    other = StateFile(path, "three")
    assert (other.results(), other.environment(), other.unfinished()) == ({}, None, None)
    assert len(other.outdated()) == 4


def test_results_without_a_name_of_their_sources_do_not_count(tmp_path):
    path = tmp_path / "state.jsonl"
    path.write_text('{"environment": {"mpi": "MPICH"}}\n{"key": "a", "result": {"passed": true}}\n')
    state = StateFile(path)
    state.open(HERE)
    assert state.results() == {}
    assert state.outdated() == {"a"}


def test_the_hash_of_the_sources_tells_them_apart(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    seen = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("deep/b.py", ""), ("c.txt", "no source")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
        seen.add(environment.sources.__wrapped__())
    assert len(seen) == 3
    monkeypatch.undo()
    assert sources() == sources.__wrapped__()


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
