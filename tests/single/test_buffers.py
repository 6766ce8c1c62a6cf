from __future__ import annotations

import array
import ctypes

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hpcomm import InvalidArgumentError, UnsupportedError, buffers
from hpcomm.buffers import BFLOAT16, DTYPES, readable, writable

NAMES = buffers.DTYPE_NAMES
plain = st.sampled_from([dtype for dtype in DTYPES if dtype != BFLOAT16])


@st.composite
def views(draw):
    """An array, and a view of it with any strides."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    base = np.arange(int(np.prod(shape))).reshape(shape).astype(draw(plain))
    index = tuple(
        slice(draw(st.integers(0, 2)), None, draw(st.sampled_from([1, 2, -1]))) for _ in shape
    )
    view = base[(*index, ...)]
    return base, view.T if draw(st.booleans()) else view


@given(views())
def test_any_view_is_read_by_its_elements(pair):
    _, view = pair
    seen = readable(view)
    assert seen.array.flags.c_contiguous
    assert seen.array.shape == view.shape
    np.testing.assert_array_equal(seen.array, view)
    if view.flags.c_contiguous:
        assert seen.array is view


@given(views())
def test_any_view_is_written_and_nothing_beside_it(pair):
    base, view = pair
    before = base.copy()
    out = writable(view)
    assert out.array.flags.c_contiguous
    out.array[...] = 1 - out.array if base.dtype == bool else 7
    assert out.commit() is view
    np.testing.assert_array_equal(view, np.ones_like(view) * 7 if base.dtype != bool else out.array)
    mask = np.zeros(base.shape, bool)
    # Which elements of the base belong to the view?
    numbers = np.arange(base.size).reshape(base.shape)
    strides = tuple(s // base.itemsize * numbers.itemsize for s in view.strides)
    if view.size:
        offset = (
            view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        ) // base.itemsize
        shadow = np.lib.stride_tricks.as_strided(numbers.ravel()[offset:], view.shape, strides)
        mask.ravel()[shadow.ravel()] = True
    np.testing.assert_array_equal(base[~mask], before[~mask])


@pytest.mark.parametrize("name", NAMES)
def test_every_type_goes_through_numpy_and_back_without_a_copy(name):
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    x = np.ones((2, 3), dtype)
    view = readable(x)
    assert view.dtype == name
    assert view.array is x
    assert view.wrap(x) is x
    assert buffers.dtype_of(name) == dtype
    assert buffers.dtype_of(dtype) == dtype


@pytest.mark.parametrize("name", NAMES)
def test_torch_tensors_share_their_memory_in_both_directions(name):
    torch = pytest.importorskip("torch")
    x = torch.ones((2, 3)).to(getattr(torch, name))
    view = writable(x)
    assert view.dtype == name
    view.array[0, 0] = 0
    assert view.commit() is x
    assert x[0, 0] == 0
    back = view.wrap(view.array.copy())
    assert back.dtype == x.dtype
    assert torch.equal(back, x)
    assert buffers.dtype_of(x.dtype) == view.array.dtype


def test_torch_cases_that_are_not_plain():
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(readable(weight).array, weight.detach().numpy())
    np.testing.assert_array_equal(readable(weight.T).array, weight.detach().numpy().T)
    assert readable(torch.tensor(3.5)).array.shape == ()
    assert readable(torch.zeros(0, 4)).array.shape == (0, 4)
    image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    np.testing.assert_array_equal(readable(image).array, image.numpy())
    for wrong in (torch.zeros(2, dtype=torch.complex64), torch.eye(2).to_sparse()):
        with pytest.raises(InvalidArgumentError):
            readable(wrong)
    with pytest.raises(InvalidArgumentError, match="expanded"):
        writable(torch.zeros(1).expand(4))
    with pytest.raises(UnsupportedError, match="meta"):
        readable(torch.zeros(2, device="meta"))


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", NAMES)
def test_tensorflow_tensors_are_read_without_a_copy_and_results_are_aligned(name):
    tf = pytest.importorskip("tensorflow")
    x = tf.cast(tf.ones((2, 3)), name)
    view = readable(x)
    assert view.dtype == name
    assert np.shares_memory(view.array.view(np.uint8), readable(x).array.view(np.uint8))
    for shape in ((2, 3), (), (0, 3), (7,)):
        result = buffers.empty(shape, view.array.dtype, view.kind)
        assert result.ctypes.data % buffers.ALIGNMENT == 0 or result.size == 0
        result[...] = 1
        tensor = view.wrap(result)
        assert tensor.dtype == x.dtype
        assert tuple(tensor.shape) == shape
        np.testing.assert_array_equal(readable(tensor).array, result)
        # An unaligned result would end the process if it were handed over as it is.
        odd = np.ones(17, np.uint8)[1 : 1 + 16].view(np.uint8)
        assert view.wrap(odd).numpy().tolist() == [1] * 16
    assert buffers.dtype_of(x.dtype) == view.array.dtype


@pytest.mark.tensorflow
def test_tensorflow_cases_that_are_refused():
    tf = pytest.importorskip("tensorflow")
    assert readable(tf.Variable([1.0, 2.0])).array.tolist() == [1, 2]
    with pytest.raises(InvalidArgumentError, match="in place"):
        writable(tf.zeros(3))
    for wrong in (tf.constant(["a"]), tf.constant([1j])):
        with pytest.raises(InvalidArgumentError, match="element type"):
            readable(wrong)

    @tf.function
    def traced(x):
        with pytest.raises(InvalidArgumentError, match="symbolic"):
            readable(x)
        return x

    traced(tf.zeros(2))


class OnlyDlpack:
    """Another library's array."""

    def __init__(self, x, device=1):
        self.x = x
        self.device = device

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.device, 0)


class WithNamespace(OnlyDlpack):
    class Namespace:
        @staticmethod
        def from_dlpack(array):
            return ("wrapped", array)

    def __array_namespace__(self):
        return self.Namespace


def test_dlpack_arrays_share_their_memory():
    x = np.arange(6.0).reshape(2, 3)
    view = writable(OnlyDlpack(x))
    view.array[0, 0] = 9
    assert x[0, 0] == 9
    result = np.zeros(3)
    assert view.wrap(result) is result
    assert readable(WithNamespace(x)).wrap(result) == ("wrapped", result)
    with pytest.raises(UnsupportedError, match="host"):
        readable(OnlyDlpack(x, device=2))


def test_buffer_protocol():
    for x in (bytearray(b"abc"), array.array("d", [1, 2]), (ctypes.c_int32 * 3)(1, 2, 3)):
        view = writable(x)
        assert np.shares_memory(view.array, np.asarray(memoryview(x)))
    assert readable(b"abc").array.tolist() == [97, 98, 99]
    assert readable(np.float32(2.5)).array.shape == ()
    with pytest.raises(InvalidArgumentError, match="read-only"):
        writable(b"abc")


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(2, complex),
        np.array([object()]),
        np.array(["text"]),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, [("a", "f4")]),
        np.zeros(2, np.longdouble),
        np.zeros(2, ml_dtypes.float8_e4m3fn),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        [1.0, 2.0],
        1.0,
        None,
        "text",
        {"a": 1},
    ],
    ids=lambda wrong: type(wrong).__name__,
)
def test_what_is_no_array_that_can_be_sent_is_refused(wrong):
    for take in (readable, writable):
        with pytest.raises(InvalidArgumentError):
            take(wrong)


def test_other_byte_order_is_refused_with_the_remedy():
    with pytest.raises(InvalidArgumentError, match="byte order"):
        readable(np.zeros(3, ">f4"))


def test_read_only_and_overlapping_out_are_refused():
    x = np.zeros(4)
    x.flags.writeable = False
    for read_only in (x, np.float32(1)):
        with pytest.raises(InvalidArgumentError, match="read-only"):
            writable(read_only)
    shared = np.lib.stride_tricks.as_strided(np.zeros(4), (3, 4), (0, 8))
    with pytest.raises(InvalidArgumentError, match="share memory"):
        writable(shared)


@settings(max_examples=50)
@given(hnp.array_shapes(max_dims=3, min_side=0, max_side=40), plain)
def test_memory_for_tensorflow_is_aligned(shape, dtype):
    class Kind:
        name = "tensorflow"

    result = buffers.empty(shape, dtype, Kind())
    assert result.shape == shape
    assert result.dtype == dtype
    assert result.flags.c_contiguous
    assert result.flags.writeable
    if result.size:
        assert result.ctypes.data % 64 == 0
