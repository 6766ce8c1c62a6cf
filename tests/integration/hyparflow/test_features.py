"""What Keras training carries is the same over several ranks as in one process, or refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

HYBRID = (
    "regularizers and constraints",
    "loss weights, dicts in and out",
    "global clipnorm, tied weights",
    "mixed_float16 with loss scaling",
    "moving averages",
    "PyDataset",
)
DATA = ("sample weights", "stateful metrics", "clipnorm", "gradient accumulation", "generator")


def same(got: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def check(name: str, comm: Any, **layout: Any) -> None:
    """Train a case in one process and over ``comm``; compare history, weights and outputs."""
    from support.keras_cases import CASES, seeded

    import hpcomm.hyparflow as hf

    case = CASES[name]
    common = {"epochs": 2, "batch_size": 10, "shuffle": False, "verbose": 0} | case.options
    x, *rest = case.data()
    if not isinstance(x, (np.ndarray, dict)):
        del common["batch_size"]
    reference = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if comm.rank == 0:
            alone = seeded(case)
            reference = alone.fit(x, *rest, **common).history
    model = seeded(case)
    x, *rest = case.data()
    history = hf.fit(model, x, *rest, comm=comm, on_table=False, **layout, **common)
    histories = comm.allgather_object(history.history)
    for other in histories:
        assert list(other) == list(histories[0])
        for key, values in other.items():
            same(values, histories[0][key], 0)
    inputs = case.data()[0]
    whole = isinstance(inputs, (np.ndarray, dict))
    outputs = hf.predict(model, inputs, comm=comm, verbose=0, **layout) if whole else None
    if comm.rank == 0:
        assert reference is not None
        assert list(history.history) == list(reference)
        for key, values in reference.items():
            same(history.history[key], values, case.tolerance)
        for got, expected in zip(model.get_weights(), alone.get_weights(), strict=True):
            same(got, expected, case.tolerance)
        for got, expected in zip(model.optimizer.variables, alone.optimizer.variables, strict=True):
            same(got, expected, case.tolerance * 10)
        if whole:
            import keras

            for got, expected in zip(
                keras.tree.flatten(outputs),
                keras.tree.flatten(alone.predict(inputs, verbose=0)),
                strict=True,
            ):
                same(got, expected, case.tolerance)


def run_cases(names: Any, **layout: Any) -> None:
    import keras

    import hpcomm

    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    comm = hpcomm.init()
    from support.keras_cases import CASES

    failures = []
    for name in names or CASES:
        try:
            check(name, comm, micro_batches=CASES[name].micro_batches, **layout)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
            if comm.is_broken:
                break
        failures = [item for part in comm.allgather_object(failures) for item in part]
        failures = sorted(set(failures))
    assert not failures, "\n\n".join(failures)


@pytest.mark.mpi(ranks=[2], timeout=400, unit="s")
def test_fit_in_two_partitions_equals_keras(mpi_ranks: int) -> None:
    run_cases(None, strategy="model", num_partitions=mpi_ranks)


@pytest.mark.mpi(ranks=[2], timeout=200, unit="s")
def test_fit_in_two_replicas_equals_keras(mpi_ranks: int) -> None:
    run_cases(DATA, strategy="data", num_replicas=mpi_ranks)


@pytest.mark.mpi(ranks=[4], timeout=400, unit="s")
def test_fit_in_two_replicas_of_two_partitions_equals_keras(mpi_ranks: int) -> None:
    run_cases(HYBRID, strategy="hybrid", num_partitions=2, num_replicas=mpi_ranks // 2)
