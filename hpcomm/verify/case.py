"""What one verification compares, and which comparisons the flags of ``hpcomm verify`` ask for."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hpcomm.choices import STRATEGIES
from hpcomm.errors import InvalidArgumentError
from hpcomm.models import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MODELS = ("resnet20-v1", "resnet29-v2", "vgg16", "two-towers", "tied", "regularized")
"""Models that are verified unless the user names others."""

GRIDS = ((2, 1), (3, 1), (4, 1), (1, 2), (2, 2))
"""(partitions, replicas) that are verified unless the user asks for others."""

MICRO_BATCHES = (1, 3, 4)
TOLERANCES = {"float64": 1e-9, "float32": 1e-3}
"""Largest relative difference that passes, by dtype; rounding alone stays far below."""

QUANTITIES = ("loss", "outputs", "gradients", "weights_after_steps")

SETTINGS = ("dtype", "image_size", "batch_size", "steps", "seed")
"""Fields of a case that are shown to a reader only where cases differ in them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison of a split training with the same training in one process.

    Attributes:
        model: name in the registry.
        framework: "keras".
        partitions: stages.
        replicas: copies of the model.
        micro_batches: pieces of a replica's share of a batch.
        schedule: order of forward and backward passes.
        dtype: of weights and arithmetic.
        batch_size: samples of a global batch.
        steps: training steps.
        image_size: height and width of images, None for the model's own, or where it takes none.
        seed: of weights and data.
    """

    model: str
    partitions: int
    replicas: int
    micro_batches: int
    framework: str = "keras"
    schedule: str = "gpipe"
    dtype: str = "float64"
    batch_size: int = 10
    steps: int = 2
    image_size: int | None = 8
    seed: int = 0

    @property
    def world_size(self) -> int:
        """Ranks that the case needs."""
        return self.partitions * self.replicas

    @property
    def strategy(self) -> str:
        """Return "model", "data" or "hybrid"."""
        if self.replicas == 1:
            return "model"
        return "data" if self.partitions == 1 else "hybrid"

    @property
    def key(self) -> str:
        """Name of the case in a state file; equal for equal cases only."""
        return "/".join(f"{name}={value}" for name, value in asdict(self).items())

    @property
    def reference_key(self) -> str:
        """Name of the reference; cases that differ in the split only share one."""
        values = asdict(self)
        for name in ("partitions", "schedule"):
            del values[name]
        return "/".join(f"{name}={value}" for name, value in values.items())

    @property
    def title(self) -> str:
        """One line for a reader."""
        return (
            f"{self.model}, {self.strategy}, {self.partitions} partitions × {self.replicas} "
            f"replicas, {self.micro_batches} micro-batches, {self.schedule}"
        )

    @property
    def tolerance(self) -> float:
        """Largest relative difference that passes unless the user sets another."""
        return TOLERANCES[self.dtype]

    def settings(self, names: Iterable[str]) -> str:
        """Return some of ``SETTINGS`` with their values for a reader, behind a title.

        Args:
            names: which, usually what `varying` found.
        """
        values = {name: getattr(self, name) for name in names}
        return "".join(
            f", {name.replace('_', ' ')} {value}"
            for name, value in values.items()
            if value is not None
        )


def make_grids(
    strategies: Sequence[str], partitions: Sequence[int], replicas: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the (partitions, replicas) that three lists of flags ask for.

    A strategy takes from the lists what it knows: "model" has one replica, "data" one partition,
    "hybrid" every combination with more than one of both.

    Args:
        strategies: none, or some of ``STRATEGIES``; none means all.
        partitions: numbers of partitions; none means 2, 3, 4 for "model" and 2 for "hybrid".
        replicas: numbers of replicas; none means 2.

    Raises:
        InvalidArgumentError: an unknown strategy, a number below 1, or lists of which nothing is
            left.
    """
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise InvalidArgumentError(
                f"--strategy {strategy}: not known; known are {', '.join(STRATEGIES)}"
            )
    for name, numbers in (("partitions", partitions), ("replicas", replicas)):
        if any(number < 1 for number in numbers):
            raise InvalidArgumentError(f"--{name} {list(numbers)}: must be at least 1")
    if not partitions and not replicas:
        chosen = [grid for grid in GRIDS if not strategies or _strategy(grid) in strategies]
    else:
        wanted = itertools.product(partitions or (1, 2), replicas or (1, 2))
        known = set(strategies) or set(STRATEGIES)
        chosen = []
        for number, copies in wanted:
            for strategy, grid in (
                ("model", (number, 1)),
                ("data", (1, copies)),
                ("hybrid", (number, copies)),
            ):
                named = strategy in strategies
                fits = _strategy(grid) == strategy and (named or grid == (number, copies))
                if strategy in known and fits and grid not in chosen:
                    chosen.append(grid)
    if not chosen:
        raise InvalidArgumentError(
            f"--strategy {list(strategies)} --partitions {list(partitions)} --replicas "
            f"{list(replicas)}: nothing to verify; model needs more than one partition, data more "
            "than one replica, hybrid both"
        )
    return chosen


def make_cases(
    models: Sequence[str],
    grids: Sequence[tuple[int, int]],
    micro_batches: Sequence[int],
    schedules: Sequence[str],
    *,
    framework: str = "keras",
    dtypes: Sequence[str] = ("float64",),
    image_sizes: Sequence[int] = (8,),
    batch_sizes: Sequence[int] = (10,),
    steps: Sequence[int] = (2,),
    seeds: Sequence[int] = (0,),
) -> list[Case]:
    """Return all different combinations, ordered so that neighbours share a compiled split.

    Args:
        models: names.
        grids: (partitions, replicas).
        micro_batches: numbers.
        schedules: names.
        framework: whose models.
        dtypes: names out of ``TOLERANCES``.
        image_sizes: heights and widths of images; a model that takes none has one case for all.
        batch_sizes: samples of a global batch.
        steps: numbers of training steps.
        seeds: of weights and data.

    Raises:
        InvalidArgumentError: an unknown model, or a batch has fewer samples than a case has
            micro-batches.
    """
    for model in models:
        if registry.is_user_function(model):
            raise InvalidArgumentError(
                f"--model {model}: only models of the registry can be verified, because their "
                "batches and dropout are known; --list shows them"
            )
    takes_images = {
        model: registry.get(model, takes_functions=False).image_size > 0 for model in models
    }
    combinations = itertools.product(
        models, dtypes, image_sizes, batch_sizes, steps, seeds, grids, schedules, micro_batches
    )
    cases = [
        Case(
            model=model,
            partitions=partitions,
            replicas=replicas,
            micro_batches=pieces,
            framework=framework,
            schedule=schedule,
            dtype=dtype,
            batch_size=samples,
            steps=number,
            image_size=pixels if takes_images[model] else None,
            seed=seed,
        )
        for (
            model, dtype, pixels, samples, number, seed, (partitions, replicas), schedule, pieces
        ) in combinations
    ]  # fmt: skip
    cases = list(dict.fromkeys(cases))
    for case in cases:
        share = case.batch_size // case.replicas
        if not 1 <= case.micro_batches <= share:
            raise InvalidArgumentError(
                f"verify: {case.title}: a replica's share of a batch of {case.batch_size} has "
                f"{share} samples, which cannot be cut into {case.micro_batches} micro-batches; "
                "give a larger --batch-size"
            )
    return cases


def varying(cases: Iterable[Case]) -> tuple[str, ...]:
    """Return those of ``SETTINGS`` in which cases differ.

    That a model takes no image is no difference in the size of images.
    """
    cases = list(cases)
    values = {name: {getattr(case, name) for case in cases} - {None} for name in SETTINGS}
    return tuple(name for name in SETTINGS if len(values[name]) > 1)


def pairwise(cases: Sequence[Case]) -> list[Case]:
    """Choose cases so that every pair of settings of two different flags occurs in at least one.

    Settings are model, (partitions, replicas), micro-batches, schedule, and those of ``SETTINGS``
    in which the cases differ. Greedy: the case with the most pairs that are not covered yet is
    taken next; of equals the one whose settings were taken least, so that no setting serves as
    filler everywhere.

    Args:
        cases: to choose from, usually all combinations.

    Returns:
        The chosen ones in their old order.
    """
    more = varying(cases)
    settings = [
        tuple(
            enumerate(
                (
                    c.model,
                    (c.partitions, c.replicas),
                    c.micro_batches,
                    c.schedule,
                    *(getattr(c, name) for name in more),
                )
            )
        )
        for c in cases
    ]
    pairs = [set(itertools.combinations(setting, 2)) for setting in settings]
    missing = set(itertools.chain.from_iterable(pairs))
    taken: Counter[tuple[int, Any]] = Counter()
    chosen: set[int] = set()

    def worth(index: int) -> tuple[int, int, int]:
        return len(pairs[index] & missing), -sum(taken[one] for one in settings[index]), -index

    while missing:
        best = max(range(len(cases)), key=worth)
        chosen.add(best)
        missing -= pairs[best]
        taken.update(settings[best])
    return [case for index, case in enumerate(cases) if index in chosen]


def by_split(cases: Iterable[Case]) -> list[list[Case]]:
    """Group cases that differ in their number of micro-batches only: they share compiled stages."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        values = asdict(case)
        del values["micro_batches"]
        groups.setdefault(tuple(values.values()), []).append(case)
    return list(groups.values())


def _strategy(grid: tuple[int, int]) -> str:
    partitions, replicas = grid
    if partitions > 1 and replicas > 1:
        return "hybrid"
    return "model" if replicas == 1 and partitions > 1 else "data" if replicas > 1 else "single"
