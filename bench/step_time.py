"""Time of a training step in a pipeline against plain Keras on the same cores.

``python bench/step_time.py`` starts a pipeline of ranks, each on a core of its own, and beside it
one process that runs ``model.fit`` on all of these cores. They take turns, one step at a time,
while the other side sleeps, so that both meet the same machine. Printed are the medians, their
ratio, and the bubble of the pipeline, measured and expected.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WARM_UP = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet110-v1")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--schedule", default="gpipe")
    parser.add_argument("--steps", type=int, default=15, help="timed steps of each side")
    parser.add_argument("--limit", type=float, default=0.95, help="largest ratio that passes")
    parser.add_argument("--json", default="", help="write the figures there")
    parser.add_argument("--plot", default="", help="draw a step of the pipeline there")
    parser.add_argument("--side", choices=("all", "rank", "keras"), default="all")
    return parser.parse_args()


def data(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    count, size = options.batch_size * (options.steps + WARM_UP), options.image_size
    x = rng.standard_normal((count, size, size, 3)).astype("float32")
    return x, rng.integers(0, 10, count)


def build(options: argparse.Namespace):
    import keras

    from hpcomm.models import registry

    keras.utils.set_random_seed(0)
    entry = registry.get(options.model)
    choices = entry.options(image_size=options.image_size)
    model = entry.build(choices)
    entry.compile(model, choices)
    return model


def turns(before, after):
    """Make a callback that calls ``before`` ahead of every step and ``after`` behind it."""
    import keras

    class Turns(keras.callbacks.Callback):
        hpcomm_passive = True

        def on_train_batch_begin(self, batch, logs=None):  # noqa: ARG002
            before()
            self.begun_s = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
            float(logs["loss"])  # waits for the step
            after(time.perf_counter() - self.begun_s)

    return Turns()


def keras_side(options: argparse.Namespace) -> None:
    """Run ``fit``; every step waits for a line and answers with its seconds."""
    x, y = data(options)
    model = build(options)

    def answer(text: object) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    model.fit(
        x,
        y,
        batch_size=options.batch_size,
        epochs=1,
        shuffle=False,
        verbose=0,
        callbacks=[turns(sys.stdin.readline, answer)],
    )


def start_keras_side() -> subprocess.Popen[str]:
    """Start plain Keras on all the cores that the ranks share, with the threads it chooses."""
    cores = {int(core) for core in os.environ["BENCH_CORES"].split(",")}
    narrow = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    launcher = ("HPCOMM_", "PMI", "MPI", "OMPI_", "PRTE", "PRRTE", "HYDRA", "HYDI")
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in narrow and not name.startswith(launcher)
    }
    command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--side", "keras"]
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # is inherited by the child
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean
        )
    finally:
        os.sched_setaffinity(0, mine)


def rank_side(options: argparse.Namespace) -> None:
    """Train as one rank of the pipeline; rank 0 gives plain Keras its turns."""
    import hpcomm

    with hpcomm.init() as comm, contextlib.ExitStack() as stack:
        from hpcomm import hyparflow, timeline
        from hpcomm.environment import environment
        from hpcomm.trace import Recorder, gather

        x, y = data(options)
        recorder = Recorder(comm.rank)
        ours: list[float] = []
        theirs: list[float] = []
        callbacks = []
        if comm.rank == 0:
            started: list[subprocess.Popen[str]] = []

            def other_side() -> None:
                if not started:  # not earlier, or it would disturb the timing of the layers
                    started.append(stack.enter_context(start_keras_side()))
                peer = started[0]
                peer.stdin.write("go\n")
                peer.stdin.flush()
                theirs.append(float(peer.stdout.readline()))

            callbacks = [turns(other_side, ours.append)]
        else:
            callbacks = [turns(lambda: None, lambda _: None)]
        tables: list[str] = []
        hyparflow.fit(
            lambda: build(options),
            x,
            y,
            strategy="model",
            num_partitions=options.partitions,
            micro_batches=options.micro_batches,
            schedule=options.schedule,
            batch_size=options.batch_size,
            epochs=1,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
            gather="none",
            trace=recorder,
            on_table=tables.append,
        )
        records = gather(comm, recorder)
        cores = comm.allgather_object(sorted(os.sched_getaffinity(0)))
        if records is None:
            return
        records = timeline.resolve_idle(records)
        summary = timeline.summarize(records, options.partitions, skip_steps=WARM_UP)
        if options.plot:
            from hpcomm.plots import draw_run

            draw_run(options.plot, records, [], title=options.model, summary=summary)
        figures = {
            "pipeline_s": ours[WARM_UP:],
            "keras_fit_s": theirs[WARM_UP:],
            "cores_of_ranks": cores,
            "bubble_measured": summary.bubble_fraction,
            "bubble_expected": summary.expected_bubble,
            "bubble_ideal": summary.ideal_bubble,
            "stages": "".join(tables).splitlines(),
            "seconds_by_rank": breakdown(records),
            "environment": environment(),
        }
        Path(os.environ["BENCH_OUT"]).write_text(json.dumps(figures))


def breakdown(records: dict[int, list]) -> list[dict[str, float]]:
    """Return per rank the median seconds of a step by what was done, waits split in two."""
    rows = []
    for _, steps in sorted(records.items()):
        kinds = {span.category for record in steps for span in record.spans}
        row = {
            kind: statistics.median(
                sum(s.duration_ns for s in record.spans if s.category == kind and not s.hidden)
                for record in steps[WARM_UP:]
            )
            / 1e9
            for kind in sorted(kinds)
        }
        rows.append(row)
    return rows


def main() -> int:
    options = arguments()
    if options.side != "all":
        from hpcomm.tensorflow.quiet import import_quietly

        import_quietly()
    if options.side == "rank":
        rank_side(options)
        return 0
    if options.side == "keras":
        keras_side(options)
        return 0
    for path in filter(None, (options.json, options.plot)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))[: options.partitions]
    if len(cores) < options.partitions:
        raise SystemExit(f"needs {options.partitions} cores, this process may use {len(cores)}")
    os.sched_setaffinity(0, cores)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "hpcomm", "run", "-n", str(options.partitions)]
        command += ["--bind", "core", "--", str(Path(__file__).resolve()), *sys.argv[1:]]
        environment = {"BENCH_OUT": str(out), "BENCH_CORES": ",".join(map(str, cores))}
        subprocess.run([*command, "--side", "rank"], check=True, env={**os.environ, **environment})
        figures = json.loads(out.read_text())
    ours = statistics.median(figures["pipeline_s"])
    theirs = statistics.median(figures["keras_fit_s"])
    ratio = ours / theirs
    passed = ratio <= options.limit
    measured, expected = figures["bubble_measured"], figures["bubble_expected"]
    ideal = figures["bubble_ideal"]
    print("\n".join(figures["stages"]))
    print(
        f"{options.model}, batch {options.batch_size}, {options.micro_batches} micro-batches, "
        f"{options.partitions} partitions on cores {cores}; medians of {options.steps} steps"
    )
    print(f"pipeline {ours:.3f} s, Keras fit {theirs:.3f} s")
    print(f"ratio {ratio:.3f}, at most {options.limit}: {'passed' if passed else 'FAILED'}")
    print(
        f"bubble measured {measured:.4f}, expected {expected:.4f} = {ideal:.4f} (p-1)/(m+p-1) + "
        f"{expected - ideal:.4f} stage imbalance; measured/expected {measured / expected:.3f}"
    )
    for rank, row in enumerate(figures["seconds_by_rank"]):
        parts = ", ".join(f"{kind} {seconds * 1e3:.1f} ms" for kind, seconds in row.items())
        print(f"rank {rank}: {parts}")
    if options.json:
        document = {
            "benchmark": "step_time",
            "command": "bench/step_time.py " + " ".join(sys.argv[1:]),
            "ratio": ratio,
            "limit": options.limit,
            "passed": passed,
            **figures,
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
