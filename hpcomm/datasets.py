"""Data for the command line: real digits, generated samples of any shape, or the user's own arrays.

Every loader returns a ``Dataset`` whose arrays are dictionaries by input and output name, ready for
a model of the registry or for the user's own. Everything that is random comes from one seed, so
that all ranks load the same data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hpcomm.models.task import InputSpec, OutputSpec, Task

_DIGITS_VALIDATION_SHARE = 0.2
_SYNTHETIC_SHAPE = re.compile(r"synthetic(?::(\d+(?:x\d+)*))?")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Samples for training and validation.

    Attributes:
        name: as on the command line.
        inputs: arrays by input name, each (samples, *shape).
        targets: arrays by output name, each (samples, …).
        sample_weight: (samples,) or None.
        validation: inputs and targets held back, or None.
    """

    name: str
    inputs: dict[str, NDArray[Any]]
    targets: dict[str, NDArray[Any]]
    sample_weight: NDArray[Any] | None = None
    validation: tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]] | None = None

    @property
    def num_samples(self) -> int:
        """Number of training samples."""
        return len(next(iter(self.inputs.values())))


def load(
    name: str, task: Task, *, samples: int = 256, seed: int = 0, sample_weighted: bool = False
) -> Dataset:
    """Load a data set that fits a model.

    Args:
        name: ``digits``, ``synthetic``, ``synthetic:HxWxC`` or a path that ends in ``.npz``.
        task: inputs and outputs of the model.
        samples: how many samples ``synthetic`` generates for training (a quarter more for
            validation).
        seed: of generation and of the split.
        sample_weighted: generate weights for the samples (``synthetic`` only).

    Raises:
        InvalidArgumentError: unknown name, missing file or package, or data that do not fit the
            model.
    """
    if name == "digits":
        return digits(task, seed=seed)
    if name.endswith(".npz"):
        return from_file(name, task, seed=seed)
    match = _SYNTHETIC_SHAPE.fullmatch(name)
    if match is None:
        raise InvalidArgumentError(
            f"--dataset {name}: not known; use digits, synthetic, synthetic:HxWxC "
            "(for example synthetic:32x32x3) or the path of a .npz file"
        )
    if match[1]:
        shape = tuple(int(extent) for extent in match[1].split("x"))
        _require(
            len(task.inputs) == 1 and task.inputs[0].shape == shape,
            f"--dataset {name}: the model takes {_describe_inputs(task)}; "
            "give that shape, or change the model's with --image-size",
        )
    return synthetic(task, samples=samples, seed=seed, sample_weighted=sample_weighted)


def digits(task: Task, *, seed: int = 0) -> Dataset:
    """Load the 1797 handwritten digits that scikit-learn ships, enlarged to the model's image size.

    Pixels are scaled to [-1, 1], enlarged by linear interpolation and repeated over the colour
    channels. A fifth of the samples, drawn with ``seed`` and spread evenly over the classes, is
    held back for validation.

    Args:
        task: of a model with one image input (height, width, channels) and one classifying output
            of 10 classes.
        seed: of the split.

    Raises:
        InvalidArgumentError: the model does not fit, or scikit-learn is not installed.
    """
    fits = len(task.inputs) == 1 and len(task.inputs[0].shape) == 3 and len(task.outputs) == 1
    _require(
        fits and task.outputs[0].kind == "classes" and task.outputs[0].size >= 10,
        f"--dataset digits: needs a model with one image input and one output of 10 "
        f"classes; this model takes {_describe_inputs(task)} "
        f"and makes {_describe_outputs(task)}; use --dataset synthetic",
    )
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise InvalidArgumentError(
            "--dataset digits: the digits come with scikit-learn, which is not installed; "
            "install it with: pip install 'hpcomm[data]'"
        ) from error
    images, labels = load_digits(return_X_y=True)
    height, width, channels = task.inputs[0].shape
    pixels = images.reshape(-1, 8, 8).astype(np.float32) / 8.0 - 1.0
    pixels = _enlarge(_enlarge(pixels, height, axis=1), width, axis=2)
    x = np.repeat(pixels[..., np.newaxis], channels, axis=3)
    x_train, x_held, y_train, y_held = train_test_split(
        x,
        labels.astype(np.int64),
        test_size=_DIGITS_VALIDATION_SHARE,
        random_state=seed,
        stratify=labels,
    )
    source, sink = task.inputs[0].name, task.outputs[0].name
    return Dataset(
        "digits",
        {source: x_train},
        {sink: y_train},
        validation=({source: x_held}, {sink: y_held}),
    )


def synthetic(
    task: Task,
    *,
    samples: int,
    seed: int = 0,
    sample_weighted: bool = False,
    dtype: str = "float32",
) -> Dataset:
    """Generate samples for a model: normal values and uniform indices.

    Targets are a function of the inputs, so that they can be learnt.

    Args:
        task: inputs and outputs of the model.
        samples: for training; a quarter as many are generated for validation.
        seed: of the generator.
        sample_weighted: generate weights in [0.5, 1.5).
        dtype: of floating-point inputs and targets.

    Raises:
        InvalidArgumentError: ``samples`` is less than 1.
    """
    _require(samples >= 1, f"--samples {samples}: at least 1 sample is needed")
    generator = np.random.default_rng(seed)
    total = samples + max(1, samples // 4)
    inputs = {spec.name: _generate_input(generator, spec, total, dtype) for spec in task.inputs}
    first = task.inputs[0]
    flat = inputs[first.name].reshape(total, -1).astype(np.float64)
    code = (flat - flat.mean()) / (flat.std() + 1e-12)
    targets = {spec.name: _generate_target(generator, spec, code, dtype) for spec in task.outputs}
    weights = generator.uniform(0.5, 1.5, samples).astype(dtype) if sample_weighted else None
    return Dataset(
        "synthetic",
        {name: array[:samples] for name, array in inputs.items()},
        {name: array[:samples] for name, array in targets.items()},
        weights,
        (
            {name: array[samples:] for name, array in inputs.items()},
            {name: array[samples:] for name, array in targets.items()},
        ),
    )


def from_file(path: str | Path, task: Task, *, seed: int = 0) -> Dataset:
    """Load the user's arrays from a ``.npz`` file.

    Recognized names: every input and output name of the model (or ``x`` and ``y`` where there is
    one input and one output), the same with suffix ``_val`` for validation, and ``sample_weight``.
    Without validation arrays a fifth is held back, drawn with ``seed``.

    Args:
        path: file written by ``numpy.savez``; objects are not loaded.
        task: inputs and outputs of the model.
        seed: of the split.

    Raises:
        InvalidArgumentError: the file is missing or unreadable, an array is missing or has a wrong
            shape or length.
    """
    path = Path(path)
    _require(path.is_file(), f"--dataset {path}: no such file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"--dataset {path}: cannot be read as .npz: {error}") from error
    inputs = _pick(path, arrays, {spec.name: "x" for spec in task.inputs}, "")
    targets = _pick(path, arrays, {spec.name: "y" for spec in task.outputs}, "")
    for spec in task.inputs:
        shape = inputs[spec.name].shape[1:]
        _require(
            len(shape) == len(spec.shape)
            and all(want in (None, got) for want, got in zip(spec.shape, shape, strict=True)),
            f"--dataset {path}: input {spec.name!r} has samples of shape {shape}, "
            f"the model takes {spec.shape}",
        )
    lengths = {name: len(array) for name, array in (inputs | targets).items()}
    _require(
        len(set(lengths.values())) == 1 and min(lengths.values()) > 0,
        f"--dataset {path}: arrays differ in their number of samples or are empty: {lengths}",
    )
    weights = arrays.get("sample_weight")
    count = next(iter(lengths.values()))
    _require(
        weights is None or weights.shape == (count,),
        f"--dataset {path}: sample_weight must have shape ({count},), "
        f"got {None if weights is None else weights.shape}",
    )
    has_validation = any(name.endswith("_val") for name in arrays)
    if has_validation:
        held_inputs = _pick(path, arrays, {spec.name: "x" for spec in task.inputs}, "_val")
        held_targets = _pick(path, arrays, {spec.name: "y" for spec in task.outputs}, "_val")
        return Dataset(path.name, inputs, targets, weights, (held_inputs, held_targets))
    order = np.random.default_rng(seed).permutation(count)
    held = max(1, count // 5) if count > 1 else 0
    kept = order[held:]
    return Dataset(
        path.name,
        {name: array[kept] for name, array in inputs.items()},
        {name: array[kept] for name, array in targets.items()},
        None if weights is None else weights[kept],
        (
            {name: array[order[:held]] for name, array in inputs.items()},
            {name: array[order[:held]] for name, array in targets.items()},
        )
        if held
        else None,
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidArgumentError(message)


def _describe_inputs(task: Task) -> str:
    return ", ".join(f"{spec.name} {'x'.join(map(str, spec.shape))}" for spec in task.inputs)


def _describe_outputs(task: Task) -> str:
    return ", ".join(f"{spec.size} {spec.kind} ({spec.name})" for spec in task.outputs)


def _enlarge(pixels: NDArray[Any], extent: int, axis: int) -> NDArray[Any]:
    """Interpolate linearly along one axis, pixel centres aligned."""
    old = pixels.shape[axis]
    position = np.clip((np.arange(extent) + 0.5) * old / extent - 0.5, 0, old - 1)
    low = np.floor(position).astype(int)
    high = np.minimum(low + 1, old - 1)
    shape = [1] * pixels.ndim
    shape[axis] = extent
    share = (position - low).reshape(shape)
    below, above = pixels.take(low, axis), pixels.take(high, axis)
    result: NDArray[Any] = (below * (1 - share) + above * share).astype(pixels.dtype)
    return result


def _generate_input(
    generator: np.random.Generator, spec: InputSpec, total: int, dtype: str
) -> NDArray[Any]:
    if spec.high is not None:
        return generator.integers(0, spec.high, (total, *spec.shape)).astype(spec.dtype)
    return generator.standard_normal((total, *spec.shape)).astype(dtype)


def _generate_target(
    generator: np.random.Generator, spec: OutputSpec, code: NDArray[Any], dtype: str
) -> NDArray[Any]:
    """Return the winner (classes) or the values of a random linear map of the inputs."""
    matrix = generator.standard_normal((code.shape[1], spec.size)) / np.sqrt(code.shape[1])
    scores = code @ matrix
    if spec.kind == "classes":
        return np.asarray(np.argmax(scores, axis=1), np.int64)
    return np.asarray(scores, dtype)


def _pick(
    path: Path, arrays: Mapping[str, NDArray[Any]], short_names: Mapping[str, str], suffix: str
) -> dict[str, NDArray[Any]]:
    """Take a model's inputs (or outputs) out of a file, by full name or by ``x``/``y``."""
    found = {}
    for name, short in short_names.items():
        array = arrays.get(name + suffix)
        if array is None and len(short_names) == 1:
            array = arrays.get(short + suffix)
        if array is None:
            also = f" (or {short + suffix!r})" if len(short_names) == 1 else ""
            raise InvalidArgumentError(
                f"--dataset {path}: array {name + suffix!r}{also} is missing; "
                f"the file has {sorted(arrays)}"
            )
        found[name] = array
    return found
