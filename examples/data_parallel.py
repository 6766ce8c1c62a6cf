"""Data-parallel gradient descent in plain NumPy: each rank holds a share of the samples.

The gradient allreduce is asynchronous; while it is under way the rank computes its loss.

Run: hpcomm run -n 2 -- python examples/data_parallel.py
"""

from __future__ import annotations

import numpy as np

import hpcomm

TRUE_WEIGHTS = np.array([2.0, -1.0, 0.5])

with hpcomm.init() as comm:
    random = np.random.default_rng(seed=comm.rank)  # every rank draws samples of its own
    x = random.normal(size=(200, 3))
    y = x @ TRUE_WEIGHTS + 0.01 * random.normal(size=200)

    weights = comm.broadcast(random.normal(size=3), root=0)  # all start from rank 0's
    for step in range(60):
        residual = x @ weights - y
        gradient = x.T @ residual / len(y)
        pending = comm.allreduce(gradient, op="avg", out=gradient, asynchronous=True)
        loss = 0.5 * np.mean(residual**2)
        pending.wait()
        weights -= 0.3 * gradient
        mean_loss = comm.allreduce(np.array(loss), op="avg")
        if comm.rank == 0 and step % 20 == 0:
            print(f"step {step:2d}: loss {mean_loss:.5f}")

    assert np.allclose(weights, TRUE_WEIGHTS, atol=0.01)
    if comm.rank == 0:
        print("weights", np.round(weights, 2))
