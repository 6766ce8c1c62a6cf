"""Hooks run on rank 0 alone; the other ranks stand by and do what the hook asks for.

A callback may want the weights, set them, evaluate the model or stop the training. Rank 0 runs it
and broadcasts a request for each such wish; all ranks then act together. When the hook is over,
rank 0 broadcasts what it decided. So every decision is taken once, and every rank knows it before
the next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcomm.errors import CallbackError, InvalidArgumentError
from hpcomm.hyparflow.agreement import PATIENCE_S, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpcomm.communicator import Communicator

__all__ = ["Decisions", "HookService"]


@dataclass(frozen=True, slots=True)
class Decisions:
    """What rank 0 decided in a hook.

    Attributes:
        stop_training: end after this step.
        stop_evaluating: end the evaluation after this step.
        stop_predicting: end the prediction after this step.
        initial_epoch: epoch to start with, set by a callback that restored a backup; else None.
        learning_rate: new value; None where it did not change.
        logs: the values of an epoch as callbacks left them; else None.
    """

    stop_training: bool = False
    stop_evaluating: bool = False
    stop_predicting: bool = False
    initial_epoch: int | None = None
    learning_rate: float | None = None
    logs: dict[str, Any] | None = None


class HookService:
    """One rank's end of the service; all ranks call `run` for the same hooks in one order."""

    def __init__(self, comm: Communicator, actions: Mapping[str, Callable[..., Any]]) -> None:
        """Know what can be asked for.

        Args:
            comm: all ranks; rank 0 runs the hooks.
            actions: name → what every rank does; each is collective over ``comm``.
        """
        self._comm = comm
        self._actions = dict(actions)
        self._depth = 0
        self._action_failure: BaseException | None = None

    @property
    def is_root(self) -> bool:
        """Whether this rank runs the hooks."""
        return self._comm.rank == 0

    @property
    def in_hook(self) -> bool:
        """Whether a hook is being run."""
        return self._depth > 0

    def run(self, label: str, hook: Callable[[], Decisions] | None) -> Decisions:
        """Run a hook on rank 0 and serve it on the others; collective.

        Args:
            label: what is run, for messages.
            hook: on rank 0 what to do; ignored elsewhere.

        Returns:
            What was decided, on every rank.

        Raises:
            CallbackError: the hook failed; the same text on every rank.
        """
        if not self.is_root:
            return self._serve()
        assert hook is not None
        self._depth += 1
        try:
            decisions = hook()
        except Exception as error:
            if self._action_failure is not None:  # the others failed with us and listen no more
                raise
            origin = getattr(error, "hpcomm_origin", label)
            text = f"{origin} failed on rank 0: {describe(error)}"
            self._comm.broadcast_object(("failed", text, None), timeout_s=PATIENCE_S)
            raise CallbackError(text, rank=0) from error
        finally:
            self._depth -= 1
        self._comm.broadcast_object(("done", decisions, None), timeout_s=PATIENCE_S)
        return decisions

    def request(self, action: str, *arguments: Any) -> Any:
        """Have all ranks do something while a hook runs; for rank 0 within `run`.

        Args:
            action: one of the names given to the constructor.
            arguments: for the action on every rank; must be picklable.

        Returns:
            Rank 0's result.

        Raises:
            InvalidArgumentError: no hook is running, so that nobody would answer.
        """
        if not self.is_root or self._depth == 0:
            raise InvalidArgumentError(
                f"callbacks: {action} was asked for outside of a callback's hook, when the other "
                "ranks do not listen; "
                "use the model that fit returns in History.model"
            )
        self._comm.broadcast_object(("act", action, arguments), timeout_s=PATIENCE_S)
        return self._act(action, arguments)

    def _serve(self) -> Decisions:
        while True:
            kind, subject, arguments = self._comm.broadcast_object(None, timeout_s=PATIENCE_S)
            if kind == "act":
                self._act(subject, arguments)
            elif kind == "failed":
                raise CallbackError(subject, rank=0)
            else:
                decisions: Decisions = subject
                return decisions

    def _act(self, action: str, arguments: tuple[Any, ...]) -> Any:
        depth, self._depth = self._depth, 0
        try:
            return self._actions[action](*arguments)
        except BaseException as error:
            self._action_failure = error
            raise
        finally:
            self._depth = depth
