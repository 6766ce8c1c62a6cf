"""Dry run of a schedule: do the ranks wait for each other in a circle, and how long is a step?

The medium is assumed to have no buffers (rendezvous): a message moves only when both ends have
posted it. Sends and receives are posted in the order the trainer posts them; waiting for a receive
blocks, sends are waited for at the end. Checked before anything runs, at a cost of milliseconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcomm.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.hyparflow.schedule import Action


@dataclass(frozen=True, slots=True)
class Step:
    """What one stage does around one computation.

    Attributes:
        action: the computation.
        receives: (peer, channel) of the messages it must have before.
        sends: (peer, channel) of the messages it posts after.
        seconds: duration of the computation.
    """

    action: Action
    receives: tuple[tuple[int, str], ...] = ()
    sends: tuple[tuple[int, str], ...] = ()
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """Outcome of a dry run.

    Attributes:
        makespan_s: time until the last stage is done.
        busy_s: computing time of each stage.
    """

    makespan_s: float
    busy_s: tuple[float, ...]

    @property
    def idle_fraction(self) -> float:
        """Idle share of all stages' time."""
        total = self.makespan_s * len(self.busy_s)
        return 0.0 if total == 0 else 1.0 - sum(self.busy_s) / total


def expand(
    stage: int,
    actions: Sequence[Action],
    forward_edges: Sequence[tuple[int, int, str]],
    backward_edges: Sequence[tuple[int, int, str]],
    seconds: tuple[float, float] = (1.0, 1.0),
) -> list[Step]:
    """Add to every action of a stage the messages it needs and makes.

    Args:
        stage: whose actions these are.
        actions: from ``make_schedule``.
        forward_edges: (source stage, target stage, tensor name) of the boundary tensors.
        backward_edges: the same for those that have a partial error; the error travels from target
            to source.
        seconds: of one forward and of one backward.
    """
    steps = []
    for action in actions:
        if action.kind == "forward":
            arriving = [(s, f"activation {name}") for s, t, name in forward_edges if t == stage]
            leaving = [(t, f"activation {name}") for s, t, name in forward_edges if s == stage]
        else:
            arriving = [(t, f"error {name}") for s, t, name in backward_edges if s == stage]
            leaving = [(s, f"error {name}") for s, t, name in backward_edges if t == stage]
        duration = seconds[0] if action.kind == "forward" else seconds[1]
        steps.append(Step(action, tuple(arriving), tuple(leaving), duration))
    return steps


def simulate(programs: Sequence[Sequence[Step]]) -> Simulation:
    """Run all stages' programs against each other.

    Args:
        programs: one list of steps per stage.

    Returns:
        Times; transfers are free.

    Raises:
        InternalError: a circle of waiting ranks, or messages that do not match; says who waits for
            what.
    """
    clock = [0.0] * len(programs)
    busy = [0.0] * len(programs)
    position = [0] * len(programs)
    posted: dict[tuple[int, int, str], deque[tuple[int, float]]] = {}
    progress = True
    while progress:
        progress = False
        for stage, program in enumerate(programs):
            while position[stage] < len(program):
                step = program[position[stage]]
                if not all(posted.get((peer, stage, channel)) for peer, channel in step.receives):
                    break
                for peer, channel in step.receives:
                    micro_batch, ready_s = posted[peer, stage, channel].popleft()
                    if micro_batch != step.action.micro_batch:
                        raise InternalError(
                            f"schedule: stage {stage} expects {channel} of micro-batch "
                            f"{step.action.micro_batch}, but stage {peer} sends that of "
                            f"{micro_batch}"
                        )
                    clock[stage] = max(clock[stage], ready_s)
                clock[stage] += step.seconds
                busy[stage] += step.seconds
                for peer, channel in step.sends:
                    queue = posted.setdefault((stage, peer, channel), deque())
                    queue.append((step.action.micro_batch, clock[stage]))
                position[stage] += 1
                progress = True
    _check_finished(programs, position, posted)
    return Simulation(max(clock, default=0.0), tuple(busy))


def _check_finished(
    programs: Sequence[Sequence[Step]],
    position: Sequence[int],
    posted: dict[tuple[int, int, str], deque[tuple[int, float]]],
) -> None:
    stuck = [
        f"stage {stage} waits before {program[at].action.kind} "
        f"{program[at].action.micro_batch} for "
        + ", ".join(
            f"{channel} from stage {peer}"
            for peer, channel in program[at].receives
            if not posted.get((peer, stage, channel))
        )
        for stage, (program, at) in enumerate(zip(programs, position, strict=True))
        if at < len(program)
    ]
    if stuck:
        raise InternalError("schedule: the ranks wait for each other: " + "; ".join(stuck))
    left = [
        f"{channel} from stage {source} to {target}"
        for (source, target, channel), queue in posted.items()
        if queue
    ]
    if left:
        raise InternalError("schedule: messages that nobody receives: " + ", ".join(left))
