from __future__ import annotations

import io

from rich.console import Console

from hpcomm.progress import TrainingProgress


def _run(terminal, quiet=False):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120)
    with TrainingProgress(2, 3, 64, quiet=quiet, console=console) as progress:
        for epoch in range(2):
            progress.begin_epoch(epoch)
            for step in range(3):
                progress.end_step(1.0 / (step + 1))
            progress.end_epoch(epoch, {"loss": 0.5, "val_accuracy": 0.9}, 1.5)
    return stream.getvalue()


def test_progress_on_a_terminal_shows_steps_loss_speed_and_time_left():
    shown = _run(terminal=True)
    for part in ("epoch 2/2", "6/6", "loss 0.3333", "samples/s", "left"):
        assert part in shown, part


def test_progress_in_a_file_writes_one_line_per_epoch():
    lines = _run(terminal=False).splitlines()
    assert lines == [
        "epoch 1/2  loss 0.5000  val_accuracy 0.9000  1.5 s",
        "epoch 2/2  loss 0.5000  val_accuracy 0.9000  1.5 s",
    ]


def test_progress_can_be_quiet():
    assert _run(terminal=True, quiet=True) == ""
