"""What `evaluate` and `predict` share: a session for one call that does not train."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hpcomm.hyparflow.agreement import demand_equal
from hpcomm.hyparflow.arguments import check_choice
from hpcomm.hyparflow.session import Session, world_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.trace import Trace

__all__ = ["inference_session"]


@contextlib.contextmanager
def inference_session(
    call: str,
    model: Any,
    *,
    comm: Communicator | None,
    layout: Mapping[str, Any],
    arguments: Mapping[str, Any],
    choices: Mapping[str, Sequence[str]],
    weights: str | os.PathLike[str] | None,
    trace: Trace,
    needs_loss: bool = True,
) -> Iterator[Session]:
    """Check the arguments, split the model, load weights; close at the end of the block.

    Args:
        call: name of the public function, for messages.
        model: a model, or a function that returns one.
        comm: all ranks; None means `hpcomm.init`'s.
        layout: arguments of `Session` that say how the model is split.
        arguments: further arguments of the call that all ranks must pass alike.
        choices: the values that some of these arguments may have.
        weights: a checkpoint to load first, or None.
        trace: where to record what is done when.
        needs_loss: whether the model must be compiled.

    Raises:
        InvalidArgumentError: an argument is wrong; the same on every rank.
    """
    world = world_of(comm)
    demand_equal(world, call, {**layout, "lpp": repr(layout["lpp"]), **arguments})
    for name, known in choices.items():
        check_choice(name, arguments[name], known, call=call)
    with Session(
        model,
        comm=world,
        **layout,
        balance="estimated",
        trace=trace,
        on_table=False,
        call=call,
        needs_loss=needs_loss,
    ) as session:
        if weights is not None:
            session.saver.restore(weights, optional=False)
        yield session
