"""Pictures of a training run: who did what when, and how the loss went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm.errors import UnsupportedError
from hpcomm.timeline import representative_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hpcomm.timeline import Summary
    from hpcomm.trace import Span, StepRecord

_COLOURS = {
    "forward": "#4477aa",
    "backward": "#228833",
    "forward and backward": "#117777",
    "update": "#aa3377",
    "send": "#ccbb44",
    "receive": "#ee6677",
    "allreduce": "#66ccee",
    "other": "#999999",
    "idle": "#eeeeee",
}
"""Colour-blind safe palette (Paul Tol, "bright")."""

_LANE_HEIGHT = 0.8
_LABEL_SHARE = 0.012
"""A box narrower than this share of the step gets no number."""


def draw_run(
    path: str | Path,
    steps_by_rank: Mapping[int, Sequence[StepRecord]],
    epochs: Sequence[Mapping[str, float]],
    *,
    title: str,
    summary: Summary | None = None,
) -> None:
    """Draw one step of the pipeline, a lane per rank, above loss and accuracy per epoch.

    Args:
        path: picture to write; its ending (.png, .svg, .pdf) decides about the format.
        steps_by_rank: as ``timeline.resolve_idle`` returns them; the step of median length is
            drawn. Empty leaves the lanes out.
        epochs: per epoch "loss" and, where there are such, "accuracy", "val_loss", "val_accuracy".
        title: what was run.
        summary: its bubbles are written above the lanes.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            "a picture needs matplotlib; install it with: pip install 'hpcomm[plot]'"
        ) from error
    lanes = {rank: steps for rank, steps in steps_by_rank.items() if steps}
    lane_inches = 0.55 * len(lanes) + 1.1 if lanes else 0.0
    figure = Figure(figsize=(11, lane_inches + 3.4), layout="constrained")
    figure.suptitle(title)
    if lanes:
        rows = figure.add_gridspec(2, 1, height_ratios=(lane_inches, 3.0))
        _draw_lanes(figure.add_subplot(rows[0]), lanes, summary)
        bottom: Any = rows[1].subgridspec(1, 2)
    else:
        bottom = figure.add_gridspec(1, 2)
    _draw_curves(figure.add_subplot(bottom[0]), epochs, ("loss", "val_loss"), "loss")
    _draw_curves(figure.add_subplot(bottom[1]), epochs, ("accuracy", "val_accuracy"), "accuracy")
    figure.savefig(path, dpi=150)


def _kind(span: Span) -> str:
    if span.category != "compute":
        return span.category
    return span.name if span.name in _COLOURS else "other"


def _draw_lanes(
    axes: Any, lanes: Mapping[int, Sequence[StepRecord]], summary: Summary | None
) -> None:
    from matplotlib.patches import Patch

    number = representative_step({rank: list(steps) for rank, steps in lanes.items()})
    records = {
        rank: record for rank, steps in lanes.items() for record in steps if record.step == number
    }
    # What a rank waited for before the first one began tells nothing about the pipeline.
    begun = [s.start_ns for r in records.values() for s in r.spans if s.micro_batch is not None]
    origin_ns = min(begun, default=min(record.start_ns for record in records.values()))
    length_ns = max(record.end_ns for record in records.values()) - origin_ns
    used = set()
    for rank, record in records.items():
        for span in record.spans:
            if span.hidden:
                continue
            kind = _kind(span)
            used.add(kind)
            start_ms, width_ms = (span.start_ns - origin_ns) / 1e6, span.duration_ns / 1e6
            axes.broken_barh(
                [(start_ms, width_ms)],
                (rank - _LANE_HEIGHT / 2, _LANE_HEIGHT),
                facecolors=_COLOURS[kind],
                edgecolor="white" if kind != "idle" else "none",
                linewidth=0.4,
            )
            wide = span.duration_ns > _LABEL_SHARE * length_ns
            if wide and span.category == "compute" and span.micro_batch is not None:
                axes.text(
                    start_ms + width_ms / 2,
                    rank,
                    str(span.micro_batch),
                    ha="center",
                    va="center",
                    color="white",
                    fontsize=8,
                )
    axes.set_yticks(sorted(records), [f"rank {rank}" for rank in sorted(records)])
    axes.set_ylim(max(records) + 0.6, min(records) - 0.6)
    axes.set_xlim(0, length_ns / 1e6)
    axes.set_xlabel(f"ms of step {number} (numbers: micro-batches)")
    if summary is not None:
        axes.set_title(
            f"bubble measured {summary.bubble_fraction:.3f}, "
            f"expected {summary.expected_bubble:.3f} "
            f"(ideal {summary.ideal_bubble:.3f} and stage imbalance)",
            fontsize=10,
        )
    handles = [Patch(color=_COLOURS[kind], label=kind) for kind in _COLOURS if kind in used]
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _draw_curves(
    axes: Any, epochs: Sequence[Mapping[str, float]], names: Sequence[str], label: str
) -> None:
    number = range(1, len(epochs) + 1)
    for name, style in zip(names, ("-", "--"), strict=True):
        values = [epoch.get(name) for epoch in epochs]
        points = [(x, y) for x, y in zip(number, values, strict=True) if y is not None]
        if points:
            shown = "validation" if name.startswith("val_") else "training"
            axes.plot(*zip(*points, strict=True), style, marker="o", label=shown)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.set_xticks(list(number) if len(epochs) <= 12 else [1, len(epochs)])
    if axes.lines:
        axes.legend(frameon=False)
    else:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)
    axes.grid(alpha=0.3)
