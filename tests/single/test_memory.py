from __future__ import annotations

import multiprocessing
import time

import numpy as np
import pytest

from hpcomm import memory
from hpcomm.errors import UnsupportedError

MIB = 1 << 20


def test_peak_memory_sees_an_array_that_came_and_went():
    meter = memory.PeakMemory(interval_s=0.001).start()
    block = np.ones(64 * MIB, np.uint8)
    seen = meter.peak_bytes
    while meter.peak_bytes < 60 * MIB:  # the test's own timeout ends a meter that never sees it
        time.sleep(0.001)
    del block
    time.sleep(0.005)
    assert memory.private_bytes() - meter._base < 60 * MIB
    peak = meter.stop()
    assert seen <= peak
    assert 60 * MIB <= peak < 80 * MIB


def test_peak_memory_does_not_count_what_was_there_before():
    block = np.ones(64 * MIB, np.uint8)
    meter = memory.PeakMemory(interval_s=0.001).start()
    assert meter.stop() < 16 * MIB
    assert block[-1] == 1


def _share(connection, size):
    from multiprocessing import shared_memory

    area = shared_memory.SharedMemory(name=connection.recv())
    before = memory.private_bytes()
    total = int(np.frombuffer(area.buf, np.uint8)[:size].sum())
    connection.send((total, memory.private_bytes() - before))
    connection.recv()
    area.close()


def test_shared_memory_counts_by_share():
    from multiprocessing import shared_memory

    size = 32 * MIB
    area = shared_memory.SharedMemory(create=True, size=size)
    try:
        before = memory.private_bytes()
        np.frombuffer(area.buf, np.uint8)[:] = 1
        alone = memory.private_bytes() - before
        here, there = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_share, args=(there, size))
        process.start()
        here.send(area.name)
        total, gained = here.recv()
        shared = memory.private_bytes() - before
        here.send(None)
        process.join(timeout=30)
    finally:
        area.close()
        area.unlink()
    assert total == size
    assert abs(alone - size) < 4 * MIB
    assert abs(shared - size / 2) < 4 * MIB
    assert abs(gained - size / 2) < 4 * MIB


def test_peak_memory_counts_shared_memory_that_comes_later():
    from multiprocessing import shared_memory

    size = 32 * MIB
    meter = memory.PeakMemory(interval_s=0.001).start()
    area = shared_memory.SharedMemory(create=True, size=size)
    try:
        np.frombuffer(area.buf, np.uint8)[:] = 1
        peak = meter.stop()
    finally:
        area.close()
        area.unlink()
    assert size - 2 * MIB <= peak < size + 8 * MIB


def test_private_bytes_without_the_kernels_help_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_ROLLUP", tmp_path / "absent")
    with pytest.raises(UnsupportedError, match="cannot be read"):
        memory.private_bytes()
    (tmp_path / "old").write_text("Rss:        12 kB\nPss:         4 kB\n")
    monkeypatch.setattr(memory, "_ROLLUP", tmp_path / "old")
    with pytest.raises(UnsupportedError, match="Pss_Anon"):
        memory.private_bytes()
