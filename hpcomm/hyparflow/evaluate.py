"""`hpcomm.hyparflow.evaluate`: loss and metrics of a split model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hpcomm.hyparflow.agreement import agree
from hpcomm.hyparflow.arguments import DATA_MODES
from hpcomm.hyparflow.hooks import Hooks
from hpcomm.hyparflow.inference import inference_session
from hpcomm.hyparflow.loops import test_all
from hpcomm.hyparflow.plan import agree_on_data, open_data, plan_data
from hpcomm.trace import NO_TRACE

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.session import Session
    from hpcomm.trace import Trace

__all__ = ["evaluate", "evaluate_in"]


def evaluate(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    strategy: Literal["data", "model", "hybrid"] = "data",
    num_partitions: int | None = None,
    num_replicas: int | None = None,
    lpp: Sequence[int] | None = None,
    micro_batches: int | None = None,
    batch_size: int | None = None,
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: bool = False,
    verbose: Any = "auto",
    data: Literal["full", "shard"] = "full",
    weights: str | os.PathLike[str] | None = None,
    comm: Communicator | None = None,
    trace: Trace = NO_TRACE,
) -> Any:
    """Compute the loss and the metrics of a model, distributed.

    Collective: all ranks call it with the same arguments.

    Args:
        model: a compiled model (rank 0's weights count), or a function that returns one.
        x: inputs: arrays of shape (n, …), or a data set, which rank 0 alone reads.
        y: targets, with arrays.
        strategy: see `hpcomm.hyparflow.fit`, as the next four.
        num_partitions: partitions of the model.
        num_replicas: copies of the model.
        lpp: layers per partition.
        micro_batches: pieces of a replica's batch.
        batch_size: samples of a global batch; 32 by default.
        sample_weight: weights of the samples, with arrays.
        steps: batches to evaluate; None for all.
        callbacks: their test hooks run on rank 0.
        return_dict: return name → value instead of a list.
        verbose: 0, 1, 2 or "auto": progress on rank 0.
        data: "full": every rank passes all data; "shard": each replica its own part.
        weights: a checkpoint to load first; needed with a model function.
        comm: all ranks; None means `hpcomm.init`'s.
        trace: where to record what is done when.

    Returns:
        As Keras: the loss, or a list of loss and metrics, or a dict; the same on every rank.

    Raises:
        InvalidArgumentError: an argument is wrong; the same on every rank.
        UnsupportedError: the model uses something that is refused by name.
        DataError: reading the data failed.
        CallbackError: a callback failed.
    """
    with inference_session(
        "evaluate",
        model,
        comm=comm,
        layout={
            "strategy": strategy,
            "num_partitions": num_partitions,
            "num_replicas": num_replicas,
            "lpp": lpp,
            "micro_batches": micro_batches,
        },
        arguments={
            "batch_size": batch_size,
            "steps": steps,
            "data": data,
            "return_dict": return_dict,
        },
        choices={"data": DATA_MODES},
        weights=weights,
        trace=trace,
    ) as session:
        return evaluate_in(
            session,
            x,
            y,
            batch_size=batch_size,
            sample_weight=sample_weight,
            steps=steps,
            callbacks=callbacks,
            return_dict=return_dict,
            verbose=verbose,
            shard=data == "shard",
        )


def evaluate_in(
    session: Session,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: bool = False,
    verbose: Any = "auto",
    shard: bool = False,
) -> Any:
    """Evaluate within a session; see `evaluate`. Ranks other than 0 may pass no data.

    Returns:
        As `evaluate`, on every rank.
    """
    comm = session.comm
    plan = agree(
        comm,
        lambda: plan_data(
            session.framework,
            x,
            y,
            sample_weight,
            batch_size=batch_size,
            steps=steps,
            steps_label="steps",
            shard=shard,
            call="evaluate",
        ),
    )
    agree_on_data(comm, plan, call="evaluate", ranks_per_replica=session.layout.partitions)
    source = open_data(session, plan, needs=session.needs, seed=0)
    host = session.host_callbacks(callbacks, verbose, epochs=1, steps=source.steps)
    hooks = Hooks(comm, session.service, host, session.trainer.set_learning_rate)
    test_all(session, source, hooks)
    return session.measurement.to_all(as_dict=return_dict)
