"""`hpcomm train`: train a model over many ranks with one command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hpcomm.cli.flags import (
    Bind,
    Framework,
    JsonFile,
    NumRanks,
    Schedule,
    Strategy,
    check_num_ranks,
    numbers,
    wrong_usage,
)
from hpcomm.cli.outputs import take_standard_output

__all__ = ["app", "choose_layout"]

app = typer.Typer(add_completion=False)

DTYPES = ("float32", "float64", "mixed_bfloat16", "mixed_float16")
DEFAULT_SPLIT = 2


def choose_layout(
    strategy: str | None, partitions: int | None, replicas: int | None, num_ranks: int | None
) -> tuple[str, int, int]:
    """Fill in what the flags leave open.

    Args:
        strategy: "data", "model", "hybrid", or None: what partitions and replicas say, else
            "model".
        partitions: P or None.
        replicas: R or None.
        num_ranks: ranks that will run, or None.

    Returns:
        Strategy, partitions, replicas.

    Raises:
        typer.BadParameter: the flags contradict each other.
    """
    if strategy is None:
        copies = replicas is not None and replicas > 1
        strategy = "model" if not copies else "data" if partitions in (None, 1) else "hybrid"
    if strategy == "model":
        if replicas not in (None, 1):
            raise typer.BadParameter(
                f"strategy model has one replica, got {replicas}; use hybrid",
                param_hint="--replicas",
            )
        chosen = (partitions or num_ranks or DEFAULT_SPLIT, 1)
    elif strategy == "data":
        if partitions not in (None, 1):
            raise typer.BadParameter(
                f"strategy data has one partition, got {partitions}; use hybrid",
                param_hint="--partitions",
            )
        chosen = (1, replicas or num_ranks or DEFAULT_SPLIT)
    else:
        by_ranks = None if num_ranks is None else max(1, num_ranks // (replicas or DEFAULT_SPLIT))
        stages = partitions or by_ranks or DEFAULT_SPLIT
        left = None if num_ranks is None else max(1, num_ranks // stages)
        chosen = (stages, replicas or left or DEFAULT_SPLIT)
    if num_ranks is not None and chosen[0] * chosen[1] != num_ranks:
        raise typer.BadParameter(
            f"{chosen[0]} partitions × {chosen[1]} replicas need {chosen[0] * chosen[1]} ranks, "
            f"got {num_ranks}",
            param_hint="-n",
        )
    return strategy, *chosen


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def train(
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Model of the registry (--list shows them), or package.module:function for a "
            "function that returns your compiled Keras model.",
        ),
    ] = "resnet20-v1",
    framework: Annotated[Framework, typer.Option(help="Whose model.")] = Framework.keras,
    dataset: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="digits, synthetic, synthetic:HxWxC, or a .npz file of yours."
        ),
    ] = "digits",
    samples: Annotated[int, typer.Option(min=1, help="Samples that synthetic makes.")] = 256,
    strategy: Annotated[
        Strategy | None, typer.Option(help="How ranks share the work. (default: model)")
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Parts of a model.")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="Copies of the model.")] = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Pieces of a replica's batch in the pipeline. (default: 2 × partitions, or 1)",
        ),
    ] = None,
    schedule: Annotated[
        Schedule, typer.Option(help="Order of forward and backward.")
    ] = Schedule.gpipe,
    lpp: Annotated[
        str,
        typer.Option(metavar="A,B,…", help="Layers per partition. (default: balanced by time)"),
    ] = "",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples of a global batch. (default: the model's)")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the data. (default: the model's)")
    ] = None,
    optimizer: Annotated[
        str, typer.Option(help="sgd, adam, adamw or rmsprop. (default: the model's)")
    ] = "",
    learning_rate: Annotated[
        float | None, typer.Option(min=0.0, help="Peak learning rate. (default: the model's)")
    ] = None,
    decay: Annotated[
        str, typer.Option(help="cosine or constant learning rate. (default: the model's)")
    ] = "",
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Pixels per side. (default: the model's)")
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="D", help=f"One of {', '.join(DTYPES)}. (default: float32)")
    ] = "",
    mixed_precision: Annotated[
        bool, typer.Option("--mixed-precision", help="The same as --dtype mixed_bfloat16.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of weights, shuffling, dropout and splits.")] = 0,
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Write a checkpoint after every epoch, each stage its part."
        ),
    ] = "",
    resume: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Go on from the newest checkpoint there, and write on there."
        ),
    ] = "",
    save: Annotated[
        str, typer.Option(metavar="FILE", help="Save the trained model (.keras).")
    ] = "",
    min_accuracy: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Fail if validation accuracy ends below."),
    ] = None,
    json_file: JsonFile = "",
    plot: Annotated[
        str, typer.Option(metavar="FILE", help="Draw pipeline, loss and accuracy (.png, .svg).")
    ] = "",
    trace: Annotated[
        str, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev.")
    ] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose/--quiet", help="Show progress on standard error.")
    ] = True,
    num_ranks: NumRanks = None,
    bind: Annotated[
        Bind | None, typer.Option(help="How ranks share the CPUs, as in hpcomm run.")
    ] = None,
    list_models: Annotated[bool, typer.Option("--list", help="Show the models.")] = False,
) -> None:
    """Train a model in partitions, replicas or both; the result is that of one process.

    Without further flags: ResNet-20 on the handwritten digits in two partitions. Starts its own
    ranks unless a launcher (hpcomm run, mpiexec, srun, torchrun) started it as one.
    """
    from hpcomm.cli.train_options import TrainOptions, check
    from hpcomm.launch import relaunch_under, under_launcher

    if list_models:
        _list_models()
        return
    if mixed_precision and dtype not in ("", "mixed_bfloat16"):
        raise typer.BadParameter(f"contradicts --dtype {dtype}", param_hint="--mixed-precision")
    if decay and decay not in ("cosine", "constant"):
        raise typer.BadParameter("must be cosine or constant", param_hint="--decay")
    policy = "mixed_bfloat16" if mixed_precision else dtype or "float32"
    if policy not in DTYPES:
        raise typer.BadParameter(f"must be one of {', '.join(DTYPES)}", param_hint="--dtype")
    check_num_ranks(num_ranks)
    inside = under_launcher()
    if inside:
        num_ranks = None  # the launcher has decided, and fit compares
    chosen, stages, copies = choose_layout(
        strategy.value if strategy else None, partitions, replicas, num_ranks
    )
    options = TrainOptions(
        model=model,
        framework=framework.value,
        dataset=dataset,
        samples=samples,
        strategy=chosen,
        partitions=stages,
        replicas=copies,
        micro_batches=micro_batches or (2 * stages if stages > 1 else 1),
        schedule=schedule.value,
        lpp=numbers(lpp, "--lpp"),
        batch_size=batch_size,
        epochs=epochs,
        optimizer=optimizer,
        learning_rate=learning_rate,
        decay=decay,
        image_size=image_size,
        dtype=policy,
        seed=seed,
        checkpoint=checkpoint,
        resume=resume,
        save=save,
        min_accuracy=min_accuracy,
        json_file=json_file,
        plot=plot,
        trace=trace,
        verbose=verbose,
    )
    with wrong_usage():
        check(options)
    if not inside and options.world_size > 1:
        from hpcomm.cli.layers import Question, check_partitions

        check_partitions(Question(model, stages, image_size, policy, seed))
        more = {"bind": bind.value} if bind else {}
        raise typer.Exit(
            relaunch_under(options.world_size, sys.argv[1:], quiet=not verbose, **more)
        )
    report = take_standard_output() if json_file == "-" else None
    from hpcomm.cli.train_job import run

    run(options, report)


def _list_models() -> None:
    from rich.console import Console
    from rich.table import Table

    from hpcomm.models import registry

    table = Table("name", "what it is", box=None)
    for name in registry.names():
        table.add_row(name, registry.get(name).summary)
    Console().print(table)
