"""The communicator: a group of ranks and all that they can do together.

The public calls stand one per file under `hpcomm.collectives`, in `hpcomm.point_to_point` and in
`hpcomm.objects`; here they become methods, and here groups come and go.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from hpcomm import checks
from hpcomm.collectives.allgather import allgather, allgatherv
from hpcomm.collectives.allreduce import allreduce
from hpcomm.collectives.barrier import barrier
from hpcomm.collectives.broadcast import broadcast
from hpcomm.collectives.reduce_scatter import reduce_scatter
from hpcomm.errors import PeerDiedError
from hpcomm.grid import Grid
from hpcomm.objects import allgather_object, broadcast_object, recv_object, send_object
from hpcomm.point_to_point import irecv, isend, recv, send

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from hpcomm import _core
    from hpcomm.bootstrap.mpi import MpiGroup

__all__ = ["Communicator"]

_live: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Communicator:
    """A group of ranks with its own order of operations and its own failures.

    Users get the first one from `hpcomm.init` and others from `split`, `dup` and `grid`. All
    methods may be called from any thread; collectives must be called by all ranks in the same
    order. A communicator is a context manager: leaving the block closes it, and leaving it by an
    exception tells the other ranks first.

    Attributes:
        rank: number of this process in the group, 0 … size-1.
        size: number of ranks.
        name: as given by the user, for messages.
        world_ranks: rank in the first communicator of every rank of this one.
    """

    __slots__ = (
        "__weakref__",
        "_children",
        "_core",
        "_mpi",
        "_nodes",
        "_timeout_s",
        "name",
        "rank",
        "size",
        "world_ranks",
    )

    def __init__(
        self,
        core: _core.Communicator,
        *,
        timeout_s: float,
        mpi: MpiGroup | None = None,
        world_ranks: tuple[int, ...] | None = None,
    ) -> None:
        """Wrap a communicator of the core; users call `hpcomm.init` instead."""
        self._core = core
        self._mpi = mpi
        self._timeout_s = timeout_s
        self._children = 0
        self._nodes: tuple[int, ...] = tuple(core.nodes)
        self.rank: int = core.rank
        self.size: int = core.size
        self.name: str = core.name
        self.world_ranks = tuple(range(self.size)) if world_ranks is None else world_ranks
        _live.add(self)

    send = send
    recv = recv
    isend = isend
    irecv = irecv
    broadcast = broadcast
    allreduce = allreduce
    allgather = allgather
    allgatherv = allgatherv
    reduce_scatter = reduce_scatter
    barrier = barrier
    send_object = send_object
    recv_object = recv_object
    broadcast_object = broadcast_object
    allgather_object = allgather_object

    @property
    def node(self) -> int:
        """Index of this rank's node, counted in the order of the nodes' first ranks."""
        return self._nodes[self.rank]

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node index of every rank."""
        return self._nodes

    @property
    def num_nodes(self) -> int:
        """Number of nodes, that is of groups of ranks that share memory."""
        return max(self._nodes) + 1

    @property
    def local_rank(self) -> int:
        """Number of this rank among those of its node."""
        return self._nodes[: self.rank].count(self.node)

    @property
    def local_size(self) -> int:
        """Number of ranks on this rank's node."""
        return self._nodes.count(self.node)

    @property
    def timeout_s(self) -> float:
        """Seconds that an operation without a timeout of its own may take."""
        return self._timeout_s

    @timeout_s.setter
    def timeout_s(self, value: float) -> None:
        self._timeout_s = checks.timeout_s(value, "timeout_s", self._timeout_s)

    @property
    def is_broken(self) -> bool:
        """True after a timeout, a dead or aborted peer, or `close`."""
        return self._core.is_broken

    @property
    def counters(self) -> dict[str, int]:
        """Messages and bytes that this rank sent and received through this communicator."""
        return self._core.counters

    def split(
        self, color: int | None, key: int = 0, name: str | None = None
    ) -> Communicator | None:
        """Divide the group: ranks with equal ``color`` form a new communicator.

        Collective over this communicator.

        Args:
            color: which new group this rank joins, >= 0; None joins none.
            key: position in the new group; ranks with equal keys keep their order.
            name: for messages; None makes one from this communicator's name.

        Returns:
            The new communicator, or None where ``color`` is None.

        Raises:
            InvalidArgumentError: ``color`` or ``key`` is no such number.
            CommTimeoutError: a rank did not call split in time.
        """
        from hpcomm.bootstrap.children import split as split_group

        self._children += 1
        return split_group(self, color, key, name, number=self._children)

    def dup(self, name: str | None = None) -> Communicator:
        """Return a communicator of the same ranks whose traffic never meets that of this one.

        Collective over this communicator.

        Args:
            name: for messages; None makes one from this communicator's name.

        Returns:
            The new communicator.
        """
        copy = self.split(
            0, self.rank, name if name is not None else f"{self.name}.dup{self._children + 1}"
        )
        assert copy is not None
        return copy

    def grid(self, *, replicas: int, partitions: int) -> Grid:
        """Arrange the ranks as replicas of a pipeline of partitions.

        Collective over this communicator. Rank = replica * partitions + partition.

        Args:
            replicas: copies of the whole model, R >= 1.
            partitions: parts of one model, P >= 1; R * P must be the size of this communicator.

        Returns:
            A `Grid` with the communicators of this rank's pipeline and of its partition's replicas.

        Raises:
            InvalidArgumentError: R * P is not the size of this communicator.
        """
        return Grid.create(self, replicas=replicas, partitions=partitions)

    def abort(self, message: str, *, cause: BaseException | None = None) -> None:
        """Tell all other ranks that this one failed.

        Their waits raise `PeerAbortedError` with ``message``; where ``cause`` says that a rank died
        they raise `PeerDiedError`, because that is what happened first. Local and without a reply.
        This communicator is broken afterwards.

        Args:
            message: what happened, one line.
            cause: the exception that made this rank give up, perhaps raised by another
                communicator; None for a failure of its own.
        """
        self._core.abort(message, isinstance(cause, PeerDiedError))

    def close(self) -> None:
        """Release everything; a second call does nothing.

        All ranks should close, but none waits for the others: operations that are still pending
        after a second end with an error.
        """
        if self._core.close() and self._mpi is not None:
            self._mpi.free()
        _live.discard(self)

    def __enter__(self) -> Self:
        """Enter a block at whose end the communicator is closed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close, after telling the other ranks if the block was left by an exception."""
        del traceback
        if kind is not None and not self.is_broken and not _is_clean_exit(error):
            is_death = isinstance(error, PeerDiedError)  # which says so itself
            self.abort(str(error) if is_death else f"{kind.__name__}: {error}", cause=error)
        self.close()

    def __repr__(self) -> str:
        """Show name, rank and size."""
        state = " (broken)" if self.is_broken else ""
        return f"<hpcomm.Communicator {self.name!r}, rank {self.rank} of {self.size}{state}>"

    def __reduce__(self) -> Any:
        """Refuse to be pickled: a communicator belongs to one process."""
        raise TypeError(
            "a Communicator belongs to its process and cannot be pickled; call hpcomm.init() there"
        )


def _is_clean_exit(error: BaseException | None) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def live_communicators() -> list[Communicator]:
    """Return the communicators of this process that are not closed, in no particular order."""
    return list(_live)
