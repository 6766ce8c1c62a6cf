from __future__ import annotations

from typing import Any

from support.thread_ranks import ThreadCommunicator, run_ranks

from hpcomm.errors import HpcommError, MismatchError, ModelError
from hpcomm.hyparflow.agreement import agree, demand_equal


def test_agree_returns_each_ranks_own_result() -> None:
    assert run_ranks(3, lambda comm: agree(comm, lambda: comm.rank * 10)) == [0, 10, 20]


def test_a_failure_on_one_rank_is_raised_on_all() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        def work() -> None:
            if comm.rank == 1:
                raise ModelError("fit: too many partitions")

        agree(comm, work)

    errors = run_ranks(3, rank)
    assert [type(error) for error in errors] == [ModelError] * 3
    assert {str(error) for error in errors} == {"fit: too many partitions"}
    assert errors[0].rank == 1


def test_the_first_of_several_failures_is_raised_on_all() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        def work() -> None:
            if comm.rank > 0:
                raise ModelError(f"no room for part {comm.rank}")

        agree(comm, work)

    errors = run_ranks(3, rank)
    assert {(type(error), str(error)) for error in errors} == {(ModelError, "no room for part 1")}
    assert str(errors[2].__cause__) == "no room for part 2"


def test_a_foreign_failure_says_where_it_happened() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        def work() -> None:
            if comm.rank == 0:
                raise KeyError("x")

        agree(comm, work)

    root, other = run_ranks(2, rank)
    assert isinstance(root, KeyError)
    assert type(other) is HpcommError
    assert str(other) == "rank 0 failed: KeyError: 'x'"


def test_different_arguments_are_named_on_every_rank() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        demand_equal(comm, "fit", {"epochs": 2 + (comm.rank == 1), "seed": None})

    errors = run_ranks(2, rank)
    assert {type(error) for error in errors} == {MismatchError}
    assert {str(error) for error in errors} == {
        "fit: all ranks must pass the same arguments; epochs is 3 on rank 1 but 2 on rank 0"
    }
