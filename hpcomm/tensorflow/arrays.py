"""Data as Keras takes them, made into NumPy arrays under the names of the model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from hpcomm.errors import InvalidArgumentError
from hpcomm.tensorflow.refusals import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "check_targets",
    "class_weights",
    "convert_input",
    "fit_shape",
    "input_names",
    "is_arrays",
    "leaves",
    "name_inputs",
    "spread_sample_weight",
    "to_array",
    "to_arrays",
]

_ARRAY_LIKE = (np.ndarray, tf.Tensor, tf.Variable, tf.RaggedTensor, tf.SparseTensor)


def is_arrays(*structures: Any) -> bool:
    """Tell whether all leaves are arrays that can be sliced; None counts as one."""
    return all(
        leaf is None
        or isinstance(leaf, _ARRAY_LIKE)
        or (hasattr(leaf, "__array__") and hasattr(leaf, "shape"))
        or _is_scipy_sparse(leaf)
        for structure in structures
        for leaf in keras.tree.flatten(structure)
    )


def to_arrays(structure: Any, *, call: str) -> Any:
    """Return the same structure of NumPy arrays; floats become Keras's float type, as in fit.

    Args:
        structure: nested NumPy arrays, tensors, data frames, …; None stays None.
        call: name of the public function, for messages.

    Returns:
        NumPy arrays, without a copy where the dtype allows it.

    Raises:
        UnsupportedError: sparse, ragged or string data.
    """
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else to_array(leaf, call=call, floatx=True), structure
    )


def to_array(leaf: Any, *, call: str, floatx: bool = False) -> Any:
    """Return one leaf as a NumPy array.

    Args:
        leaf: array or tensor.
        call: name of the public function, for messages.
        floatx: make all floats Keras's float type.

    Returns:
        A NumPy array.

    Raises:
        UnsupportedError: sparse, ragged or string data.
    """
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)) or _is_scipy_sparse(leaf):
        raise refuse("sparse-input", type(leaf).__name__, call=call)
    if isinstance(leaf, (tf.Tensor, tf.Variable)):
        array = leaf.numpy()
    elif type(leaf).__module__.startswith("pandas") and leaf.ndim == 1:
        array = leaf.to_numpy()[:, np.newaxis]
    else:
        array = np.asarray(leaf)
    if array.dtype.kind in "OSU":
        raise refuse("string-input", f"dtype {array.dtype}", call=call)
    if floatx and _is_float(array.dtype) and array.dtype.name != keras.config.floatx():
        array = array.astype(keras.config.floatx())
    return array


def input_names(model: Any) -> list[str]:
    """Return the names of a model's inputs in their flat order: those of its input layers."""
    return [tensor._keras_history.operation.name for tensor in keras.tree.flatten(model.inputs)]


def name_inputs(model: Any, x: Any, *, call: str) -> dict[str, Any]:
    """Return the arrays of ``x`` by the names of the model's inputs.

    Args:
        model: a functional or built Sequential model.
        x: one array, a list or tuple in the model's order, or a dict by name.
        call: name of the public function, for messages.

    Returns:
        Input name → array.

    Raises:
        InvalidArgumentError: an input has no array, or there are too many.
    """
    names = input_names(model)
    structure = getattr(model, "_inputs_struct", None)
    if isinstance(x, dict):
        arrays = [x[key] for key in _keys(names, model, structure, x, call)]
    else:
        arrays = keras.tree.flatten(x)
        if len(arrays) != len(names):
            raise InvalidArgumentError(
                f"{call}: the model {model.name!r} has {len(names)} input(s) ({', '.join(names)}), "
                f"but x holds {len(arrays)} array(s)"
            )
    return dict(zip(names, arrays, strict=True))


def _keys(names: list[str], model: Any, structure: Any, x: Any, call: str) -> list[Any]:
    tensor_names = [tensor.name for tensor in keras.tree.flatten(model.inputs)]
    candidates = [names, tensor_names]
    if isinstance(structure, dict):
        order = {id(tensor): key for key, tensor in structure.items()}
        candidates.insert(
            0, [order.get(id(tensor), "") for tensor in keras.tree.flatten(model.inputs)]
        )
    for keys in candidates:
        if all(key in x for key in keys):
            return keys
    raise InvalidArgumentError(
        f"{call}: the model {model.name!r} needs the inputs {', '.join(candidates[0])}, but x has "
        f"the keys {', '.join(map(str, x))}"
    )


def convert_input(model: Any, name: str, rows: Any) -> Any:
    """Return ``rows`` in the rank and dtype of the named input, as Keras's call does.

    Args:
        model: a functional or built Sequential model.
        name: of the input.
        rows: NumPy array of shape (n, …).

    Returns:
        NumPy array; a last axis of length 1 is added or dropped where the model wants that.

    Raises:
        InvalidArgumentError: the shape fits neither way.
    """
    tensor = _tensor(model, name)
    shape = fit_shape(model, name, rows.shape)
    if shape != rows.shape:
        rows = rows.reshape(shape)
    dtype = tf.as_dtype(tensor.dtype).as_numpy_dtype
    return rows if rows.dtype == dtype else rows.astype(dtype)


def fit_shape(model: Any, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which the named input takes rows of ``shape``.

    Args:
        model: a functional or built Sequential model.
        name: of the input.
        shape: of the rows, samples first.

    Returns:
        ``shape``, or with a last axis of length 1 added or dropped.

    Raises:
        InvalidArgumentError: it fits neither way.
    """
    wanted = tuple(_tensor(model, name).shape)
    fitted = tuple(shape)
    if len(shape) == len(wanted) + 1 and shape[-1] == 1:
        fitted = fitted[:-1]
    elif len(shape) == len(wanted) - 1 and wanted[-1] == 1:
        fitted = (*fitted, 1)
    if len(fitted) != len(wanted) or any(
        want not in (None, have) for want, have in zip(wanted, fitted, strict=True)
    ):
        raise InvalidArgumentError(
            f"the data for input {name!r} of model {model.name!r} have shape {tuple(shape)}, but "
            f"the model wants {wanted}"
        )
    return fitted


def check_targets(model: Any, y: Any, *, call: str) -> None:
    """Refuse data without targets for a model that has a loss to compute of them.

    Args:
        model: a compiled model.
        y: targets, or None.
        call: name of the public function, for messages.

    Raises:
        InvalidArgumentError: there are no targets.
    """
    has_loss = any(leaf is not None for leaf in keras.tree.flatten(model.loss))
    if has_loss and not any(True for _ in leaves(y)):
        raise InvalidArgumentError(
            f"{call}: the model {model.name!r} is compiled with a loss, but the data hold no "
            "targets; pass y, or (x, y) pairs"
        )


def class_weights(y: Any, weights: dict[int, float], *, call: str) -> Any:
    """Return the sample weights that ``class_weight`` means for targets ``y``, as Keras does.

    Args:
        y: one array of class numbers (n,) or (n, 1), or of one-hot rows (n, classes).
        weights: class → weight; classes that are missing weigh 1.
        call: name of the public function, for messages.

    Returns:
        Array of shape (n,).

    Raises:
        InvalidArgumentError: the model has several outputs.
    """
    if keras.tree.is_nested(y):
        raise InvalidArgumentError(
            f"{call}: class_weight works with a model of one output; pass sample_weight instead"
        )
    classes = np.asarray(y)
    if classes.ndim > 1:
        classes = classes.argmax(-1) if classes.shape[-1] != 1 else classes[..., 0]
    flat = np.round(classes).astype(np.int64)
    found = [weights.get(int(label), 1.0) for label in flat.reshape(-1)]
    return np.asarray(found, keras.config.floatx()).reshape(flat.shape)


def spread_sample_weight(y: Any, sample_weight: Any, *, call: str) -> Any:
    """Give each output its weights: one array of a weight per sample serves all outputs.

    Args:
        y: structure of target arrays.
        sample_weight: one array, or a structure like ``y``; None stays None.
        call: name of the public function, for messages.

    Returns:
        Weights in the structure of ``y``.

    Raises:
        InvalidArgumentError: the structures differ.
    """
    if sample_weight is None or not keras.tree.is_nested(y):
        return sample_weight
    if not keras.tree.is_nested(sample_weight):
        shape = sample_weight.shape
        if len(shape) != 1 and not (len(shape) == 2 and shape[1] == 1):
            raise InvalidArgumentError(
                f"{call}: a model with several outputs takes one weight per sample, or one array "
                "of "
                f"weights per output; got one array of shape {tuple(shape)}"
            )
        return keras.tree.map_structure(lambda _: sample_weight, y)
    try:
        keras.tree.assert_same_structure(y, sample_weight)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{call}: sample_weight must have the structure of y; {error}"
        ) from error
    return sample_weight


def leaves(structure: Any) -> Iterator[Any]:
    """Yield the leaves of a structure that are not None."""
    return (leaf for leaf in keras.tree.flatten(structure) if leaf is not None)


def _tensor(model: Any, name: str) -> Any:
    for tensor in keras.tree.flatten(model.inputs):
        if tensor._keras_history.operation.name == name:
            return tensor
    raise InvalidArgumentError(f"the model {model.name!r} has no input {name!r}")


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float8"))


def _is_scipy_sparse(leaf: Any) -> bool:
    return type(leaf).__module__.startswith("scipy.sparse") and hasattr(leaf, "tocoo")
