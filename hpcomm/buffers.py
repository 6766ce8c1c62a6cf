"""Arrays of any library as memory of the wire, without a copy where that is possible.

`readable` and `writable` turn a user's object into a `View`: a C-contiguous NumPy array over the
user's own memory, or over a packed temporary where the user's memory has holes. `View.commit`
writes a temporary back; `Kind.wrap` turns a result into an object of the same library as the input.
A framework is looked at only if the program has imported it already.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np

from hpcomm.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    import types

    from numpy.typing import NDArray

__all__ = [
    "ALIGNMENT",
    "DTYPES",
    "Kind",
    "View",
    "dtype_of",
    "empty",
    "kind_of",
    "readable",
    "writable",
]

# In the order of the core's DType.
DTYPE_NAMES = (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16",
    "int32", "uint32", "int64", "uint64", "bool",
)  # fmt: skip
BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
DTYPES: dict[np.dtype[Any], int] = {
    BFLOAT16 if name == "bfloat16" else np.dtype(name): code
    for code, name in enumerate(DTYPE_NAMES)
}
# TensorFlow ends the process when it is handed memory that is aligned to less than this many bytes.
ALIGNMENT = 64


class Kind(Protocol):
    """How one library's arrays become memory and how results become its arrays."""

    name: str

    def array(self, x: Any, *, write: bool) -> NDArray[Any]:
        """Return ``x`` as a NumPy array over the same memory; not necessarily contiguous."""

    def wrap(self, array: NDArray[Any], like: Any) -> Any:
        """Return a result, which nobody else holds, as an array of the library of ``like``."""


@dataclass(slots=True)
class View:
    """A user's array as the core takes it.

    Attributes:
        array: C-contiguous memory; the user's own, or a packed copy of it.
        code: the core's number of the element type.
        kind: the library the user's object is from.
        origin: the user's object, kept alive.
        target: where `commit` writes ``array`` back to; None if ``array`` is the user's own memory.
    """

    array: NDArray[Any]
    code: int
    kind: Kind
    origin: Any
    target: NDArray[Any] | None = None

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return DTYPE_NAMES[self.code]

    def commit(self) -> Any:
        """Bring received data to the user's memory and return the user's object."""
        if self.target is not None:
            np.copyto(self.target, self.array)
        return self.origin

    def wrap(self, array: NDArray[Any]) -> Any:
        """Return ``array``, a fresh result, as an object of the same library as the user's."""
        return self.kind.wrap(array, self.origin)


class _Numpy:
    name = "numpy"

    def array(self, x: Any, *, write: bool) -> NDArray[Any]:
        if isinstance(x, np.ma.MaskedArray):
            raise InvalidArgumentError(
                "masked arrays lose their mask on the way; pass x.filled(value)"
            )
        if isinstance(x, np.generic):
            if write:
                raise InvalidArgumentError("out is a scalar, which is read-only; pass an array")
            return np.asarray(x)
        result: NDArray[Any] = x.view(np.ndarray)
        return result

    def wrap(self, array: NDArray[Any], like: Any) -> Any:
        del like
        return array


class _Buffer(_Numpy):
    """The buffer protocol: bytes, bytearray, array.array, ctypes. Results are NumPy arrays."""

    name = "buffer"

    def array(self, x: Any, *, write: bool) -> NDArray[Any]:
        del write
        return np.asarray(memoryview(x))


class _Torch:
    name = "torch"

    def array(self, x: Any, *, write: bool) -> NDArray[Any]:
        del write
        torch = sys.modules["torch"]
        if x.device.type != "cpu":
            raise UnsupportedError(
                f"torch tensor on {x.device}: only host memory can be sent; pass x.cpu()"
            )
        if x.layout is not torch.strided:
            raise InvalidArgumentError(
                f"torch tensor with layout {x.layout} has no plain memory; pass x.to_dense()"
            )
        plain = x.detach()
        if plain.is_complex() or plain.is_quantized:
            raise InvalidArgumentError(_wrong_dtype(str(plain.dtype)))
        if plain.is_neg():
            plain = plain.resolve_neg()
        if plain.dtype is torch.bfloat16:
            return plain.view(torch.int16).numpy().view(BFLOAT16)  # type: ignore[no-any-return]
        try:
            return plain.numpy()  # type: ignore[no-any-return]
        except TypeError:
            raise InvalidArgumentError(_wrong_dtype(str(plain.dtype))) from None

    def wrap(self, array: NDArray[Any], like: Any) -> Any:
        del like
        torch = sys.modules["torch"]
        if array.dtype == BFLOAT16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


class _TensorFlow:
    name = "tensorflow"

    def array(self, x: Any, *, write: bool) -> NDArray[Any]:
        tf = sys.modules["tensorflow"]
        if write:
            raise InvalidArgumentError(
                "TensorFlow tensors cannot be written in place; use the returned tensor instead"
            )
        value = x.value() if isinstance(x, tf.Variable) else x
        if not hasattr(value, "numpy"):
            raise InvalidArgumentError(
                "a symbolic TensorFlow tensor has no memory; communicate outside tf.function, "
                "or inside tf.numpy_function"
            )
        # numpy() copies; _numpy() is the view it copies from.
        return np.asarray(value._numpy() if hasattr(value, "_numpy") else value.numpy())

    def wrap(self, array: NDArray[Any], like: Any) -> Any:
        del like
        tf = sys.modules["tensorflow"]
        if array.size == 0 or array.dtype == np.bool_ or array.ctypes.data % ALIGNMENT:
            return tf.convert_to_tensor(array)
        if array.dtype == BFLOAT16:
            return tf.bitcast(_from_dlpack(tf, array.view(np.uint16)), tf.bfloat16)
        return _from_dlpack(tf, array)


def _from_dlpack(tf: types.ModuleType, array: NDArray[Any]) -> Any:
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


class _Dlpack:
    """Any other library with DLPack. Results are arrays of its namespace, else NumPy's."""

    name = "dlpack"

    def array(self, x: Any, *, write: bool) -> NDArray[Any]:
        del write
        device, _ = x.__dlpack_device__()
        if int(device) not in (1, 3):  # kDLCPU, kDLCUDAHost
            raise UnsupportedError(
                f"array on DLPack device {device}: only host memory can be sent; copy it there"
            )
        try:
            return np.from_dlpack(x)
        except (RuntimeError, BufferError, TypeError):
            if (
                hasattr(x, "__array__") and np.asarray(x).dtype == BFLOAT16
            ):  # NumPy's DLPack has no bfloat16
                return np.asarray(x)
            raise InvalidArgumentError(
                _wrong_dtype(str(getattr(x, "dtype", type(x).__name__)))
            ) from None

    def wrap(self, array: NDArray[Any], like: Any) -> Any:
        namespace = like.__array_namespace__() if hasattr(like, "__array_namespace__") else None
        if namespace is None or not hasattr(namespace, "from_dlpack"):
            return array
        return namespace.asarray(array) if array.dtype == BFLOAT16 else namespace.from_dlpack(array)


_NUMPY, _BUFFER, _TORCH, _TENSORFLOW, _DLPACK = (
    _Numpy(),
    _Buffer(),
    _Torch(),
    _TensorFlow(),
    _Dlpack(),
)


def kind_of(x: Any) -> Kind:
    """Return how to handle ``x``, importing nothing.

    Raises:
        InvalidArgumentError: ``x`` is no array.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return _NUMPY
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, getattr(torch, "Tensor", ())):
        return _TORCH
    tf = sys.modules.get("tensorflow")
    if tf is not None and isinstance(x, (getattr(tf, "Tensor", ()), getattr(tf, "Variable", ()))):
        return _TENSORFLOW
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _DLPACK
    try:
        memoryview(x).release()
    except (TypeError, BufferError, ValueError):
        raise InvalidArgumentError(
            f"{type(x).__name__} is no array; pass a NumPy array, a torch or TensorFlow tensor, or "
            "an object with DLPack or the buffer protocol (np.asarray(x) makes one; *_object calls "
            "take any object)"
        ) from None
    return _BUFFER


def _wrong_dtype(name: str) -> str:
    return f"element type {name} cannot be sent; supported are {', '.join(DTYPE_NAMES)}"


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype that ``dtype`` means: NumPy's, torch's, TensorFlow's or a name."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str) and str(dtype).startswith("torch."):
        name = str(dtype).removeprefix("torch.")
    if name == "bfloat16":
        return BFLOAT16
    try:
        result: np.dtype[Any] = np.dtype(name if isinstance(name, str) else dtype)
    except TypeError:
        raise InvalidArgumentError(_wrong_dtype(repr(dtype))) from None
    if result not in DTYPES:
        raise InvalidArgumentError(_wrong_dtype(str(result)))
    return result


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], kind: Kind | None = None) -> NDArray[Any]:
    """Return uninitialised memory for a result, aligned to `ALIGNMENT` where its kind needs it."""
    if kind is None or kind.name != "tensorflow":
        return np.empty(shape, dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + nbytes].view(dtype).reshape(shape)


def readable(x: Any) -> View:
    """Return ``x`` as memory to read from; packed into a temporary where ``x`` is not C-contiguous.

    Raises:
        InvalidArgumentError: no array, or an element type that cannot be sent.
        UnsupportedError: not in host memory.
    """
    kind = _NUMPY if type(x) is np.ndarray else kind_of(x)
    array = x if type(x) is np.ndarray else kind.array(x, write=False)
    code = _code(array)
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return View(array, code, kind, x)


def writable(x: Any) -> View:
    """Return ``x`` as memory to write to.

    Where ``x`` is not C-contiguous it is a temporary, which `View.commit` copies back.

    Raises:
        InvalidArgumentError: no array, read-only, elements that share memory, or an element type
            that cannot be sent.
        UnsupportedError: not in host memory.
    """
    kind = _NUMPY if type(x) is np.ndarray else kind_of(x)
    array = x if type(x) is np.ndarray else kind.array(x, write=True)
    code = _code(array)
    if not array.flags.writeable:
        raise InvalidArgumentError(
            f"out is read-only ({type(x).__name__}); pass a writable array, or use the result"
        )
    if array.flags.c_contiguous:
        return View(array, code, kind, x)
    if any(
        stride == 0 and length > 1
        for stride, length in zip(array.strides, array.shape, strict=True)
    ):
        raise InvalidArgumentError(
            "out is an expanded view whose elements share memory; pass a plain array"
        )
    return View(np.empty(array.shape, array.dtype), code, kind, x, target=array)


def _code(array: NDArray[Any]) -> int:
    code = DTYPES.get(array.dtype)
    if code is None:
        if array.dtype.newbyteorder("=") in DTYPES:
            raise InvalidArgumentError(
                f"element type {array.dtype} has the other byte order; "
                "pass x.astype(x.dtype.newbyteorder('='))"
            )
        raise InvalidArgumentError(_wrong_dtype(str(array.dtype)))
    return code
