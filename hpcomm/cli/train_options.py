"""What `hpcomm train` was asked to do, and the checks that need no framework."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcomm.cli.outputs import check_output, check_picture
from hpcomm.errors import InvalidArgumentError
from hpcomm.models import registry

if TYPE_CHECKING:
    from hpcomm.models.task import Recipe

__all__ = ["TrainOptions", "check"]

OPTIMIZERS = ("sgd", "adam", "adamw", "rmsprop")


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """The flags of `hpcomm train`, layout filled in; empty text and None mean the default."""

    model: str
    framework: str
    dataset: str
    samples: int
    strategy: str
    partitions: int
    replicas: int
    micro_batches: int
    schedule: str
    lpp: list[int]
    batch_size: int | None
    epochs: int | None
    optimizer: str
    learning_rate: float | None
    decay: str
    image_size: int | None
    dtype: str
    seed: int
    checkpoint: str
    resume: str
    save: str
    min_accuracy: float | None
    json_file: str
    plot: str
    trace: str
    verbose: bool

    @property
    def world_size(self) -> int:
        """Ranks that are needed."""
        return self.partitions * self.replicas

    @property
    def title(self) -> str:
        """One line for people."""
        split = f"{self.partitions} partitions × {self.replicas} replicas"
        return f"{self.model} on {self.dataset}, strategy {self.strategy}, {split}"

    def with_recipe(self, recipe: Recipe) -> tuple[TrainOptions, Recipe]:
        """Fill in from a model's recipe what the user left open, and the recipe from the rest."""
        changes = {
            "optimizer": self.optimizer,
            "learning_rate": self.learning_rate,
            "decay": self.decay,
        }
        mixed = replace(recipe, **{k: v for k, v in changes.items() if v not in ("", None)})  # type: ignore[arg-type]
        options = replace(
            self,
            batch_size=self.batch_size or recipe.batch_size,
            epochs=self.epochs or recipe.epochs,
        )
        return options, mixed


def check(options: TrainOptions) -> None:
    """Refuse at once what can be known to fail without a framework.

    Raises:
        InvalidArgumentError: an unknown model, data set, optimizer or file ending, a missing file,
            layers per partition that are not as many as partitions, or a file that cannot be
            written.
    """
    own = registry.is_user_function(options.model)
    if not own:
        registry.get(options.model).options(image_size=options.image_size)
    if options.optimizer and options.optimizer not in OPTIMIZERS:
        _refuse("--optimizer", options.optimizer, f"known are {', '.join(OPTIMIZERS)}")
    for flag, value in (("--optimizer", options.optimizer), ("--decay", options.decay)):
        if value and own:
            _refuse(flag, value, f"{options.model} compiles its model itself")
    if options.lpp and len(options.lpp) != options.partitions:
        shown = ",".join(map(str, options.lpp))
        _refuse(
            "--lpp", shown, f"{len(options.lpp)} numbers given for {options.partitions} partitions"
        )
    if options.dataset.endswith(".npz"):
        if not Path(options.dataset).is_file():
            _refuse("--dataset", options.dataset, "there is no such file")
    elif not re.fullmatch(r"digits|synthetic(:\d+(x\d+)*)?", options.dataset):
        _refuse(
            "--dataset",
            options.dataset,
            "use digits, synthetic, synthetic:HxWxC or the path of a .npz file",
        )
    if options.checkpoint and options.resume and options.checkpoint != options.resume:
        _refuse("--resume", options.resume, "--checkpoint names another folder; pass one of them")
    if options.resume and not Path(options.resume).is_dir():
        _refuse("--resume", options.resume, "there is no such folder")
    if options.save and not options.save.endswith(".keras"):
        _refuse("--save", options.save, "the name must end in .keras")
    check_picture("--plot", options.plot)
    for flag, name in (
        ("--save", options.save),
        ("--trace", options.trace),
        ("--json", "" if options.json_file == "-" else options.json_file),
    ):
        check_output(flag, name)


def _refuse(flag: str, value: str, why: str) -> None:
    raise InvalidArgumentError(f"{flag} {value}: {why}")
