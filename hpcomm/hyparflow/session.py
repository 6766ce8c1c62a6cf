"""A split model on all ranks, and everything that fit, evaluate and predict share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from hpcomm.hyparflow.agreement import agree, closing_on_failure, tell
from hpcomm.hyparflow.arguments import (
    GATHER_MODES,
    check_choice,
    check_layers,
    resolve_layout,
    resolve_micro_batches,
)
from hpcomm.hyparflow.data import Needs
from hpcomm.hyparflow.framework import find_framework
from hpcomm.hyparflow.measure import Measurement
from hpcomm.hyparflow.saving import Saver
from hpcomm.hyparflow.service import HookService
from hpcomm.hyparflow.trainer import HybridTrainer
from hpcomm.trace import NO_TRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Literal

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.arguments import Layout
    from hpcomm.hyparflow.framework import CallbackHost
    from hpcomm.trace import Trace

__all__ = ["Session", "world_of"]


class Session:
    """A model, split over the ranks, until `close`.

    `hpcomm.hyparflow.fit`, `evaluate` and `predict` make one for a single call. Make one yourself
    to do several things with a model whose weights no rank holds as a whole. All ranks call the
    same methods in the same order. It is a context manager.

    Attributes:
        comm: all ranks, for the session's own traffic.
        framework: adapter of the model's framework.
        trainer: the engine.
        gather: where the whole model may be put together: "root", "all" or "none".
        measurement: metrics of the model.
        service: through which hooks on rank 0 ask for things.
        saver: writes and reads checkpoints.
    """

    def __init__(
        self,
        model: Any,
        *,
        comm: Communicator | None = None,
        strategy: Literal["data", "model", "hybrid"] = "data",
        num_partitions: int | None = None,
        num_replicas: int | None = None,
        lpp: Sequence[int] | None = None,
        micro_batches: int | None = None,
        micro_batch_size: int | None = None,
        schedule: str = "gpipe",
        balance: Literal["measured", "estimated", "memory"] = "measured",
        memory_limit_bytes: int | None = None,
        seed: int | None = None,
        gather: str = "root",
        trace: Trace = NO_TRACE,
        on_table: Callable[[str], None] | Literal[False] | None = None,
        call: str = "session",
        needs_loss: bool = True,
    ) -> None:
        """Split the model; collective over all ranks.

        Args:
            model: a compiled model, or a function without arguments that returns one.
            comm: all ranks; None means `hpcomm.init`'s.
            strategy: "data", "model" or "hybrid".
            num_partitions: P, or None for what the strategy implies.
            num_replicas: R, or None likewise.
            lpp: layers per partition; None balances.
            micro_batches: pieces of a replica's batch; None means twice the partitions, if several.
            micro_batch_size: samples that the costs of layers are measured for.
            schedule: "gpipe" or "1f1b".
            balance: "measured", "estimated" or "memory".
            memory_limit_bytes: what a stage may need at most.
            seed: of dropout; None takes one of rank 0's.
            gather: where the whole model may be put together.
            trace: where to record what is done when.
            on_table: gets the table of stages on rank 0; None prints it, False keeps it quiet.
            call: name of the public function, for messages.
            needs_loss: whether the model must be compiled.

        Raises:
            InvalidArgumentError: an argument is wrong; the same on every rank.
            ModelError: the model cannot be split so.
            UnsupportedError: it uses something that is refused by name.
            MismatchError: ranks passed different models or arguments.
        """
        self.call = call
        world = world_of(comm)
        self.gather = check_choice("gather", gather, GATHER_MODES, call=call)
        layers = check_layers(lpp, call=call)
        self.layout: Layout = resolve_layout(
            strategy,
            num_partitions,
            num_replicas,
            world_size=world.size,
            num_nodes=world.num_nodes,
            call=call,
        )
        self.framework = find_framework(model, call=call)
        agree(
            world,
            lambda: self.framework.check_model(model, call=call, needs_loss=needs_loss),
        )
        self._pipeline: Communicator | None = None
        self._fresh = {"weights": False, "optimizer": False}
        self._root_request: tuple[Any, Any, dict[str, Any]] | None = None
        pieces = resolve_micro_batches(
            micro_batches, layout=self.layout, batch_size=None, call=call
        )
        self.comm = world.dup("hyparflow")
        made = [self.comm]
        with closing_on_failure(made):
            self.trainer = HybridTrainer(
                model,
                self.comm,
                strategy=strategy,
                num_partitions=self.layout.partitions,
                num_replicas=self.layout.replicas,
                micro_batches=pieces,
                micro_batch_size=micro_batch_size,
                lpp=layers,
                schedule=schedule,
                balance=balance,
                memory_limit_bytes=memory_limit_bytes,
                seed=seed,
                trace=trace,
                on_table=on_table,
            )
            made += self.trainer.communicators
            self._prepare(needs_loss=needs_loss)

    def _prepare(self, *, needs_loss: bool) -> None:
        model = self.trainer.user_model
        agree(
            self.comm,
            lambda: self.framework.check_model(model, call=self.call, needs_loss=needs_loss),
        )
        self._continue_optimizer()
        metrics = None
        if needs_loss and self.comm.rank == self.keeper:
            metrics = self.framework.make_metrics(model)
        self.measurement = Measurement(self.comm, self.keeper, metrics)
        wanted = metrics.needs_predictions if metrics is not None else None
        self.trainer.collect_predictions = bool(
            self.comm.broadcast_object(wanted, root=self.keeper)
        )
        self.saver = Saver(self)
        self.service = HookService(self.comm, self._actions())

    @property
    def keeper(self) -> int:
        """Rank that computes the loss in replica 0 and keeps the metrics."""
        return self.layout.partitions - 1

    @property
    def steps_per_execution(self) -> int:
        """Batches between two batch hooks, as the model was compiled."""
        return self.framework.steps_per_execution(self.trainer.user_model)

    @property
    def needs(self) -> Needs:
        """What this rank wants of every batch."""
        return Needs(
            inputs=tuple(self.trainer.stage_inputs),
            targets=self.trainer.is_loss_stage,
            whole=self.comm.rank == self.keeper,
        )

    def pipeline(self) -> Communicator:
        """Return a communicator of this replica's ranks for data; collective at the first call."""
        if self._pipeline is None:
            grid = self.trainer.grid
            self._pipeline = self.comm.split(grid.replica, grid.partition, "hyparflow.data")
            assert self._pipeline is not None
        return self._pipeline

    def host_callbacks(
        self, callbacks: Any, verbose: Any, *, epochs: int, steps: int | None
    ) -> CallbackHost | None:
        """Return the host of the user's callbacks on rank 0, None elsewhere; collective.

        Args:
            callbacks: what the user passed; rank 0's count.
            verbose: of the progress bar.
            epochs: for the progress bar.
            steps: per epoch, likewise.

        Returns:
            The host.

        Raises:
            InvalidArgumentError: something among them is no callback; the same on every rank.
        """

        def make() -> CallbackHost | None:
            if self.comm.rank != 0:
                return None
            return self.framework.host_callbacks(
                self, callbacks, verbose=verbose, epochs=epochs, steps=steps
            )

        return agree(self.comm, make)

    def touched(self) -> None:
        """Note that a training step has changed the weights; every rank calls it alike."""
        self._fresh = {"weights": False, "optimizer": False}

    def gather_whole(self, *, optimizer: bool = False) -> None:
        """Bring rank 0's whole model up to date; collective.

        Args:
            optimizer: its state as well.

        Raises:
            UnsupportedError: the session was made with ``gather="none"``.
        """
        if self.gather == "none":
            raise self.framework.refuse("whole-model", call=self.call)
        if self._fresh["weights"] and (self._fresh["optimizer"] or not optimizer):
            return
        self.trainer.gather_weights("root", optimizer=optimizer)
        self._fresh["weights"] = True
        self._fresh["optimizer"] = self._fresh["optimizer"] or optimizer

    def scatter_whole(self, *, optimizer: bool = False) -> None:
        """Send rank 0's whole model to all stages; collective.

        Args:
            optimizer: the optimizer's state as well.
        """
        self.trainer.scatter_weights(optimizer=optimizer)

    # What callbacks ask for, on rank 0 while a hook runs; see `HookService`.

    def gather_now(self, *, optimizer: bool = False) -> None:
        """Have all ranks bring rank 0's model up to date."""
        if not self._fresh["weights"] or (optimizer and not self._fresh["optimizer"]):
            self.service.request("gather", optimizer)

    def scatter_now(self, *, optimizer: bool = False) -> None:
        """Have all ranks take over rank 0's model."""
        self.service.request("scatter", optimizer)

    def save_now(self, path: Any, *, overwrite: bool = True, **keywords: Any) -> None:
        """Have all ranks send their weights, and write a model file."""
        self.saver.save_in_hook(path, overwrite=overwrite, **keywords)

    def evaluate_now(self, x: Any, y: Any, **keywords: Any) -> Any:
        """Have all ranks evaluate on rank 0's data."""
        self._root_request = (x, y, keywords)
        return self.service.request("evaluate")

    def predict_now(self, x: Any, **keywords: Any) -> Any:
        """Have all ranks predict on rank 0's data."""
        self._root_request = (x, None, keywords)
        return self.service.request("predict")

    def show_iterations(self) -> None:
        """Let rank 0's optimizer say how many updates were done."""
        self.framework.set_iterations(self.trainer.user_model, self.trainer.iterations)

    def _actions(self) -> dict[str, Callable[..., Any]]:
        from hpcomm.hyparflow.evaluate import evaluate_in
        from hpcomm.hyparflow.predict import predict_in

        def take() -> tuple[Any, Any, dict[str, Any]]:
            request, self._root_request = self._root_request, None
            return request or (None, None, {})

        def evaluate() -> Any:
            x, y, keywords = take()
            return evaluate_in(self, x, y, **keywords)

        def predict() -> Any:
            x, _, keywords = take()
            return predict_in(self, x, gather="root", **keywords)

        return {
            "gather": lambda optimizer: self.gather_whole(optimizer=optimizer),
            "scatter": lambda optimizer: self.scatter_whole(optimizer=optimizer),
            "metrics_state": self.measurement.state_to_root,
            "evaluate": evaluate,
            "predict": predict,
        }

    def _continue_optimizer(self) -> None:
        """Go on with the moments of an earlier training of the same model, as Keras does."""
        started = self.comm.rank == 0 and self.framework.optimizer_started(self.trainer.user_model)
        if self.comm.broadcast_object(started):
            self.trainer.scatter_weights(optimizer=True)

    def close(self) -> None:
        """Release the communicators; the model stays as it is."""
        if self._pipeline is not None:
            self._pipeline.close()
        self.trainer.close()
        self.comm.close()

    def abort(self, error: BaseException) -> None:
        """Tell the other ranks what made this one fail, if they do not know, wherever they wait."""
        tell((self.comm, *self.trainer.communicators, self._pipeline), error)

    def __enter__(self) -> Self:
        """Enter a block at whose end the session is closed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; a failure that not all ranks raise by themselves is told to the others first."""
        del kind, traceback
        if error is not None:
            self.abort(error)
        self.close()


def world_of(comm: Communicator | None) -> Communicator:
    """Return the ranks to use: those given, or all."""
    if comm is not None:
        return comm
    import hpcomm

    return hpcomm.init()
