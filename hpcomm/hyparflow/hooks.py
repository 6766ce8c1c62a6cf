"""The hooks of the user's callbacks, in the order in which all ranks reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm.hyparflow.service import Decisions

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.framework import CallbackHost
    from hpcomm.hyparflow.service import HookService

__all__ = ["Hooks"]


class Hooks:
    """Runs hooks on rank 0 and shares what they decided.

    A hook that no callback implements costs nothing; one that only looks at the values (a progress
    bar) runs on rank 0 while the others go on.
    """

    def __init__(
        self,
        comm: Communicator,
        service: HookService,
        host: CallbackHost | None,
        set_learning_rate: Callable[[float], None],
    ) -> None:
        """Tell all ranks which hooks there are; collective over ``comm``.

        Args:
            comm: all ranks.
            service: through which hooks ask for things.
            host: the callbacks, on rank 0; None elsewhere.
            set_learning_rate: sets it on this rank.
        """
        self._service = service
        self._host = host
        self._set_learning_rate = set_learning_rate
        plan = None if host is None else (host.served, host.local)
        self._served, self._local = comm.broadcast_object(plan)
        self.decided = Decisions()

    def wants(self, hook: str) -> bool:
        """Tell whether any callback implements ``hook``, so that its logs must be made."""
        return hook in self._served or hook in self._local

    def serves(self, hook: str) -> bool:
        """Tell whether all ranks take part in ``hook``."""
        return hook in self._served

    def run(
        self,
        hook: str,
        index: int | None = None,
        logs: dict[str, Any] | None = None,
        *,
        always: bool = False,
    ) -> Decisions:
        """Run a hook; collective over all ranks.

        Args:
            hook: such as "on_epoch_end".
            index: epoch or batch, where the hook takes one.
            logs: values so far; only looked at on rank 0.
            always: also if nobody implements it, to share rank 0's values.

        Returns:
            What was decided up to now, the same on every rank.

        Raises:
            CallbackError: a callback failed; the same text on every rank.
        """
        host = self._host
        if hook in self._served or always:

            def call() -> Decisions:
                assert host is not None
                return Decisions(**host.call(hook, index, logs))

            self.decided = self._service.run(f"hook {hook}", call if host is not None else None)
            if self.decided.learning_rate is not None:
                self._set_learning_rate(self.decided.learning_rate)
        elif host is not None and hook in self._local:
            host.call(hook, index, logs)
        return self.decided
