"""Refuse more partitions than a model has layers before that many ranks are started.

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
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hpcomm import errors
from hpcomm.models import registry

if TYPE_CHECKING:
    from hpcomm.layer_graph import LayerGraph

__all__ = ["Question", "check_partitions", "is_worth_counting"]

PARTITIONS_PER_CPU = 2
FEW_PARTITIONS = 8
"""As few are started at once where CPUs allow: ranks find out as soon as a count would."""


@dataclass(frozen=True, slots=True)
class Question:
    """Can this model be had in so many partitions?

    Attributes:
        model: name in the registry, or the user's function.
        partitions: that are asked for.
        image_size: height and width of images; None for the model's own.
        dtype: policy of the layers.
        seed: of the weights.
        dropout: of a model of the registry; None for its own.
        label: what stands before the answer no.
    """

    model: str
    partitions: int
    image_size: int | None = None
    dtype: str = "float32"
    seed: int = 0
    dropout: float | None = None
    label: str = ""


def is_worth_counting(question: Question, num_cpus: int) -> bool:
    """Tell whether partitions are so many that counting layers costs less than a vain start.

    Args:
        question: about a model that is known.
        num_cpus: CPUs that this process may use.
    """
    if question.partitions <= min(FEW_PARTITIONS, PARTITIONS_PER_CPU * num_cpus):
        return False
    own = registry.is_user_function(question.model)
    return own or question.partitions > registry.get(question.model).least_layers


def check_partitions(*questions: Question) -> None:
    """Build the models in a process of its own where that is worth it, and compare.

    A model whose function fails is left to the ranks, which show where.

    Args:
        questions: about models that are known.

    Raises:
        ModelError: more partitions than layers, or no such function, with the message that ranks
            would give.
    """
    num_cpus = len(os.sched_getaffinity(0))
    asked = [asdict(one) for one in questions if is_worth_counting(one, num_cpus)]
    if not asked:
        return
    done = subprocess.run(
        [sys.executable, "-m", "hpcomm.cli.layers", json.dumps(asked)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode == 0 and done.stdout:
        raise errors.ModelError(done.stdout.decode())


def count(question: Question) -> LayerGraph:
    """Build the model as a rank would, without memory for its weights, and return its layers."""
    from hpcomm.tensorflow.quiet import import_quietly

    import_quietly()
    import random

    from hpcomm.cli.train_job import make_builder
    from hpcomm.hyparflow.adapter import find_adapter
    from hpcomm.models.keras.common import set_globals

    set_globals(question.dtype, question.seed)
    adapter = find_adapter()
    build = make_builder(question.model, question.image_size, question.dropout)
    return adapter.extract(adapter.open(build, random.getstate()))


def main() -> None:
    """Write why the first model that cannot be had in so many partitions cannot; else nothing."""
    from hpcomm.cli.outputs import take_standard_output
    from hpcomm.hyparflow.balance import check_num_stages

    answer = take_standard_output()  # what the user's function prints does not belong to it
    for question in [Question(**fields) for fields in json.loads(sys.argv[1])]:
        try:
            graph = count(question)
            cuts = frozenset(graph.forbidden_cuts())
            check_num_stages(len(graph.calls), question.partitions, cuts)
        except errors.ModelError as error:
            answer.write(f"{question.label}{error}")
            break
    answer.close()


if __name__ == "__main__":
    main()
