"""Refuse more partitions than a model has layers before `hpcomm train` starts that many processes.

Only a built model tells how many layers it has, and each rank is a process with a framework of its
own. So where many partitions are asked for, one process builds the model first and counts. It is
another one than the launcher's, because a framework takes memory, graphics cards and MPI for
itself, which the ranks need.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from hpcomm import errors
from hpcomm.cli.train_options import TrainOptions
from hpcomm.models import registry

if TYPE_CHECKING:
    from hpcomm.layer_graph import LayerGraph

__all__ = ["check_partitions", "is_worth_counting"]

PARTITIONS_PER_CPU = 2
FEW_PARTITIONS = 8
"""As few are started at once where CPUs allow: ranks find out as soon as a count would."""


def is_worth_counting(options: TrainOptions, num_cpus: int) -> bool:
    """Tell whether partitions are so many that counting layers costs less than a vain start.

    Args:
        options: checked flags.
        num_cpus: CPUs that this process may use.
    """
    if options.partitions <= min(FEW_PARTITIONS, PARTITIONS_PER_CPU * num_cpus):
        return False
    own = registry.is_user_function(options.model)
    return own or options.partitions > registry.get(options.model).least_layers


def check_partitions(options: TrainOptions) -> None:
    """Build the model in a process of its own if that is worth it, and compare.

    A model whose function fails is left to the ranks, which show where.

    Args:
        options: checked flags.

    Raises:
        ModelError: more partitions than layers, or no such function, with the message that ranks
            would give.
    """
    if not is_worth_counting(options, len(os.sched_getaffinity(0))):
        return
    command = [sys.executable, "-m", "hpcomm.cli.train_layers", json.dumps(asdict(options))]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode == 0 and done.stdout:
        raise errors.ModelError(done.stdout.decode())


def count(options: TrainOptions) -> LayerGraph:
    """Build the model as a rank would, without memory for its weights, and return its layers."""
    from hpcomm.tensorflow.quiet import import_quietly

    import_quietly()
    import random

    from hpcomm.cli.train_job import make_builder
    from hpcomm.hyparflow.adapter import find_adapter
    from hpcomm.models.keras.common import set_globals

    set_globals(options.dtype, options.seed)
    adapter = find_adapter()
    return adapter.extract(adapter.open(make_builder(options), random.getstate()))


def main() -> None:
    """Write why the model cannot be had in so many partitions, if so, and nothing else."""
    from hpcomm.hyparflow.balance import check_num_stages

    options = TrainOptions(**json.loads(sys.argv[1]))
    answer = os.dup(1)
    # What the user's function prints does not belong to the answer.
    os.dup2(2, 1)
    try:
        graph = count(options)
        check_num_stages(len(graph.calls), options.partitions, frozenset(graph.forbidden_cuts()))
    except errors.ModelError as error:
        os.write(answer, str(error).encode())


if __name__ == "__main__":
    main()
