from __future__ import annotations

from typing import Any

import pytest
from support.thread_ranks import ThreadCommunicator, run_ranks

from hpcomm.errors import CallbackError, InvalidArgumentError
from hpcomm.hyparflow.hooks import Hooks
from hpcomm.hyparflow.service import Decisions, HookService


def test_requests_reach_all_ranks_and_decisions_too() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        done: list[Any] = []

        def gather(optimizer: bool) -> str:
            done.append(("gather", optimizer))
            return f"from {comm.rank}"

        service = HookService(comm, {"gather": gather, "scatter": lambda: done.append("scatter")})

        def hook() -> Decisions:
            assert service.in_hook
            assert service.request("gather", True) == "from 0"
            service.request("scatter")
            return Decisions(stop_training=True, learning_rate=0.5)

        first = service.run("first", hook if comm.rank == 0 else None)
        second = service.run("second", (lambda: Decisions()) if comm.rank == 0 else None)
        return done, first, second

    for done, first, second in run_ranks(3, rank):
        assert done == [("gather", True), "scatter"]
        assert first == Decisions(stop_training=True, learning_rate=0.5)
        assert second == Decisions()


def test_a_failing_hook_is_the_same_error_everywhere() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        def hook() -> Decisions:
            raise OSError(28, "No space left on device")

        HookService(comm, {}).run("callback X.on_epoch_end", hook if comm.rank == 0 else None)

    errors = run_ranks(3, rank)
    assert all(isinstance(error, CallbackError) for error in errors)
    texts = {str(error) for error in errors}
    assert texts == {
        "callback X.on_epoch_end failed on rank 0: OSError: [Errno 28] No space left on device"
    }
    assert isinstance(errors[0].__cause__, OSError)


def test_an_action_that_fails_everywhere_is_raised_as_it_is() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        def gather() -> None:
            raise InvalidArgumentError("no such thing")

        service = HookService(comm, {"gather": gather})

        def hook() -> Decisions:
            service.request("gather")
            return Decisions()

        service.run("hook", hook if comm.rank == 0 else None)

    assert [type(error) for error in run_ranks(2, rank)] == [InvalidArgumentError] * 2


def test_hooks_nest_in_actions() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        seen: list[str] = []

        def evaluate() -> str:
            service.run("inner", (lambda: Decisions()) if comm.rank == 0 else None)
            seen.append("evaluated")
            return "value"

        service = HookService(comm, {"evaluate": evaluate})

        def hook() -> Decisions:
            assert service.request("evaluate") == "value"
            assert service.in_hook
            return Decisions(stop_training=True)

        decided = service.run("outer", hook if comm.rank == 0 else None)
        return seen, decided.stop_training

    assert run_ranks(2, rank) == [(["evaluated"], True)] * 2


def test_a_request_outside_of_a_hook_is_an_error() -> None:
    def rank(comm: ThreadCommunicator) -> None:
        HookService(comm, {"gather": lambda: None}).request("gather")

    (error,) = run_ranks(1, rank)
    assert isinstance(error, InvalidArgumentError)
    assert "outside of a callback's hook" in str(error)


class Host:
    def __init__(self, served: set[str], local: set[str]) -> None:
        self.served, self.local = frozenset(served), frozenset(local)
        self.calls: list[Any] = []

    def call(self, hook: str, index: int | None, logs: Any) -> dict[str, Any]:
        self.calls.append((hook, index, logs))
        return {"learning_rate": 0.1 if hook == "on_epoch_begin" else None, "logs": logs}


def test_hooks_that_nobody_implements_cost_no_message() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        host = Host({"on_epoch_begin"}, {"on_train_batch_end"}) if comm.rank == 0 else None
        rates: list[float] = []
        hooks = Hooks(comm, HookService(comm, {}), host, rates.append)
        before = comm.group.sent
        hooks.run("on_train_batch_begin", 0)
        hooks.run("on_train_batch_end", 0, {"loss": 1.0})
        cheap = comm.group.sent - before
        hooks.run("on_epoch_begin", 3)
        end = hooks.run("on_epoch_end", 3, {"loss": 2.0} if host else None, always=True)
        assert hooks.wants("on_train_batch_end")
        assert not hooks.serves("on_train_batch_end")
        assert not hooks.wants("on_test_end")
        return cheap, rates, end.logs, host.calls if host else None

    root, other = run_ranks(2, rank)
    assert root[0] == 0
    assert root[1] == other[1] == [0.1]
    assert root[2] == other[2] == {"loss": 2.0}
    assert [call[0] for call in root[3]] == ["on_train_batch_end", "on_epoch_begin", "on_epoch_end"]


def test_decisions_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Decisions().stop_training = True  # type: ignore[misc]
