"""The report of a training: as JSON, and as lines for people."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcomm.cli.train_options import TrainOptions
    from hpcomm.timeline import Summary

__all__ = ["Report", "show"]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is known when a training is over.

    Attributes:
        options: flags without gaps.
        epochs: figures of every epoch as Keras names them, with "seconds" and "samples_per_s".
        summary: what the trace of the last steps says.
        peaks: largest memory above the one after imports, per rank, in bytes.
        stages: the table of the stages, one dict per stage; see `History.split`.
        seconds: of the whole job on rank 0, imports and compilation included.
        environment: versions and processor.
    """

    options: TrainOptions
    epochs: list[dict[str, float]]
    summary: Summary
    peaks: list[int]
    stages: list[dict[str, Any]]
    seconds: float
    environment: dict[str, Any]

    def epoch_rows(self) -> list[dict[str, float]]:
        """Return the epochs with "accuracy" and "val_accuracy" also where outputs have names."""
        rows = []
        for epoch in self.epochs:
            row = dict(epoch)
            for wanted in ("accuracy", "val_accuracy"):
                prefix = "val_" if wanted.startswith("val_") else ""
                named = next(
                    (
                        value
                        for name, value in epoch.items()
                        if name.endswith("accuracy") and name.startswith("val_") == bool(prefix)
                    ),
                    None,
                )
                if wanted not in row and named is not None:
                    row[wanted] = named
            rows.append(row)
        return rows

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        options, summary = self.options, self.summary
        return {
            "framework": options.framework,
            "model": options.model,
            "strategy": options.strategy,
            "world_size": options.world_size,
            "partitions": options.partitions,
            "replicas": options.replicas,
            "micro_batches": options.micro_batches,
            "batch_size": options.batch_size,
            "schedule": options.schedule,
            "dataset": options.dataset,
            "dtype": options.dtype,
            "seed": options.seed,
            "epochs": self.epoch_rows(),
            "bubble_fraction": summary.bubble_fraction,
            "ideal_bubble": summary.ideal_bubble,
            "expected_bubble": summary.expected_bubble,
            "comm_seconds": summary.comm_seconds,
            "exposed_comm_seconds": summary.exposed_comm_seconds,
            "compute_seconds": summary.compute_seconds,
            "idle_seconds": summary.idle_seconds,
            "step_seconds": summary.step_seconds,
            "traced_steps": summary.steps,
            "peak_rss_bytes": max(self.peaks),
            "peak_rss_bytes_by_rank": self.peaks,
            "stages": self.stages,
            "seconds": self.seconds,
            "environment": self.environment,
            "command": " ".join(["hpcomm", *sys.argv[1:]]),
        }


def show(report: Report) -> None:
    """Write the figures of a training on standard error."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    summary = report.summary
    if report.options.partitions > 1 and summary.steps:
        imbalance = summary.expected_bubble - summary.ideal_bubble
        console.print(
            f"bubble: measured {summary.bubble_fraction:.3f}; expected "
            f"{summary.expected_bubble:.3f} = {summary.ideal_bubble:.3f} (p-1)/(m+p-1) "
            f"+ {imbalance:.3f} imbalance of the stages"
        )
    if summary.steps:
        console.print(
            f"per rank over {summary.steps} steps: compute {summary.compute_seconds:.2f} s, "
            f"communication {summary.comm_seconds:.2f} s of which "
            f"{summary.exposed_comm_seconds:.2f} s not hidden, idle {summary.idle_seconds:.2f} s"
        )
    peaks = ", ".join(f"{peak / 2**20:.0f}" for peak in report.peaks)
    console.print(f"peak memory above imports by rank: {peaks} MiB")
    rows = report.epoch_rows()
    if rows and "val_accuracy" in rows[-1]:
        console.print(f"validation accuracy {rows[-1]['val_accuracy']:.4f}")
    console.print(f"took {report.seconds:.1f} s")
