"""What every rank of `hpcomm train` does: load, train, gather figures, report."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from hpcomm import datasets, timeline
from hpcomm import trace as traces
from hpcomm.cli.outputs import write_report
from hpcomm.cli.train_report import Report, show
from hpcomm.environment import environment
from hpcomm.errors import HpcommError
from hpcomm.memory import PeakMemory
from hpcomm.models import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcomm.cli.train_options import TrainOptions
    from hpcomm.models.task import Task

__all__ = ["make_builder", "run"]


def run(options: TrainOptions, standard_output: TextIO | None = None) -> None:
    """Train as one rank of the job; rank 0 writes the report and what else was asked for.

    Args:
        options: checked flags, equal on every rank.
        standard_output: where "-" as the report's name leads; None for ``sys.stdout``.

    Raises:
        HpcommError: the training failed, or its accuracy is below what was asked for.
    """
    import hpcomm

    begun_s = time.monotonic()
    with hpcomm.init() as comm:
        from hpcomm.tensorflow.quiet import import_quietly

        import_quietly()
        from hpcomm import hyparflow
        from hpcomm.hyparflow import CheckpointPolicy
        from hpcomm.models.keras.common import set_globals
        from hpcomm.tensorflow.watch import EpochWatch

        meter = PeakMemory().start()
        set_globals(options.dtype, options.seed)
        model, task, options = _prepare(options)
        data = datasets.load(
            options.dataset, task, samples=options.samples, seed=options.seed,
            sample_weighted=_wants_weights(options),
        )  # fmt: skip
        model = model(data.num_samples)
        recorder = traces.Recorder(comm.rank)
        watch = EpochWatch(data.num_samples, options.batch_size or 1, quiet=not options.verbose)
        folder = options.resume or options.checkpoint
        try:
            history = hyparflow.fit(
                model,
                _plain(data.inputs),
                _plain(data.targets),
                sample_weight=data.sample_weight,
                validation_data=None
                if data.validation is None
                else (_plain(data.validation[0]), _plain(data.validation[1])),
                strategy=options.strategy,  # type: ignore[arg-type]
                num_partitions=options.partitions,
                num_replicas=options.replicas,
                micro_batches=options.micro_batches,
                schedule=options.schedule,
                lpp=options.lpp or None,
                batch_size=options.batch_size,
                epochs=options.epochs or 1,
                seed=options.seed,
                verbose=0,
                callbacks=[watch],
                gather="root" if options.save else "none",
                checkpoint=CheckpointPolicy(folder, sharded=True) if folder else None,
                resume="auto" if options.resume else None,
                comm=comm,
                trace=recorder,
                on_table=_print_table if options.verbose else False,
            )
        finally:
            watch.close()
        peaks = comm.allgather_object(meter.stop())
        records = traces.gather(comm, recorder)
        if comm.rank == 0 and options.save:
            history.model.save(options.save)
    if records is None:
        return
    records = timeline.resolve_idle(records)
    summary = timeline.summarize(records, options.partitions)
    report = Report(
        options,
        epochs=watch.figures(history.history),
        summary=summary,
        peaks=peaks,
        stages=history.split,
        seconds=time.monotonic() - begun_s,
        environment=environment(),
    )
    _write(options, report, records, standard_output)
    _demand_accuracy(options, report)


def _prepare(
    options: TrainOptions,
) -> tuple[Callable[[int], Any], Task, TrainOptions]:
    """Return a maker of what ``fit`` takes, the model's task, and options without gaps."""
    if registry.is_user_function(options.model):
        return _prepare_own(options)
    entry = registry.get(options.model)
    full, recipe = options.with_recipe(entry.recipe)
    build_options = entry.options(image_size=options.image_size)

    def make(num_samples: int) -> Any:
        steps = -(-num_samples // (full.batch_size or 1)) * (full.epochs or 1)

        def build() -> Any:
            model = entry.build(build_options)
            entry.compile(model, build_options, recipe, total_steps=steps)
            return model

        return build

    return make, entry.task(build_options), full


def _prepare_own(options: TrainOptions) -> tuple[Callable[[int], Any], Task, TrainOptions]:
    from hpcomm.models.keras.common import set_globals
    from hpcomm.models.keras.infer import infer_task_of
    from hpcomm.models.task import Recipe

    function = _load_own(options.model)
    full, _ = options.with_recipe(Recipe())

    def build() -> Any:
        model = registry.call_user_function(function, options.image_size)
        if options.learning_rate is not None:
            model.optimizer.learning_rate = options.learning_rate
        return model

    task = infer_task_of(lambda: registry.call_user_function(function, options.image_size))
    set_globals(options.dtype, options.seed)  # as if the model had not been built before
    return lambda _: build, task, full


def make_builder(
    model: str, image_size: int | None, dropout: float | None = None
) -> Callable[[], Any]:
    """Return a function that builds a model, for those who train nothing.

    Args:
        model: name in the registry, or the user's function.
        image_size: height and width of images; None for the model's own.
        dropout: of a model of the registry; None for its own.

    Raises:
        ModelError: the user's function is not there.
    """
    if registry.is_user_function(model):
        function = _load_own(model)
        return lambda: registry.call_user_function(function, image_size)
    entry = registry.get(model)
    return lambda: entry.build(entry.options(image_size=image_size, dropout=dropout))


def _load_own(model: str) -> Callable[..., Any]:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return registry.load_user_function(model)


def _wants_weights(options: TrainOptions) -> bool:
    known = not registry.is_user_function(options.model)
    return known and registry.get(options.model).recipe.sample_weighted


def _plain(arrays: dict[str, Any]) -> Any:
    """Return the only array of a dictionary, or the dictionary."""
    return arrays if len(arrays) > 1 else next(iter(arrays.values()))


def _print_table(text: str) -> None:
    sys.stderr.write(text.rstrip("\n") + "\n")


def _write(
    options: TrainOptions,
    report: Report,
    records: timeline.Steps,
    standard_output: TextIO | None,
) -> None:
    write_report(options.json_file, json.dumps(report.document(), indent=2), standard_output)
    if options.trace:
        traces.write_chrome_trace(options.trace, records)
    if options.plot:
        from hpcomm.plots import draw_run

        draw_run(
            options.plot,
            records,
            report.epoch_rows(),
            title=options.title,
            summary=report.summary,
        )
    if options.verbose:
        show(report)


def _demand_accuracy(options: TrainOptions, report: Report) -> None:
    if options.min_accuracy is None:
        return
    reached = [row["val_accuracy"] for row in report.epoch_rows() if "val_accuracy" in row]
    if not reached or reached[-1] < options.min_accuracy:
        shown = f"{reached[-1]:.4f}" if reached else "not measured"
        raise HpcommError(
            f"train: validation accuracy is {shown}, --min-accuracy asks for "
            f"{options.min_accuracy}; train longer, or change the learning rate"
        )
