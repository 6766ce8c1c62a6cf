"""The model and the batches that both sides of a verification train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcomm import datasets
from hpcomm.models import registry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hpcomm.verify.case import Case

_DATA_SEED_OFFSET = 1


@dataclass(slots=True)
class Problem:
    """A compiled model with its first weights, and one batch per step.

    Attributes:
        model: compiled Keras model, optimizer built.
        batches: per step inputs by name, targets by output name, sample weights or None.
        start: values of all variables of model and optimizer before training.
    """

    model: Any
    batches: list[tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], NDArray[Any] | None]]
    start: list[NDArray[Any]]

    def reset(self) -> None:
        """Set model and optimizer back to the start."""
        for variable, value in zip(_state(self.model), self.start, strict=True):
            variable.assign(value)

    def inputs_for_keras(self, inputs: dict[str, NDArray[Any]]) -> Any:
        """Return inputs as the model's call takes them."""
        return inputs if len(inputs) > 1 else next(iter(inputs.values()))

    def targets_for_keras(self, targets: dict[str, NDArray[Any]]) -> Any:
        """Return targets as the compiled loss takes them."""
        return targets if len(targets) > 1 else next(iter(targets.values()))


def make_problem(case: Case) -> Problem:
    """Build the model of a case and its data; equal on every rank.

    Dropout is left out: the reference cannot know the masks, which belong to the engine and have a
    test of their own. The learning rate is constant.

    Args:
        case: what to verify; the split does not matter.
    """
    import keras

    from hpcomm.models.keras.common import set_globals

    # An earlier case of this process may have had another dtype. Keras keeps its policy apart from
    # its float type, and both count: losses, optimizers and the engine ask for either.
    set_globals(case.dtype, case.seed)
    entry = registry.get(case.model)
    image_size = case.image_size if entry.image_size else None
    options = entry.options(image_size=image_size, dropout=0.0, dtype=case.dtype)
    model = entry.build(options)
    entry.compile(model, options)
    model.optimizer.build(model.trainable_variables)
    data = datasets.synthetic(
        entry.task(options),
        samples=case.batch_size * case.steps,
        seed=case.seed + _DATA_SEED_OFFSET,
        sample_weighted=entry.recipe.sample_weighted,
        dtype=case.dtype,
    )
    batches = []
    for step in range(case.steps):
        part = slice(step * case.batch_size, (step + 1) * case.batch_size)
        batches.append(
            (
                {name: array[part] for name, array in data.inputs.items()},
                {name: array[part] for name, array in data.targets.items()},
                None if data.sample_weight is None else data.sample_weight[part],
            )
        )
    start = [keras.ops.convert_to_numpy(variable) for variable in _state(model)]
    return Problem(model, batches, start)


def _state(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]
