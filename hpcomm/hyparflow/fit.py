"""`hpcomm.hyparflow.fit`: train a model over many processes with one call."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hpcomm.errors import InvalidArgumentError
from hpcomm.hyparflow.agreement import agree, demand_equal
from hpcomm.hyparflow.arguments import (
    DATA_MODES,
    check_choice,
    check_fraction,
    check_layers,
    check_whole,
    resolve_layout,
    resolve_micro_batches,
)
from hpcomm.hyparflow.checkpoint import CheckpointPolicy
from hpcomm.hyparflow.framework import find_framework
from hpcomm.hyparflow.history import History
from hpcomm.hyparflow.hooks import Hooks
from hpcomm.hyparflow.loops import TrainingRun
from hpcomm.hyparflow.nonfinite import LossGuard
from hpcomm.hyparflow.plan import agree_on_data, open_data, plan_data
from hpcomm.hyparflow.session import Session, world_of
from hpcomm.hyparflow.structure import map_arrays, unpack
from hpcomm.trace import NO_TRACE

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.framework import Framework
    from hpcomm.hyparflow.plan import DataPlan
    from hpcomm.trace import Trace

__all__ = ["fit"]


def fit(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    strategy: Literal["data", "model", "hybrid"] = "data",
    num_partitions: int | None = None,
    num_replicas: int | None = None,
    lpp: Sequence[int] | None = None,
    micro_batches: int | None = None,
    schedule: str = "gpipe",
    balance: Literal["measured", "estimated", "memory"] = "measured",
    memory_limit_bytes: int | None = None,
    batch_size: int | None = None,
    epochs: int = 1,
    initial_epoch: int = 0,
    validation_data: Any = None,
    validation_split: float = 0.0,
    validation_batch_size: int | None = None,
    validation_steps: int | None = None,
    validation_freq: Any = 1,
    shuffle: bool | str = True,
    sample_weight: Any = None,
    class_weight: dict[int, float] | None = None,
    steps_per_epoch: int | None = None,
    callbacks: Any = None,
    verbose: Any = "auto",
    seed: int | None = None,
    data: Literal["full", "shard"] = "full",
    gather: Literal["root", "all", "none"] = "root",
    checkpoint: CheckpointPolicy | str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    terminate_on_nan: bool = True,
    comm: Communicator | None = None,
    trace: Trace = NO_TRACE,
    on_table: Callable[[str], None] | Literal[False] | None = None,
) -> History:
    """Train a model over all ranks; the result is that of one process.

    Collective: all ranks call it with the same arguments. Optimizer, loss and metrics are what the
    model was compiled with. World rank = replica * num_partitions + partition.

    Args:
        model: a compiled functional or Sequential model, or a function without arguments that
            returns one. Of a model, rank 0's weights count; with a function no rank holds the
            weights of other stages while it trains.
        x: inputs: arrays of shape (n, …), a list or dict of such, or a data set, generator or
            PyDataset, which rank 0 alone reads (others may pass None).
        y: targets, with arrays.
        strategy: "data": every rank trains a copy; "model": every rank holds a part; "hybrid":
            copies of a model in parts.
        num_partitions: parts of one model; None follows from strategy and number of ranks.
        num_replicas: copies of the model; None likewise.
        lpp: layers per partition, counted without input layers; None balances.
        micro_batches: pieces that a replica's batch goes through the pipeline in; None means 1
            without partitions, else twice their number. Batch normalization takes its statistics
            from each piece, as gradient accumulation in one process does.
        schedule: "gpipe" or "1f1b".
        balance: costs of the layers, "measured" on rank 0 or "estimated"; "memory" evens out the
            memory of the stages before their time.
        memory_limit_bytes: what a stage may need at most; None sets no limit.
        batch_size: samples of a global batch, 32 by default; replica r takes its contiguous share.
        epochs: number of the epoch to end at.
        initial_epoch: number of the epoch to begin with.
        validation_data: (x, y), (x, y, sample_weight) or a data set, evaluated after epochs.
        validation_split: fraction of the arrays, from their end, to validate on instead.
        validation_batch_size: samples of a global validation batch; None means ``batch_size``.
        validation_steps: validation batches; None for all.
        validation_freq: validate every so many epochs, or after these epochs (counted from 1).
        shuffle: True (samples), "batch" (samples within batches) or False.
        sample_weight: weights of the samples, with arrays; one array or one per output.
        class_weight: class → weight.
        steps_per_epoch: batches of an epoch; None for all.
        callbacks: Keras callbacks; they run on rank 0, and all ranks do what they decide.
        verbose: 0, 1, 2 or "auto": progress on rank 0.
        seed: of shuffling and dropout; None draws one on rank 0.
        data: "full": every rank passes all data; "shard": each replica passes its own part.
        gather: who gets the trained model: rank 0 ("root"), "all", or "none".
        checkpoint: folder, or `CheckpointPolicy`, for regular checkpoints to resume from.
        resume: a checkpoint, a folder of checkpoints, or "auto": the newest in ``checkpoint``'s
            folder, if there is one. Any number of partitions and replicas may have written it.
        terminate_on_nan: end with an error when the loss is no number; a TerminateOnNaN callback
            takes precedence.
        comm: all ranks; None means `hpcomm.init`'s.
        trace: where to record what is done when.
        on_table: gets the table of stages on rank 0; None prints it, False keeps it quiet.

    Returns:
        The history, equal on every rank.

    Raises:
        InvalidArgumentError: an argument is wrong; the same on every rank.
        ModelError: the model cannot be split as asked, or is not compiled.
        UnsupportedError: the model uses something that is refused by name.
        MismatchError: the ranks passed different arguments or models.
        NonFiniteLossError: the loss became NaN or infinite.
        DataError: reading the data failed on the rank that reads.
        CallbackError: a callback failed on rank 0.
        TransportError: a rank died or failed.

    Source: Awan et al., HyPar-Flow, ISC High Performance 2020.
    """
    call = "fit"
    world = world_of(comm)
    demand_equal(
        world,
        call,
        {
            "strategy": strategy,
            "num_partitions": num_partitions,
            "num_replicas": num_replicas,
            "lpp": repr(lpp),
            "micro_batches": micro_batches,
            "schedule": schedule,
            "balance": balance,
            "batch_size": batch_size,
            "epochs": epochs,
            "initial_epoch": initial_epoch,
            "validation_split": validation_split,
            "validation_batch_size": validation_batch_size,
            "validation_steps": validation_steps,
            "validation_freq": validation_freq,
            "shuffle": shuffle,
            "class_weight": class_weight,
            "steps_per_epoch": steps_per_epoch,
            "seed": seed,
            "data": data,
            "gather": gather,
            "checkpoint": str(checkpoint),
            "resume": str(resume),
            "terminate_on_nan": terminate_on_nan,
        },
    )
    lpp = check_layers(lpp)
    check_whole("epochs", epochs, least=0)
    check_whole("initial_epoch", initial_epoch, least=0)
    _check_freq(validation_freq)
    check_fraction("validation_split", validation_split)
    check_choice("data", data, DATA_MODES)
    policy = CheckpointPolicy.of(checkpoint)
    _check_resume(resume, policy)
    layout = resolve_layout(
        strategy,
        num_partitions,
        num_replicas,
        world_size=world.size,
        num_nodes=world.num_nodes,
    )
    framework = find_framework(model, call=call)
    agree(world, lambda: framework.check_model(model, call=call, needs_loss=True))
    plan = partial(
        _plan,
        framework,
        (x, y, sample_weight),
        validation_data,
        validation_split,
        batch_size=batch_size,
        steps=steps_per_epoch,
        shuffle=shuffle,
        class_weight=class_weight,
        shard=data == "shard",
        validation_batch_size=validation_batch_size,
        validation_steps=validation_steps,
    )
    training, validation = agree(world, plan)
    del plan, x, y, sample_weight, validation_data  # what a stage does not need is let go below
    agree_on_data(world, training, call=call, ranks_per_replica=layout.partitions)
    has_validation = world.broadcast_object(validation is not None)
    if has_validation:
        validation = validation or plan_data(framework, None, call=call)
        agree_on_data(world, validation, call=call, ranks_per_replica=layout.partitions)
    pieces = resolve_micro_batches(micro_batches, layout=layout, batch_size=training.batch_size)
    agree(world, lambda: framework.prepare_model(model, training.x))
    nan_callback = world.broadcast_object(framework.handles_nan(callbacks))
    share = None if training.batch_size is None else -(-training.batch_size // layout.replicas)
    with Session(
        model,
        comm=world,
        strategy=strategy,
        num_partitions=num_partitions,
        num_replicas=num_replicas,
        lpp=lpp,
        micro_batches=pieces,
        micro_batch_size=None if share is None else -(-share // pieces),
        schedule=schedule,
        balance=balance,
        memory_limit_bytes=memory_limit_bytes,
        seed=seed,
        gather=gather,
        trace=trace,
        on_table=on_table,
        call=call,
    ) as session:
        state = None
        if resume is not None:
            where = resume if resume != "auto" else policy.directory if policy else ""
            state = session.saver.restore(where, optional=resume == "auto")
        order_seed = state.seed if state is not None else _agreed_seed(world, seed)
        source = open_data(session, training, needs=session.needs, seed=order_seed)
        first = state.epoch if state is not None else initial_epoch
        if source.cursor is not None:
            source.cursor.start_at(first)
            if state is not None and state.cursor:
                source.cursor.restore(state.cursor)
        checked = None
        if validation is not None:
            checked = open_data(session, validation, needs=session.needs, seed=order_seed)
        last = framework.epoch_limit(epochs)
        host = session.host_callbacks(callbacks, verbose, epochs=last, steps=source.steps)
        params = {"epochs": last, "steps": source.steps, "verbose": verbose}
        history = History(params=world.broadcast_object(params), split=session.trainer.stages)
        TrainingRun(
            session=session,
            hooks=Hooks(session.comm, session.service, host, session.trainer.set_learning_rate),
            source=source,
            validation=checked,
            validation_freq=validation_freq,
            epochs=last,
            initial_epoch=first,
            seed=order_seed,
            checkpoint=policy,
            guard=LossGuard() if terminate_on_nan and not nan_callback else None,
            history=history,
            resumed=state if state is not None and state.in_epoch else None,
        ).run()
        if gather != "none":
            session.trainer.gather_weights(gather, optimizer=True)
            if gather == "all" or world.rank == 0:
                history.model = session.trainer.user_model
    return history


def _plan(
    framework: Framework,
    training: tuple[Any, Any, Any],
    validation_data: Any,
    validation_split: float,
    *,
    batch_size: int | None,
    steps: int | None,
    shuffle: bool | str,
    class_weight: Any,
    shard: bool,
    validation_batch_size: int | None,
    validation_steps: int | None,
) -> tuple[DataPlan, DataPlan | None]:
    if validation_split and validation_data is None:
        training, validation_data = _split_off(framework, training, validation_split)
    plan = plan_data(
        framework,
        *training,
        class_weight=class_weight,
        batch_size=batch_size,
        steps=steps,
        shuffle=shuffle,
        shard=shard,
        call="fit",
    )
    if validation_data is None:
        return plan, None
    try:
        parts = unpack(validation_data)
    except ValueError as error:
        raise InvalidArgumentError(f"fit: validation_data: {error}") from None
    return plan, plan_data(
        framework,
        *parts,
        batch_size=validation_batch_size or plan.batch_size,
        steps=validation_steps,
        steps_label="validation_steps",
        shard=shard,
        call="fit",
    )


def _split_off(
    framework: Framework, training: tuple[Any, Any, Any], fraction: float
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Cut the last part of the arrays off, before anything is shuffled, as Keras does."""
    if not framework.is_arrays(*training):
        raise InvalidArgumentError(
            "fit: validation_split works with arrays only; pass validation_data instead"
        )
    arrays = framework.to_arrays(training, call="fit")
    count = plan_data(framework, *arrays, call="fit").count
    cut = int(count * (1.0 - fraction))
    if cut in (0, count):
        raise InvalidArgumentError(
            f"fit: validation_split {fraction} of {count} samples leaves one of the two parts "
            "without a sample; pass more data or another fraction"
        )
    return (
        map_arrays(lambda array: array[:cut], arrays),
        map_arrays(lambda array: array[cut:], arrays),
    )


def _check_freq(value: Any) -> None:
    if isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            check_whole("validation_freq", item)
    else:
        check_whole("validation_freq", value)


def _check_resume(resume: Any, policy: CheckpointPolicy | None) -> None:
    if resume == "auto" and policy is None:
        raise InvalidArgumentError("fit: resume='auto' needs checkpoint=…, to say where to look")


def _agreed_seed(world: Communicator, seed: int | None) -> int:
    if seed is not None:
        return check_whole("seed", seed, least=0)
    drawn: int = world.broadcast_object(secrets.randbits(31))
    return drawn
