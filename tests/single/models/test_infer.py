from __future__ import annotations

import pytest

from hpcomm.errors import ModelError
from hpcomm.models.task import InputSpec, OutputSpec

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def _compiled(keras, inputs, outputs, loss):
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss)
    return model


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        ("sparse_categorical_crossentropy", "classes"),
        ("categorical_crossentropy", "values"),
        ("mse", "values"),
    ],
)
def test_one_output_is_classes_if_its_loss_is_sparse(keras, loss, kind):
    from hpcomm.models.keras.infer import infer_task

    image = keras.Input((4, 4, 3), name="picture")
    x = keras.layers.Dense(5, name="head")(keras.layers.Flatten()(image))
    task = infer_task(_compiled(keras, image, x, loss))
    assert task.inputs == (InputSpec("picture", (4, 4, 3)),)
    assert task.outputs == (OutputSpec("head", kind, 5),)


def test_losses_by_name_list_and_object_are_told_apart(keras):
    from hpcomm.models.keras.infer import infer_task

    x = keras.Input((4,), name="x")
    first = keras.layers.Dense(3, name="first")(x)
    second = keras.layers.Dense(2, name="second")(x)
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for outputs, loss in (
        ({"first": first, "second": second}, {"first": sparse, "second": "mse"}),
        ([first, second], [sparse, "mse"]),
    ):
        task = infer_task(_compiled(keras, x, outputs, loss))
        assert [(o.name, o.kind) for o in task.outputs] == [
            ("first", "classes"),
            ("second", "values"),
        ]


def test_indices_are_bounded_by_their_embedding(keras):
    from hpcomm.models.keras.infer import infer_task

    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(11, 4)(tokens)
    x = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(x))
    (spec,) = infer_task(_compiled(keras, tokens, x, "mse")).inputs
    assert spec == InputSpec("tokens", (6,), "int32", 11)


def test_sequential_models_are_read_too(keras):
    from hpcomm.models.keras.infer import infer_task

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    assert infer_task(model).inputs[0].shape == (4,)


def test_what_is_no_compiled_functional_model_is_refused(keras):
    from hpcomm.models.keras.infer import infer_task

    class Own(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(ModelError, match=r"functional or Sequential Keras model .* got Own"):
        infer_task(Own())
    with pytest.raises(ModelError, match="got int"):
        infer_task(3)
    x = keras.Input((4,))
    with pytest.raises(ModelError, match="is not compiled"):
        infer_task(keras.Model(x, keras.layers.Dense(2)(x)))
    sequence = keras.Input((None, 4), name="sequence")
    y = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(sequence))
    with pytest.raises(ModelError, match=r"'sequence' .* open shape \(None, 4\)"):
        infer_task(_compiled(keras, sequence, y, "mse"))


def test_a_function_is_read_without_memory_and_builds_the_same_model_again(keras):
    from hpcomm.models.keras.infer import infer_task_of

    built = []

    def build():
        x = keras.Input((4,))
        model = keras.Model(x, [keras.layers.Dense(2)(x), keras.layers.Dense(3)(x)])
        model.compile("adam", "mse")
        built.append(model)
        return model

    keras.utils.clear_session()
    task = infer_task_of(build)
    assert all(variable._value is None for variable in built[0].variables)
    names = build().output_names
    assert [output.name for output in task.outputs] == names
    assert all(variable._value is not None for variable in built[1].variables)
