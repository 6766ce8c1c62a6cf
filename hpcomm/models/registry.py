"""Models by name.

A name stands for one network in every framework. Families share a builder: ``resnet56-v1`` and
``resnet110-v1`` differ in a number only, and any depth that the family allows can be named.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpcomm.errors import InvalidArgumentError, ModelError
from hpcomm.models.resnet import blocks_v1, blocks_v2
from hpcomm.models.task import BuildOptions, Recipe, Task, image_classification

if TYPE_CHECKING:
    from collections.abc import Callable

_RESNET = re.compile(r"resnet(\d+)-v([12])")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model or family of the registry.

    Attributes:
        name: name on the command line.
        summary: one line for a reader.
        image_size: default height and width in pixels; 0 where the model takes no image.
        module: module under ``hpcomm.models.keras`` that builds it.
        function: builder in that module, called with ``arguments`` and the ``BuildOptions``.
        arguments: what the builder takes before the options (a depth).
        recipe: how it is compiled by default.
        own_task: whether the module has a ``task`` function; else image in, classes out.
        classes: default number of classes.
        least_layers: layers that it has in any case, so that nobody need build it to know.
    """

    name: str
    summary: str
    image_size: int
    module: str
    function: str = "build"
    arguments: tuple[int, ...] = ()
    recipe: Recipe = field(default_factory=Recipe)
    own_task: bool = False
    classes: int = 10
    least_layers: int = 1

    def options(
        self,
        *,
        image_size: int | None = None,
        num_classes: int | None = None,
        dropout: float | None = None,
        dtype: str | None = None,
    ) -> BuildOptions:
        """Return build options with this model's defaults where None is given."""
        if image_size is not None and not self.image_size:
            raise InvalidArgumentError(f"{self.name} takes no image; leave --image-size out")
        return BuildOptions(
            image_size=image_size or self.image_size or 1,
            num_classes=num_classes or self.classes,
            dropout=dropout,
            dtype=dtype,
        )

    def task(self, options: BuildOptions) -> Task:
        """Return inputs and outputs of the model built with ``options``."""
        if not self.own_task:
            return image_classification(options)
        task: Task = importlib.import_module(f"hpcomm.models.keras.{self.module}").task(options)
        return task

    def build(self, options: BuildOptions) -> Any:
        """Build the uncompiled Keras model; imports Keras."""
        module = importlib.import_module(f"hpcomm.models.keras.{self.module}")
        return getattr(module, self.function)(*self.arguments, options)

    def compile(
        self,
        model: Any,
        options: BuildOptions,
        recipe: Recipe | None = None,
        total_steps: int | None = None,
    ) -> None:
        """Compile a model that ``build`` made.

        Args:
            model: to compile.
            options: as given to ``build``.
            recipe: None takes this model's own.
            total_steps: length of the training, which a decaying learning rate needs; None keeps it
                constant.
        """
        from hpcomm.models.keras.recipe import compile_model

        compile_model(model, self.task(options), recipe or self.recipe, total_steps)


def _resnet(depth: int, version: int) -> ModelEntry:
    kind = "basic blocks" if version == 1 else "pre-activated bottlenecks"
    return ModelEntry(
        f"resnet{depth}-v{version}",
        f"ResNet version {version}, {depth} layers ({kind}), images 32×32×3",
        image_size=32,
        module="resnet",
        function=f"build_v{version}",
        arguments=(depth,),
        least_layers=depth,
    )


_ENTRIES = {
    entry.name: entry
    for entry in (
        ModelEntry(
            "mlp",
            "multilayer perceptron with four hidden layers, images 32×32×3",
            image_size=32,
            module="mlp",
            recipe=Recipe(learning_rate=1e-3),
        ),
        _resnet(20, 1),
        _resnet(56, 1),
        _resnet(110, 1),
        _resnet(29, 2),
        _resnet(110, 2),
        _resnet(1001, 2),
        _resnet(4997, 2),
        ModelEntry(
            "vgg16",
            "VGG-16 for small images, 32×32×3",
            image_size=32,
            module="vgg",
            recipe=Recipe(learning_rate=5e-4),
            least_layers=16,
        ),
        ModelEntry(
            "two-towers",
            "verification: image 16×16×3 and 12 tokens in, classes and values out, long skips",
            image_size=16,
            module="two_towers",
            recipe=Recipe(optimizer="sgd", learning_rate=0.05),
            own_task=True,
        ),
        ModelEntry(
            "tied",
            "verification: 8 tokens in, one token out, weights used in several places",
            image_size=0,
            module="tied",
            recipe=Recipe(optimizer="sgd", learning_rate=0.05),
            own_task=True,
            classes=32,
        ),
        ModelEntry(
            "regularized",
            "verification: penalties, sample weights, clipping, frozen layer, images 16×16×3",
            image_size=16,
            module="regularized",
            recipe=Recipe(
                optimizer="adamw",
                learning_rate=1e-3,
                weight_decay=1e-2,
                global_clipnorm=0.1,
                use_ema=True,
                sample_weighted=True,
            ),
        ),
    )
}


def names() -> list[str]:
    """Return the names that are listed; ResNets of other depths can be named too."""
    return list(_ENTRIES)


def get(name: str, *, takes_functions: bool = True) -> ModelEntry:
    """Look a model up by name.

    Args:
        name: a listed name, or ``resnetD-v1`` (D = 6n+2), ``resnetD-v2`` (D = 9n+2).
        takes_functions: who asks takes the user's functions too, which the message then says.

    Raises:
        InvalidArgumentError: no such model, or a depth that the family does not have.
    """
    if name in _ENTRIES:
        return _ENTRIES[name]
    match = _RESNET.fullmatch(name)
    if match is None:
        known = f"{', '.join(_ENTRIES)}, other depths of resnetD-v1 and resnetD-v2"
        if takes_functions:
            known += ", and package.module:function for your own"
        raise InvalidArgumentError(f"model {name!r} is not known; known are {known}")
    depth, version = int(match[1]), int(match[2])
    (blocks_v1 if version == 1 else blocks_v2)(depth)
    return _resnet(depth, version)


def is_user_function(name: str) -> bool:
    """Tell whether ``name`` has the form ``package.module:function``."""
    return ":" in name


def load_user_function(name: str) -> Callable[..., Any]:
    """Import the user's function that builds and compiles a Keras model.

    Args:
        name: ``package.module:function``; the module is looked up on ``sys.path`` (the working
            directory included when the command line starts it).

    Raises:
        ModelError: the module or the function is not there, or is not callable.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ModelError(
            f"--model {name}: module {module_name!r} cannot be imported: {error}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ModelError(
            f"--model {name}: module {module_name!r} has no function {function_name!r}"
        )
    return function  # type: ignore[no-any-return]


def call_user_function(function: Callable[..., Any], image_size: int | None) -> Any:
    """Call the user's builder, with ``image_size`` if it takes that and the caller gave one.

    Raises:
        ModelError: an image size was given, but the function does not take one.
    """
    if image_size is None:
        return function()
    if "image_size" not in inspect.signature(function).parameters:
        raise ModelError(
            f"--image-size {image_size}: {function.__name__} takes no argument image_size; "
            "leave the flag out"
        )
    return function(image_size=image_size)
