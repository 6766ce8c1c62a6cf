from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from hpcomm.errors import InvalidArgumentError
from hpcomm.tensorflow import arrays

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict"),
]


def model(structure: str = "list") -> Any:
    a = keras.Input((3,), name="a")
    b = keras.Input((1,), name="b", dtype="int32")
    c = keras.Input((), name="c")
    inputs: Any = {"list": [a, b, c], "dict": {"one": a, "two": b, "three": c}}[structure]
    parts = [keras.layers.Dense(2)(a), keras.layers.Flatten()(keras.layers.Embedding(5, 2)(b))]
    return keras.Model(inputs, keras.layers.Add()(parts))


def test_inputs_are_named_from_any_structure() -> None:
    x = [np.zeros((2, 3)), np.ones((2, 1)), np.ones(2)]
    for given in (x, tuple(x), dict(zip("abc", x, strict=True))):
        named = arrays.name_inputs(model(), given, call="fit")
        assert list(named) == ["a", "b", "c"]
        assert all(named[name] is array for name, array in zip("abc", x, strict=True))
    named = arrays.name_inputs(model("dict"), {"three": x[2], "one": x[0], "two": x[1]}, call="fit")
    assert {name: named[name].shape for name in named} == {"a": (2, 3), "b": (2, 1), "c": (2,)}
    with pytest.raises(InvalidArgumentError, match=r"has 3 input\(s\) \(a, b, c\).* 2 array"):
        arrays.name_inputs(model(), x[:2], call="fit")
    with pytest.raises(InvalidArgumentError, match=r"needs the inputs a, b, c, but x has .* a, d"):
        arrays.name_inputs(model(), {"a": x[0], "d": x[1]}, call="fit")


def test_a_model_called_with_these_inputs_agrees() -> None:
    """The names belong to the inputs that Keras itself gives the arrays to."""
    net = model("dict")
    x = {"one": np.ones((2, 3), "float32"), "two": np.full((2, 1), 3), "three": np.ones(2, "f4")}
    named = arrays.name_inputs(net, x, call="fit")
    flat = [named[name] for name in arrays.input_names(net)]
    for tensor, array in zip(net.inputs, flat, strict=True):
        assert tensor.shape[1:] == array.shape[1:]
    flat_model = keras.Model(net.inputs, net.outputs)
    np.testing.assert_allclose(net(x), keras.tree.flatten(flat_model(flat))[0], rtol=1e-6)


def test_rows_get_the_rank_and_dtype_of_their_input() -> None:
    net = model()
    assert arrays.convert_input(net, "b", np.ones(4, "int64")).shape == (4, 1)
    assert arrays.convert_input(net, "b", np.ones(4, "int64")).dtype == np.int32
    assert arrays.convert_input(net, "c", np.ones((4, 1))).shape == (4,)
    same = np.ones((4, 3), "float32")
    assert arrays.convert_input(net, "a", same) is same
    with pytest.raises(
        InvalidArgumentError, match=r"input 'a' .* shape \(4, 2\), but .*\(None, 3\)"
    ):
        arrays.convert_input(net, "a", np.ones((4, 2)))


def test_floats_become_keras_floats_and_others_stay() -> None:
    given = [np.ones(2), tf.constant([1, 2]), np.ones(2, "float16"), None, np.ones(2, "uint8")]
    got = arrays.to_arrays(given, call="fit")
    names = [None if array is None else array.dtype.name for array in got]
    assert names == ["float32", "int32", "float32", None, "uint8"]
    assert arrays.is_arrays(*given)
    assert not arrays.is_arrays(tf.data.Dataset.range(3))
    assert not arrays.is_arrays(iter([1]))
    assert not arrays.is_arrays([1, 2, 3])


def test_pandas_columns_are_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    assert arrays.to_array(pandas.Series([1.0, 2.0]), call="fit").shape == (2, 1)
    assert arrays.to_array(pandas.DataFrame({"a": [1.0], "b": [2.0]}), call="fit").shape == (1, 2)


@pytest.mark.parametrize("shape", ["numbers", "column", "one-hot"])
def test_class_weights_are_those_of_keras(shape: str) -> None:
    from keras.src.trainers.data_adapters import data_adapter_utils

    labels = np.asarray([0, 2, 1, 2, 7])
    y = {"numbers": labels, "column": labels[:, None], "one-hot": np.eye(8)[labels]}[shape]
    weights = {0: 2.0, 2: 0.5}
    got = arrays.class_weights(y, weights, call="fit")
    expected = data_adapter_utils.class_weight_to_sample_weights(y, weights)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype
    with pytest.raises(InvalidArgumentError, match="one output"):
        arrays.class_weights([y, y], weights, call="fit")


def test_one_weight_per_sample_serves_all_outputs() -> None:
    weights = np.ones(3)
    y = {"p": np.zeros(3), "q": np.zeros((3, 2))}
    spread = arrays.spread_sample_weight(y, weights, call="fit")
    assert set(spread) == {"p", "q"}
    assert spread["p"] is weights
    assert arrays.spread_sample_weight(np.zeros(3), weights, call="fit") is weights
    assert arrays.spread_sample_weight(y, None, call="fit") is None
    with pytest.raises(InvalidArgumentError, match=r"one array of shape \(3, 2\)"):
        arrays.spread_sample_weight(y, np.ones((3, 2)), call="fit")
    with pytest.raises(InvalidArgumentError, match="structure of y"):
        arrays.spread_sample_weight(y, {"p": weights}, call="fit")


def test_a_fixed_batch_takes_that_many_rows_only() -> None:
    inputs = keras.Input(batch_shape=(8, 3), name="fixed")
    net = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    assert arrays.fit_shape(net, "fixed", (8, 3)) == (8, 3)
    with pytest.raises(InvalidArgumentError, match=r"shape \(5, 3\), but the model wants \(8, 3\)"):
        arrays.fit_shape(net, "fixed", (5, 3))


def test_forgotten_targets_are_refused() -> None:
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    net.compile("sgd", "mse")
    arrays.check_targets(net, np.zeros(3), call="fit")
    for nothing in (None, [None], {"y": None}):
        with pytest.raises(
            InvalidArgumentError, match="compiled with a loss, but the data hold no"
        ):
            arrays.check_targets(net, nothing, call="fit")
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    net.compile("sgd")
    arrays.check_targets(net, None, call="fit")
