"""`hpcomm.hyparflow.predict`: outputs of a split model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hpcomm.errors import DataError
from hpcomm.hyparflow.agreement import agree
from hpcomm.hyparflow.arguments import DATA_MODES
from hpcomm.hyparflow.data import Needs
from hpcomm.hyparflow.hooks import Hooks
from hpcomm.hyparflow.inference import inference_session
from hpcomm.hyparflow.plan import agree_on_data, open_data, plan_data
from hpcomm.hyparflow.structure import concatenate, flatten, map_arrays
from hpcomm.trace import NO_TRACE

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.session import Session
    from hpcomm.trace import Trace

__all__ = ["predict", "predict_in"]


def predict(
    model: Any,
    x: Any,
    *,
    strategy: Literal["data", "model", "hybrid"] = "data",
    num_partitions: int | None = None,
    num_replicas: int | None = None,
    lpp: Sequence[int] | None = None,
    micro_batches: int | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    callbacks: Any = None,
    verbose: Any = "auto",
    data: Literal["full", "shard"] = "full",
    gather: Literal["all", "root"] = "all",
    weights: str | os.PathLike[str] | None = None,
    comm: Communicator | None = None,
    trace: Trace = NO_TRACE,
) -> Any:
    """Compute the outputs of a model, distributed.

    Collective: all ranks call it with the same arguments.

    Args:
        model: a model, compiled or not (rank 0's weights count), or a function that returns one.
        x: inputs: arrays of shape (n, …), or a data set, which rank 0 alone reads.
        strategy: see `hpcomm.hyparflow.fit`, as the next four.
        num_partitions: partitions of the model.
        num_replicas: copies of the model.
        lpp: layers per partition.
        micro_batches: pieces of a replica's batch.
        batch_size: samples of a global batch; 32 by default.
        steps: batches to predict; None for all.
        callbacks: their predict hooks run on rank 0.
        verbose: 0, 1, 2 or "auto": progress on rank 0.
        data: "full": every rank passes all data; "shard": each replica its own part.
        gather: "all": every rank gets the outputs; "root": only rank 0 does.
        weights: a checkpoint to load first; needed with a model function.
        comm: all ranks; None means `hpcomm.init`'s.
        trace: where to record what is done when.

    Returns:
        NumPy arrays of shape (n, …) in the structure that the model returns, in the order of the
        data (with shards: batch by batch, replica by replica); None where ``gather`` says so.

    Raises:
        InvalidArgumentError: an argument is wrong; the same on every rank.
        UnsupportedError: the model uses something that is refused by name.
        DataError: reading the data failed.
        CallbackError: a callback failed.
    """
    with inference_session(
        "predict",
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
            "gather": gather,
        },
        choices={"data": DATA_MODES, "gather": ("all", "root")},
        weights=weights,
        trace=trace,
        needs_loss=False,
    ) as session:
        return predict_in(
            session,
            x,
            batch_size=batch_size,
            steps=steps,
            callbacks=callbacks,
            verbose=verbose,
            gather=gather,
            shard=data == "shard",
        )


def predict_in(
    session: Session,
    x: Any,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    callbacks: Any = None,
    verbose: Any = "auto",
    gather: Literal["all", "root"] = "all",
    shard: bool = False,
) -> Any:
    """Predict within a session; see `predict`. Ranks other than 0 may pass no data.

    Returns:
        As `predict`.
    """
    comm = session.comm
    plan = agree(
        comm,
        lambda: plan_data(
            session.framework,
            x,
            batch_size=batch_size,
            steps=steps,
            steps_label="steps",
            shard=shard,
            call="predict",
        ),
    )
    agree_on_data(comm, plan, call="predict", ranks_per_replica=session.layout.partitions)
    needs = Needs(inputs=session.needs.inputs)
    source = open_data(session, plan, needs=needs, seed=0, needs_targets=False)
    host = session.host_callbacks(callbacks, verbose, epochs=1, steps=source.steps)
    hooks = Hooks(comm, session.service, host, session.trainer.set_learning_rate)
    hooks.run("on_predict_begin")
    parts = []
    for step, batch in enumerate(source.epoch()):
        hooks.run("on_predict_batch_begin", step)
        outputs = session.trainer.predict_step(batch.step).predictions
        parts.append(outputs)
        hook = "on_predict_batch_end"
        shown = _to_root(session, outputs) if hooks.serves(hook) else None
        decided = hooks.run(hook, step, {"outputs": shown})
        if hooks.serves(hook) and decided.stop_predicting:
            break
    hooks.run("on_predict_end")
    whole = None
    if not parts:
        raise DataError("predict: the data hold no batch")
    if comm.rank == session.keeper:
        whole = concatenate(parts, np.concatenate)
    if gather == "root":
        return _to_root(session, whole)
    return _share(session, whole)


def _to_root(session: Session, structure: Any) -> Any:
    """Bring arrays from the rank with the outputs to rank 0; collective over these two."""
    comm, keeper = session.comm, session.keeper
    if keeper == 0:
        return structure if comm.rank == 0 else None
    if comm.rank == keeper:
        comm.send_object(structure, 0)
    return comm.recv_object(keeper) if comm.rank == 0 else None


def _share(session: Session, structure: Any) -> Any:
    """Bring arrays from the rank with the outputs to all; collective."""
    comm, keeper = session.comm, session.keeper
    mine = comm.rank == keeper
    specs = map_arrays(lambda array: _Spec(array.shape, array.dtype), structure) if mine else None
    specs = comm.broadcast_object(specs, root=keeper)
    arrays = iter(flatten(structure)) if mine else None

    def receive(spec: _Spec) -> Any:
        array = np.ascontiguousarray(next(arrays)) if arrays else np.empty(spec.shape, spec.dtype)
        return comm.broadcast(array, root=keeper)

    return map_arrays(receive, specs)


class _Spec:
    """Shape and dtype of an array on its way."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype
