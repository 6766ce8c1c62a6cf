"""What a model of the registry takes, returns and is trained with; imports no framework."""

from __future__ import annotations

from dataclasses import dataclass

from hpcomm.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model, without the batch axis.

    Attributes:
        name: name of the input in the model and in a dictionary of arrays.
        shape: shape of one sample.
        dtype: "float32" for values, "int32" for indices.
        high: indices lie in [0, high); None for values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output of a model.

    Attributes:
        name: name of the output.
        kind: "classes" (logits of shape (size,), integer targets) or "values" (targets of shape
            (size,)).
        size: number of classes or of values.
        loss_weight: factor of this output's loss in the total.
    """

    name: str
    kind: str
    size: int
    loss_weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs and outputs of a model, in the order of its signature."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained unless the user says otherwise, in words for every framework.

    Attributes:
        optimizer: "sgd", "adam", "adamw" or "rmsprop".
        learning_rate: peak learning rate.
        decay: "cosine" (a tenth of the steps up, then down to 0) or "constant"; needs the number of
            steps to be known.
        batch_size: samples per step where the user does not say.
        epochs: passes over the data where the user does not say.
        momentum: of SGD; ignored by the others.
        nesterov: Nesterov momentum, of SGD.
        weight_decay: decoupled decay, of AdamW.
        clipnorm: bound of every gradient's norm, or None.
        global_clipnorm: bound of the norm of all gradients together, or None.
        use_ema: keep a moving average of the weights.
        sample_weighted: samples carry weights when data are generated for this model.
    """

    optimizer: str = "adam"
    learning_rate: float = 3e-3
    decay: str = "cosine"
    batch_size: int = 32
    epochs: int = 5
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    clipnorm: float | None = None
    global_clipnorm: float | None = None
    use_ema: bool = False
    sample_weighted: bool = False


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Choices of the caller that every builder understands.

    Attributes:
        image_size: height and width of images in pixels, or of features for models without images.
        num_classes: classes of classifying outputs.
        dropout: rate of dropout layers, None for the model's own.
        dtype: dtype policy ("float32", "float64", "mixed_bfloat16", …), None for the framework's
            current one.
    """

    image_size: int
    num_classes: int = 10
    dropout: float | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.image_size < 1:
            raise InvalidArgumentError(f"image size must be at least 1, got {self.image_size}")
        if self.num_classes < 2:
            raise InvalidArgumentError(
                f"a classifier needs at least 2 classes, got {self.num_classes}"
            )
        if self.dropout is not None and not 0.0 <= self.dropout < 1.0:
            raise InvalidArgumentError(f"dropout rate must lie in [0, 1), got {self.dropout}")


def image_classification(options: BuildOptions) -> Task:
    """Return the task of the common case: one RGB image in, logits of classes out."""
    size = options.image_size
    return Task(
        inputs=(InputSpec("image", (size, size, 3)),),
        outputs=(OutputSpec("classes", "classes", options.num_classes),),
    )
