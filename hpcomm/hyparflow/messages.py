"""Boundary tensors and partial errors between the stages of one replica.

Every edge of the split has two tags of its own, one per direction, and its messages follow the
order of the micro-batches. Receives are posted ahead of the computation that needs them, sends
never block. The first activation for a number of samples is preceded by its shape; the receiver
remembers it, except where a model has more unknown extents than the batch.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpcomm.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.adapter import StageRunner
    from hpcomm.hyparflow.split import Edge
    from hpcomm.layer_graph import LayerGraph
    from hpcomm.trace import Trace
    from hpcomm.work import Work

__all__ = ["Mailbox"]

_AHEAD = 2
"""Receives that are posted before the first of them is needed."""

_MAX_TAG = 16383


class Mailbox:
    """All messages of one stage during steps.

    Args:
        comm: partitions of this replica; rank = stage.
        graph: the model.
        edges: of the split.
        runner: makes and reads tensors.
        world_rank: of every stage, for traces.
        trace: where waiting is recorded.
    """

    def __init__(
        self,
        comm: Communicator,
        graph: LayerGraph,
        edges: Sequence[Edge],
        runner: StageRunner,
        world_rank: Sequence[int],
        trace: Trace,
    ) -> None:
        if 2 * len(edges) > _MAX_TAG:
            raise UnsupportedError(
                f"{len(edges)} tensors cross stage boundaries, {_MAX_TAG // 2} are possible; use "
                "fewer partitions or other boundaries (lpp)"
            )
        self._comm = comm
        self._graph = graph
        self._runner = runner
        self._world_rank = list(world_rank)
        self._trace = trace
        unknown = [t for t in graph.inputs.values() if None in graph.tensors[t].shape[1:]]
        self._always_tell = bool(unknown)
        self._told: dict[tuple[int, int], tuple[int, ...]] = {}
        self._sends: deque[_Sending] = deque()

    def begin(self, sizes: Sequence[int]) -> None:
        """Start a step.

        Args:
            sizes: samples of each micro-batch.
        """
        self._sizes = list(sizes)
        self._activations: dict[int, _Inbox] = {}
        self._errors: dict[int, _Inbox] = {}
        self._shapes_sent: dict[tuple[int, int], tuple[int, ...]] = {}

    def send_activation(self, edge: Edge, micro_batch: int, tensor: Any) -> None:
        """Send a boundary tensor to one consumer; returns at once."""
        array = self._runner.to_array(tensor)
        tag, shape = 2 * edge.index, tuple(array.shape)
        key = (edge.index, self._sizes[micro_batch])
        if self._always_tells(edge) or key not in self._told:
            self._send(edge, edge.target, tag, micro_batch, np.array(shape, np.int64), "shape of ")
            self._told[key] = shape
        elif self._told[key] != shape:
            name = self._graph.tensors[edge.tensor].name
            raise ModelError(
                f"the shape of {name!r} depends on the data: {shape} now, {self._told[key]} for as "
                "many samples before; put the boundary elsewhere (lpp)",
                rank=self._comm.rank,
            )
        self._shapes_sent[edge.index, micro_batch] = shape
        self._send(edge, edge.target, tag, micro_batch, array)

    def send_error(self, edge: Edge, micro_batch: int, tensor: Any) -> None:
        """Send a partial error back to where its tensor came from; returns at once."""
        array = self._runner.to_array(tensor)
        self._send(edge, edge.source, 2 * edge.index + 1, micro_batch, array, "error of ")

    def expect_activations(self, edges: Sequence[Edge], micro_batch: int) -> None:
        """Post receives for this micro-batch and the next ones, as far as shapes are known."""
        for edge in edges:
            inbox = self._activations.setdefault(
                edge.index, _Inbox(self, edge, edge.source, 2 * edge.index)
            )
            inbox.post_until(min(micro_batch + _AHEAD, len(self._sizes)))

    def expect_errors(self, edges: Sequence[Edge], micro_batch: int) -> None:
        """Post receives for the errors of this micro-batch and the next ones."""
        for edge in edges:
            inbox = self._errors.setdefault(
                edge.index, _Inbox(self, edge, edge.target, 2 * edge.index + 1)
            )
            inbox.post_until(min(micro_batch + _AHEAD, len(self._sizes)))

    def take_activation(self, edge: Edge, micro_batch: int) -> Any:
        """Wait for a boundary tensor."""
        return self._activations[edge.index].take(micro_batch)

    def take_error(self, edge: Edge, micro_batch: int) -> Any:
        """Wait for a partial error."""
        return self._errors[edge.index].take(micro_batch)

    def finish(self) -> None:
        """Wait until all sends of the step are complete."""
        while self._sends:
            sending = self._sends.popleft()
            if not sending.work.test():
                with self._trace.span("send", "wait for sends"):
                    sending.work.wait()
            self._sent(sending)

    def _send(
        self, edge: Edge, peer: int, tag: int, micro_batch: int, array: np.ndarray, what: str = ""
    ) -> None:
        while self._sends and self._sends[0].work.test():
            self._sent(self._sends.popleft())
        details: dict[str, Any] = {
            "micro_batch": micro_batch,
            "peer": self._world_rank[peer],
            "nbytes": array.nbytes,
        }
        name = what + self._graph.tensors[edge.tensor].name
        with self._trace.span("send", name, **details):
            # The handle keeps the array, and with it the tensor, alive.
            work = self._comm.isend(array, peer, tag)
        self._sends.append(_Sending(work, name, details))

    def _sent(self, sending: _Sending) -> None:
        work = sending.work
        work.wait()
        self._trace.flight(
            "send", sending.name, work.submitted_ns, work.completed_ns, **sending.details
        )

    def _always_tells(self, edge: Edge) -> bool:
        return self._always_tell or None in self._graph.tensors[edge.tensor].shape[1:]

    def known_shape(self, edge: Edge, micro_batch: int, *, is_error: bool) -> Any:
        """Return the shape of a message to come, or None if its sender has to tell it."""
        if is_error:
            return self._shapes_sent.get((edge.index, micro_batch))
        if self._always_tells(edge):
            return None
        return self._told.get((edge.index, self._sizes[micro_batch]))

    def receive_shape(self, edge: Edge, micro_batch: int, tag: int) -> tuple[int, ...]:
        """Wait for the shape that precedes a message."""
        header = np.empty(len(self._graph.tensors[edge.tensor].shape), np.int64)
        with self._waiting(edge, micro_batch, edge.source, header.nbytes, "shape of "):
            self._comm.recv(edge.source, tag, out=header)
        shape = tuple(int(extent) for extent in header)
        self._told[edge.index, self._sizes[micro_batch]] = shape
        return shape

    def post(
        self, edge: Edge, source: int, tag: int, shape: tuple[int, ...]
    ) -> tuple[Work, np.ndarray]:
        """Start receiving."""
        buffer = self._runner.buffer(shape, self._graph.tensors[edge.tensor].dtype)
        return self._comm.irecv(source, tag, out=buffer), buffer

    def wait(self, work: Work, buffer: np.ndarray, edge: Edge, source: int, micro: int) -> Any:
        """Return the tensor of a posted receive."""
        if not work.test():
            what = "" if source == edge.source else "error of "
            with self._waiting(edge, micro, source, buffer.nbytes, what):
                work.wait()
        else:
            work.wait()
        return self._runner.received(buffer)

    def _waiting(self, edge: Edge, micro_batch: int, source: int, nbytes: int, what: str) -> Any:
        return self._trace.span(
            "receive",
            what + self._graph.tensors[edge.tensor].name,
            micro_batch=micro_batch,
            peer=self._world_rank[source],
            nbytes=nbytes,
        )


class _Sending(NamedTuple):
    """A send under way, with what a trace says of it."""

    work: Work
    name: str
    details: dict[str, Any]


class _Inbox:
    """Messages of one edge in one direction, in the order of the micro-batches."""

    def __init__(self, mailbox: Mailbox, edge: Edge, source: int, tag: int) -> None:
        self._mailbox = mailbox
        self._edge = edge
        self._source = source
        self._tag = tag
        self._is_error = source == edge.target
        self._posted: deque[tuple[Work, np.ndarray]] = deque()
        self._next = 0

    def post_until(self, stop: int) -> None:
        """Post receives up to micro-batch ``stop``, as long as their shapes are known."""
        while self._next < stop:
            shape = self._mailbox.known_shape(self._edge, self._next, is_error=self._is_error)
            if shape is None:
                return
            self._post(shape)

    def take(self, micro_batch: int) -> Any:
        """Wait for the next message, which is that of ``micro_batch``."""
        if not self._posted:
            assert self._next == micro_batch
            self._post(self._mailbox.receive_shape(self._edge, micro_batch, self._tag))
        work, buffer = self._posted.popleft()
        return self._mailbox.wait(work, buffer, self._edge, self._source, micro_batch)

    def _post(self, shape: tuple[int, ...]) -> None:
        self._posted.append(self._mailbox.post(self._edge, self._source, self._tag, shape))
        self._next += 1
