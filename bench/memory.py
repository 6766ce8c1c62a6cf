"""How much memory the fullest rank needs, against one process: python bench/memory.py --help.

Both sides train one step of the same model on the same batch. One process runs plain Keras; the
split one runs under `hpcomm run`. Counted is the peak of private memory plus the own share of the
arenas, above the value after imports. ``--build-only`` splits and builds without a step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MIB = 1 << 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet1001-v2")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--limit", type=float, default=0.45, help="largest ratio that passes")
    parser.add_argument("--build-only", action="store_true", help="split and build, no step")
    parser.add_argument("--json", default="", help="write the figures there")
    parser.add_argument("--side", choices=("both", "one", "split"), default="both")
    return parser.parse_args()


def batch(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    size = options.image_size
    x = rng.standard_normal((options.batch_size, size, size, 3)).astype("float32")
    return x, rng.integers(0, 10, options.batch_size)


def build(options: argparse.Namespace):
    from hpcomm.models import registry

    entry = registry.get(options.model)
    choices = entry.options(image_size=options.image_size)
    model = entry.build(choices)
    entry.compile(model, choices)
    return model


def one_process(options: argparse.Namespace, out: Path) -> None:
    """Train a step with plain Keras and write the figures."""
    import keras

    from hpcomm.environment import environment
    from hpcomm.memory import PeakMemory

    x, y = batch(options)
    begun_s = time.monotonic()
    meter = PeakMemory().start()
    keras.utils.set_random_seed(0)
    model = build(options)
    built_s = time.monotonic() - begun_s
    if not options.build_only:
        model.fit(x, y, batch_size=options.batch_size, epochs=1, verbose=0)
    figures = {"peak_bytes": [meter.stop()], "build_seconds": built_s}
    figures |= {"seconds": time.monotonic() - begun_s, "environment": environment()}
    out.write_text(json.dumps(figures))


def split(options: argparse.Namespace, out: Path) -> None:
    """Train a step as one rank and let rank 0 write the figures."""
    import hpcomm

    with hpcomm.init() as comm:
        import keras

        from hpcomm.environment import environment
        from hpcomm.hyparflow import HybridTrainer, StepBatch
        from hpcomm.memory import PeakMemory

        comm.barrier()
        x, y = batch(options)
        begun_s = time.monotonic()
        meter = PeakMemory().start()
        keras.utils.set_random_seed(0)
        tables: list[str] = []
        trainer = HybridTrainer(
            lambda: build(options),
            comm,
            strategy="model",
            num_partitions=options.partitions,
            micro_batches=options.micro_batches,
            balance="estimated",
            on_table=tables.append,
        )
        built_s = time.monotonic() - begun_s
        loss = None
        if not options.build_only:
            share = StepBatch(
                inputs={"image": x} if "image" in trainer.stage_inputs else {},
                targets=y if trainer.is_loss_stage else None,
                num_samples=len(x),
                global_samples=len(x),
            )
            loss = trainer.train_step(share).loss
        peaks = comm.allgather_object(meter.stop())
        times = comm.allgather_object(built_s)
        if comm.rank == 0:
            figures = {"peak_bytes": peaks, "build_seconds": max(times), "loss": loss}
            figures |= {"seconds": time.monotonic() - begun_s, "environment": environment()}
            out.write_text(json.dumps(figures | {"stages": "".join(tables).splitlines()}))


def run_side(side: str, folder: str) -> dict:
    out = Path(folder) / f"{side}.json"
    again = [str(Path(__file__).resolve()), *sys.argv[1:], "--side", side]
    options = arguments()
    command = [sys.executable, *again]
    if side == "split":
        command = [sys.executable, "-m", "hpcomm", "run", "-n", str(options.partitions), "--"]
        command += again
    subprocess.run(command, check=True, env={**os.environ, "BENCH_OUT": str(out)})
    return json.loads(out.read_text())


def main() -> int:
    options = arguments()
    if options.side != "both":
        from hpcomm.tensorflow.quiet import import_quietly

        import_quietly()
        out = Path(os.environ["BENCH_OUT"])
        (one_process if options.side == "one" else split)(options, out)
        return 0
    if options.json:
        Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        there = run_side("split", folder)
        here = None if options.build_only else run_side("one", folder)
    print("\n".join(there.pop("stages")))
    shown = ", ".join(f"{peak / MIB:.0f}" for peak in there["peak_bytes"])
    print(f"{options.model} in {options.partitions} partitions: peak {shown} MiB per rank")
    print(f"split and built in {there['build_seconds']:.1f} s, all {there['seconds']:.1f} s")
    document = {"benchmark": "memory", "command": "bench/memory.py " + " ".join(sys.argv[1:])}
    document |= {"environment": there.pop("environment"), "split": there}
    passed = True
    if here is not None:
        here.pop("environment")
        ratio = max(there["peak_bytes"]) / here["peak_bytes"][0]
        passed = ratio <= options.limit
        print(f"one process: peak {here['peak_bytes'][0] / MIB:.0f} MiB")
        print(f"ratio {ratio:.3f}, at most {options.limit}: {'passed' if passed else 'FAILED'}")
        document |= {"one_process": here, "ratio": ratio, "limit": options.limit}
    document["passed"] = passed
    if options.json:
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
