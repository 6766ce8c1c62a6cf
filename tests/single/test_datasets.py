from __future__ import annotations

import sys

import numpy as np
import pytest

from hpcomm import datasets
from hpcomm.errors import InvalidArgumentError
from hpcomm.models.task import BuildOptions, InputSpec, OutputSpec, Task, image_classification

IMAGES = image_classification(BuildOptions(image_size=32))
TWO = Task(
    inputs=(InputSpec("image", (4, 4, 3)), InputSpec("tokens", (5,), "int32", 7)),
    outputs=(OutputSpec("values", "values", 2), OutputSpec("classes", "classes", 3)),
)


def test_digits_are_scaled_split_and_the_same_every_time():
    one, other = datasets.load("digits", IMAGES), datasets.load("digits", IMAGES)
    images, labels = one.inputs["image"], one.targets["classes"]
    held_images, held_labels = one.validation[0]["image"], one.validation[1]["classes"]
    assert images.shape == (1437, 32, 32, 3)
    assert held_images.shape == (360, 32, 32, 3)
    assert images.dtype == np.float32
    assert images.min() == -1.0
    assert images.max() == 1.0
    assert np.array_equal(images, other.inputs["image"])
    assert not np.array_equal(labels, datasets.digits(IMAGES, seed=1).targets["classes"])
    for digit in range(10):
        share = (labels == digit).sum() / ((labels == digit).sum() + (held_labels == digit).sum())
        assert 0.78 < share < 0.82
    assert np.array_equal(images[..., 0], images[..., 2])


def test_digits_keep_their_pixels_at_their_own_size():
    small = datasets.digits(image_classification(BuildOptions(image_size=8)))
    steps = (small.inputs["image"] + 1.0) * 8.0
    assert np.allclose(steps, np.round(steps), atol=1e-5)


@pytest.mark.parametrize("size", [1, 5, 16, 33])
def test_digits_come_in_any_image_size(size):
    data = datasets.digits(image_classification(BuildOptions(image_size=size)))
    assert data.inputs["image"].shape[1:] == (size, size, 3)
    assert np.isfinite(data.inputs["image"]).all()


def test_digits_refuse_a_model_that_does_not_fit():
    with pytest.raises(InvalidArgumentError, match=r"image 4x4x3, tokens 5.*--dataset synthetic"):
        datasets.load("digits", TWO)
    with pytest.raises(InvalidArgumentError, match="10 classes"):
        datasets.digits(image_classification(BuildOptions(image_size=8, num_classes=5)))


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InvalidArgumentError, match=r"hpcomm\[data\]"):
        datasets.digits(IMAGES)


def test_synthetic_follows_the_model():
    data = datasets.load("synthetic", TWO, samples=20, sample_weighted=True)
    assert data.num_samples == 20
    assert data.inputs["image"].shape == (20, 4, 4, 3)
    assert data.inputs["tokens"].dtype == np.int32
    assert set(np.unique(data.inputs["tokens"])) <= set(range(7))
    assert data.targets["values"].shape == (20, 2)
    assert set(np.unique(data.targets["classes"])) <= set(range(3))
    assert data.sample_weight.shape == (20,)
    assert len(data.validation[0]["image"]) == 5
    assert len(data.validation[1]["classes"]) == 5
    again = datasets.load("synthetic", TWO, samples=20, sample_weighted=True)
    assert np.array_equal(data.sample_weight, again.sample_weight)
    other = datasets.load("synthetic", TWO, samples=20, seed=1)
    assert not np.array_equal(data.inputs["image"], other.inputs["image"])
    assert other.sample_weight is None


def test_synthetic_targets_can_be_learnt():
    data = datasets.synthetic(TWO, samples=400)
    flat = data.inputs["image"].reshape(400, -1)
    flat = np.concatenate([flat, np.ones((400, 1), flat.dtype)], axis=1)
    solution, *_ = np.linalg.lstsq(flat, data.targets["values"], rcond=None)
    assert np.abs(flat @ solution - data.targets["values"]).max() < 1e-4
    assert len(np.unique(data.targets["classes"])) == 3


def test_synthetic_takes_a_shape_that_must_be_the_models():
    assert datasets.load("synthetic:32x32x3", IMAGES, samples=3).num_samples == 3
    with pytest.raises(InvalidArgumentError, match=r"the model takes image 32x32x3.*--image-size"):
        datasets.load("synthetic:16x16x3", IMAGES)
    with pytest.raises(InvalidArgumentError, match="at least 1 sample"):
        datasets.load("synthetic", IMAGES, samples=0)


@pytest.mark.parametrize("name", ["mnist", "synthetic:", "synthetic:32x", "digits2"])
def test_unknown_names_are_refused_with_the_choice(name):
    with pytest.raises(InvalidArgumentError, match="use digits, synthetic, synthetic:HxWxC"):
        datasets.load(name, IMAGES)


def _save(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_file_with_validation_is_taken_as_it_is(tmp_path):
    rng = np.random.default_rng(0)
    path = _save(
        tmp_path / "mine.npz",
        x=rng.normal(size=(10, 32, 32, 3)),
        y=np.arange(10),
        x_val=rng.normal(size=(4, 32, 32, 3)),
        y_val=np.arange(4),
        sample_weight=np.linspace(0, 1, 10),
    )
    data = datasets.load(path, IMAGES)
    assert data.name == "mine.npz"
    assert data.num_samples == 10
    assert np.array_equal(data.targets["classes"], np.arange(10))
    assert np.array_equal(data.sample_weight, np.linspace(0, 1, 10))
    assert np.array_equal(data.validation[1]["classes"], np.arange(4))


def test_file_without_validation_is_split_by_seed(tmp_path):
    path = _save(
        tmp_path / "mine.npz",
        image=np.zeros((10, 4, 4, 3)),
        tokens=np.zeros((10, 5), np.int32),
        values=np.arange(20.0).reshape(10, 2),
        classes=np.arange(10),
    )
    data = datasets.from_file(path, TWO)
    kept, held = data.targets["classes"], data.validation[1]["classes"]
    assert sorted([*kept, *held]) == list(range(10))
    assert len(held) == 2
    assert np.array_equal(data.targets["values"][:, 0], 2.0 * kept)
    assert np.array_equal(kept, datasets.from_file(path, TWO).targets["classes"])


def test_file_with_one_sample_has_no_validation(tmp_path):
    path = _save(tmp_path / "one.npz", x=np.zeros((1, 32, 32, 3)), y=np.zeros(1, int))
    assert datasets.load(path, IMAGES).validation is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 8, 8, 3)), "y": np.zeros(3)}, "shape \\(8, 8, 3\\), the model takes"),
        (
            {"x": np.zeros((3, 32, 32, 3))},
            "'classes' \\(or 'y'\\) is missing; the file has \\['x'\\]",
        ),
        ({"x": np.zeros((3, 32, 32, 3)), "y": np.zeros(4)}, "differ in their number of samples"),
        ({"x": np.zeros((0, 32, 32, 3)), "y": np.zeros(0)}, "are empty"),
        (
            {"x": np.zeros((3, 32, 32, 3)), "y": np.zeros(3), "sample_weight": np.zeros(2)},
            "sample_weight must have shape \\(3,\\), got \\(2,\\)",
        ),
    ],
    ids=["shape", "missing", "lengths", "empty", "weights"],
)
def test_file_that_does_not_fit_is_refused(tmp_path, arrays, message):
    path = _save(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InvalidArgumentError, match=message):
        datasets.load(path, IMAGES)


def test_file_that_is_missing_or_broken_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="no such file"):
        datasets.load(str(tmp_path / "absent.npz"), IMAGES)
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        datasets.load(str(tmp_path / "text.npz"), IMAGES)
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        datasets.load(str(tmp_path / "objects.npz"), IMAGES)
