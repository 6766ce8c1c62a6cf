"""New communicators out of an existing one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpcomm import _core, checks, config
from hpcomm.errors import InvalidArgumentError
from hpcomm.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcomm.communicator import Communicator

__all__ = ["split"]

_NO_COLOR = -1
_LENGTH = np.dtype("<u8")


def split(
    parent: Communicator, color: int | None, key: int, name: str | None, *, number: int
) -> Communicator | None:
    """See `Communicator.split`; ``number`` counts the parent's children."""
    from hpcomm.communicator import Communicator

    if color is not None and checks.whole(color, "split: color") < 0:
        raise InvalidArgumentError(
            f"split on rank {parent.rank} of {parent.name!r}: color must be >= 0, or None to join "
            f"no group, got {color}",
            rank=parent.rank,
        )
    if parent._mpi is not None:
        parent._mpi.check_thread()
    mine = (_NO_COLOR if color is None else int(color), checks.whole(key, "split: key"))
    table = parent.allgather(np.array(mine, np.int64)).tolist()
    # From here on all ranks are known to be in this call.
    mpi = parent._mpi.split(color, key) if parent._mpi is not None else None
    if color is None:
        return None
    order = sorted(
        (other_key, rank) for rank, (other, other_key) in enumerate(table) if other == color
    )
    members = [rank for _, rank in order]
    world_ranks = tuple(parent.world_ranks[rank] for rank in members)
    settings = config.load()
    rank = members.index(parent.rank)
    core = _core.Communicator.create(
        name=name if name is not None else f"{parent.name}.split{number}.{color}",
        rank=rank,
        size=len(members),
        timeout_s=parent.timeout_s,
        ranks_per_node=0,
        fake_node=_fake_node(settings.ranks_per_node, world_ranks[rank]),
        slot_bytes=settings.slot_bytes,
        ring_bytes=settings.ring_bytes,
        selection_override=settings.tune,
        mpi=None if mpi is None else mpi.binding(world_ranks),
        exchange=exchange_among(parent, members),
    )
    logger.debug("communicator %r: rank %d of world ranks %s", core.name, rank, world_ranks)
    return Communicator(core, timeout_s=parent.timeout_s, mpi=mpi, world_ranks=world_ranks)


def _fake_node(ranks_per_node: int, world_rank: int) -> int:
    """Return the pretended node of a rank, which stays the same in every communicator."""
    return world_rank // ranks_per_node if ranks_per_node else -1


def exchange_among(parent: Communicator, members: Sequence[int]) -> Callable[[bytes], list[bytes]]:
    """Return an allgather of byte strings over messages of ``parent`` between ``members`` alone."""
    leader, *others = members
    tag, timeout_s = _core.TAG_BOOTSTRAP, parent.timeout_s

    def send(data: bytes, peer: int) -> None:
        parent._core.send(np.array(len(data), _LENGTH), peer, tag, timeout_s)
        parent._core.send(np.frombuffer(data, np.uint8), peer, tag, timeout_s)

    def receive(peer: int) -> bytes:
        length = np.empty((), _LENGTH)
        parent._core.recv(length, peer, tag, timeout_s)
        data = np.empty(int(length), np.uint8)
        parent._core.recv(data, peer, tag, timeout_s)
        return data.tobytes()

    def exchange(mine: bytes) -> list[bytes]:
        if parent.rank != leader:
            send(mine, leader)
            return [receive(leader) for _ in members]
        parts = [mine, *(receive(peer) for peer in others)]
        for peer in others:
            for part in parts:
                send(part, peer)
        return parts

    return exchange
