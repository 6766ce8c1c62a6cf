"""Train an unmodified Keras model with a skip connection: two partitions times two replicas.

Run: hpcomm run -n 4 -- python examples/keras_hybrid.py
"""

from __future__ import annotations

import keras
import numpy as np

import hpcomm
from hpcomm import hyparflow


def build() -> keras.Model:
    """Return a small compiled model; nothing in it knows of hpcomm."""
    inputs = keras.Input((16,), name="features")
    first = keras.layers.Dense(64, "relu")(inputs)
    x = keras.layers.Dense(64, "relu")(first)
    x = keras.layers.Dense(64, "relu")(x)
    x = keras.layers.Add()([x, first])  # may cross partitions
    outputs = keras.layers.Dense(3, "softmax", name="class")(x)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


random = np.random.default_rng(0)
centres = 3 * random.normal(size=(3, 16))
labels = random.integers(0, 3, size=600)
samples = (centres[labels] + random.normal(size=(600, 16))).astype("float32")

keras.utils.set_random_seed(1)
model = build()
history = hyparflow.fit(
    model,
    samples[:500],
    labels[:500],
    strategy="hybrid",
    num_partitions=2,
    num_replicas=2,
    micro_batches=2,
    batch_size=50,
    epochs=5,
    validation_data=(samples[500:], labels[500:]),
    verbose=0,
)
with hpcomm.init() as comm:  # the communicator that fit used
    if comm.rank == 0:
        # The whole model is back in `model` on rank 0: use it as after keras.Model.fit.
        accuracy = model.evaluate(samples[500:], labels[500:], verbose=0)[1]
        distributed = history.history["val_accuracy"][-1]
        print(f"validation accuracy {distributed:.3f}, Keras alone says {accuracy:.3f}")
        assert accuracy > 0.9
