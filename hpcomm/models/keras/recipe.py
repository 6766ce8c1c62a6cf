"""Turn a neutral recipe into what ``Model.compile`` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from hpcomm.models.task import Recipe, Task


_WARM_UP_SHARE = 0.1


def make_optimizer(recipe: Recipe, total_steps: int | None = None) -> keras.optimizers.Optimizer:
    """Build the optimizer of a recipe.

    Args:
        recipe: names and numbers.
        total_steps: length of the training; None keeps the learning rate constant.

    Raises:
        InvalidArgumentError: the optimizer or the decay is not known.
    """
    common: dict[str, Any] = {
        "learning_rate": _learning_rate(recipe, total_steps),
        "clipnorm": recipe.clipnorm,
        "global_clipnorm": recipe.global_clipnorm,
        "use_ema": recipe.use_ema,
    }
    if recipe.optimizer == "sgd":
        return keras.optimizers.SGD(momentum=recipe.momentum, nesterov=recipe.nesterov, **common)
    if recipe.optimizer == "adam":
        return keras.optimizers.Adam(**common)
    if recipe.optimizer == "adamw":
        return keras.optimizers.AdamW(weight_decay=recipe.weight_decay, **common)
    if recipe.optimizer == "rmsprop":
        return keras.optimizers.RMSprop(momentum=recipe.momentum, **common)
    raise InvalidArgumentError(
        f"optimizer {recipe.optimizer!r} is not known; known are sgd, adam, adamw, rmsprop"
    )


def _learning_rate(recipe: Recipe, total_steps: int | None) -> Any:
    if recipe.decay not in ("cosine", "constant"):
        raise InvalidArgumentError(
            f"learning rate decay {recipe.decay!r} is not known; known are cosine, constant"
        )
    if recipe.decay == "constant" or total_steps is None:
        return recipe.learning_rate
    warm_up = int(_WARM_UP_SHARE * total_steps)
    return keras.optimizers.schedules.CosineDecay(
        _WARM_UP_SHARE * recipe.learning_rate,
        max(1, total_steps - warm_up),
        warmup_target=recipe.learning_rate,
        warmup_steps=warm_up,
    )


def compile_model(
    model: keras.Model, task: Task, recipe: Recipe, total_steps: int | None = None
) -> None:
    """Compile a model of the registry.

    Args:
        model: built for ``task``.
        task: its outputs decide about losses and metrics.
        recipe: optimizer and its numbers.
        total_steps: length of the training, None for a constant learning rate.
    """
    losses: dict[str, Any] = {}
    metrics: dict[str, list[Any]] = {}
    for output in task.outputs:
        if output.kind == "classes":
            losses[output.name] = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            metrics[output.name] = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        else:
            losses[output.name] = keras.losses.MeanSquaredError()
            metrics[output.name] = []
    optimizer = make_optimizer(recipe, total_steps)
    if len(task.outputs) == 1:
        (name,) = losses
        model.compile(optimizer, loss=losses[name], metrics=metrics[name])
        return
    weights = {output.name: output.loss_weight for output in task.outputs}
    model.compile(optimizer, loss=losses, loss_weights=weights, metrics=metrics)
