"""A session that cannot be made leaves no communicator behind."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow


def model(compiled: bool = True) -> Any:
    """Four calls, the first and the third of the same layer."""
    import keras

    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    shared = keras.layers.Dense(4)
    net = keras.Model(inputs, keras.layers.Dense(1)(shared(keras.layers.Dense(4)(shared(inputs)))))
    if compiled:
        net.compile("sgd", "mse")
    return net


@pytest.mark.mpi(ranks=[2], timeout=240, unit="s")
def test_a_session_that_fails_closes_what_it_made(
    mpi_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hpcomm
    from hpcomm.communicator import live_communicators
    from hpcomm.errors import ModelError, PeerAbortedError, UnsupportedError
    from hpcomm.hyparflow.session import Session
    from hpcomm.tensorflow.adapter import KerasAdapter

    world = hpcomm.init()
    options: dict[str, Any] = {"strategy": "model", "lpp": [2, 2], "balance": "estimated"}
    before = set(live_communicators())

    def fails(kind: type[Exception], text: str, *arguments: Any, **more: Any) -> None:
        # The error is kept, and with it all that was made: nothing here ends by itself.
        with pytest.raises(kind, match=text) as caught:
            Session(*arguments, comm=world, **(options | {"on_table": False} | more))
        left = set(live_communicators()) - before
        assert not left, f"{caught.value} left {left}"
        assert world.allgather_object(world.rank) == list(range(mpi_ranks))

    with Session(model(), comm=world, on_table=False, **options) as session:
        # The session's own, two of the grid, one for the shared weights.
        assert len(set(live_communicators()) - before) == 4
        assert len(session.trainer.communicators) == 3
    assert set(live_communicators()) == before

    # Before there is a grid, while stages are made, and when the trainer is complete.
    fails(ModelError, "no partition into 2 stages", model, lpp=None, memory_limit_bytes=1)
    with monkeypatch.context() as patch:
        make = KerasAdapter.make_stage

        def refuse(self: Any, graph: Any, spec: Any, seed: int) -> Any:
            if world.rank == 1:
                raise UnsupportedError("such a stage is not supported")
            return make(self, graph, spec, seed)

        patch.setattr(KerasAdapter, "make_stage", refuse)
        fails(UnsupportedError, "such a stage", model)
    fails(ModelError, "is not compiled", lambda: model(compiled=False))

    # A failure of one rank alone, which the others are told of wherever they wait.
    def broken(table: str) -> None:
        raise RuntimeError(f"no room for {len(table)} letters")

    kind: type[Exception] = RuntimeError if world.rank == 0 else PeerAbortedError
    fails(kind, "no room for", model, on_table=broken)
