from __future__ import annotations

import sys

import pytest
from support.pipeline import pipeline_records

from hpcomm.errors import UnsupportedError
from hpcomm.plots import draw_run
from hpcomm.timeline import resolve_idle, summarize

EPOCHS = [
    {"loss": 1.2, "accuracy": 0.5, "val_loss": 1.0, "val_accuracy": 0.6},
    {"loss": 0.6, "accuracy": 0.8, "val_loss": 0.7, "val_accuracy": 0.8},
]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_draw_run_writes_a_picture_with_lanes_and_curves(tmp_path, ending):
    records = resolve_idle(pipeline_records([10, 12, 8], [20, 22, 18], 4, steps=3, send_ms=1))
    path = tmp_path / f"run.{ending}"
    draw_run(path, records, EPOCHS, title="three stages", summary=summarize(records, 3))
    content = path.read_bytes()
    if ending == "png":
        assert content.startswith(b"\x89PNG")
    else:
        text = content.decode()
        for label in (
            "rank 0",
            "rank 2",
            "three stages",
            "forward",
            "validation",
            "bubble measured",
        ):
            assert f"<!-- {label}" in text, label


def test_draw_run_without_records_or_accuracy_draws_the_rest(tmp_path):
    path = tmp_path / "run.svg"
    draw_run(path, {0: []}, [{"loss": 1.0}], title="loss only")
    text = path.read_text()
    assert "not measured" in text
    assert "rank 0" not in text


def test_draw_run_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"hpcomm\[plot\]"):
        draw_run(tmp_path / "run.png", {}, EPOCHS, title="x")
