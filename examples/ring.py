"""Pass a token around a ring of ranks, then do the same sum with one allreduce.

Run: hpcomm run -n 3 -- python examples/ring.py
"""

from __future__ import annotations

import numpy as np

import hpcomm

with hpcomm.init() as comm:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mine = np.array([float(comm.rank + 1)])
    total = mine.copy()
    passing = mine
    for _ in range(comm.size - 1):
        incoming = comm.irecv(left, shape=1, dtype=np.float64)  # post the receive first
        outgoing = comm.isend(passing, right)
        passing = incoming.wait()
        outgoing.wait()
        total += passing
    at_once = comm.allreduce(mine, op="sum")
    assert total == at_once
    print(f"rank {comm.rank}: {total[0]:.0f} around the ring, {at_once[0]:.0f} by allreduce")
