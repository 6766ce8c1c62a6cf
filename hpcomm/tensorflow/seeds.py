"""Randomness that does not depend on how a batch is cut.

Dropout and noise draw, for every sample, from a stream that belongs to (seed, layer call, step,
position of the sample in the global batch). So any split into stages, replicas and micro-batches
gives the same masks. The streams come out of one counter-based generator, Philox: the samples of
a micro-batch are neighbours in the global batch, hence a range of counters, hence one vectorized
operation. Other random layers are seeded by (layer, step, first sample of the micro-batch).

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random
from keras.src.random.seed_generator import SeedGenerator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["RandomContext", "SeedTable", "mix", "step_key"]

_MASK = (1 << 64) - 1
_PHILOX = 1
_WORDS = 4
"""32-bit words that Philox makes of one counter value."""

_NOISE_LAYERS = (
    keras.layers.GaussianNoise,
    keras.layers.GaussianDropout,
    keras.layers.AlphaDropout,
)
"""Layers that draw numbers of the shape of their input, batch axis first."""

_SPATIAL_LAYERS = (
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
)
"""Layers that pass the batch axis of their noise shape as a number."""


def mix(*numbers: int) -> int:
    """Return 64 bits that depend on all numbers and their order.

    Args:
        numbers: any integers.

    Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), chained.
    """
    state = 0
    for number in numbers:
        state = (state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def step_key(seed: int, step: int, *, training: bool) -> int:
    """Return the part of a generator's key that changes from step to step, as a signed 64-bit int.

    Args:
        seed: of the training.
        step: number of the step.
        training: steps of training and of evaluation draw from different streams.
    """
    return _signed(mix(seed, step, int(training)))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


@dataclass(frozen=True, slots=True)
class _Source:
    """A layer's generator: its number in the model, and whether it draws one row per sample."""

    number: int
    per_sample: bool


class SeedTable:
    """The random number generators of a model.

    Args:
        layers: the operations of all calls, in graph order, the same on all ranks.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self._sources: dict[int, _Source] = {}
        for layer in layers:
            if not isinstance(layer, keras.Layer):
                continue
            for member in layer._flatten_layers():
                free = (getattr(member, "noise_shape", None) or (None,))[0] is None
                noise = isinstance(member, _NOISE_LAYERS) and free
                by_row = noise or isinstance(member, _SPATIAL_LAYERS)
                for generator in member._seed_generators:
                    number = len(self._sources)
                    self._sources.setdefault(id(generator), _Source(number, by_row))

    def find(self, generator: Any) -> _Source:
        """Return what is known of a generator; Keras's global one belongs to no layer."""
        return self._sources.get(id(generator), _Source(-1, False))


@dataclass
class RandomContext:
    """Where the computation stands: step and samples as tensors, the call as a number.

    Attributes:
        table: generators of the model.
        key: int64 scalar from `step_key`.
        first_sample: int64 scalar, position of the micro-batch's first sample in the global batch.
        call: index of the layer call that is being run.
    """

    table: SeedTable
    key: Any
    first_sample: Any
    call: int = 0
    _draws: dict[tuple[int, int], int] = field(default_factory=dict)

    def salt(self, seed: Any) -> int:
        """Return 64 bits for the next draw from a generator in the current call."""
        is_generator = isinstance(seed, SeedGenerator)
        number = self.table.find(seed).number if is_generator else -2
        place = (self.call, number)
        draw = self._draws.get(place, 0)
        self._draws[place] = draw + 1
        chosen = seed._initial_seed if is_generator and number >= 0 else None
        return mix(number, self.call, draw, chosen or 0)

    def philox_key(self, seed: Any) -> Any:
        """Return a Philox key (uint64, shape (1,)) for the next draw.

        Args:
            seed: a generator or None; a plain integer gives the same numbers in every step, as in
                Keras.
        """
        if isinstance(seed, int) and not isinstance(seed, bool):
            bits = tf.constant([_signed(mix(seed, self.call))], tf.int64)
        else:
            salt = tf.constant(_signed(self.salt(seed)), tf.int64)
            bits = tf.reshape(tf.bitwise.bitwise_xor(self.key, salt), [1])
        return tf.bitcast(bits, tf.uint64)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Let Keras draw from this context while layers are traced or run."""
        functions: Mapping[str, Callable[..., Any]] = {
            "dropout": self._dropout,
            "normal": self._per_sample_or(keras_random.normal, _normal_rows),
            "uniform": self._per_sample_or(keras_random.uniform, _uniform_rows),
        }
        originals = {name: getattr(keras_random, name) for name in functions}
        next_seed = SeedGenerator.next
        SeedGenerator.next = self._next_seed()
        for name, function in functions.items():
            setattr(keras_random, name, function)
        try:
            yield
        finally:
            SeedGenerator.next = next_seed
            for name, function in originals.items():
                setattr(keras_random, name, function)

    def _next_seed(self) -> Callable[..., Any]:
        def next_seed(generator: Any, ordered: bool = True) -> Any:
            del ordered
            salt = tf.constant(_signed(self.salt(generator)), tf.int64)
            return tf.stack([tf.bitwise.bitwise_xor(self.key, salt), self.first_sample])

        return next_seed

    def _dropout(self, inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        if rate == 1.0:
            return tf.zeros_like(inputs)
        if rate == 0.0:
            return inputs
        inputs = tf.convert_to_tensor(inputs)
        extents = tf.shape(inputs)
        given = list(noise_shape) if noise_shape is not None else [None] * inputs.shape.rank
        shape = [extents[i] if d is None else d for i, d in enumerate(given)]
        static = [d if isinstance(d, int) else inputs.shape[i] for i, d in enumerate(given)]
        fixed = bool(given) and isinstance(given[0], int)
        per_sample = not fixed or self.table.find(seed).per_sample
        first = self.first_sample if per_sample else tf.zeros([], tf.int64)
        bits = _rows(_bits, self.philox_key(seed), first, shape, static, _WORDS)
        kept = bits >= tf.constant(min(int(rate * 2.0**32), 2**32 - 1), tf.uint32)
        scale = tf.cast(1.0 / (1.0 - rate), inputs.dtype)
        return tf.where(kept, inputs * scale, tf.zeros([], inputs.dtype))

    def _per_sample_or(self, original: Any, draw: Any) -> Callable[..., Any]:
        def function(shape: Any, *args: Any, seed: Any = None, **kwargs: Any) -> Any:
            is_generator = isinstance(seed, SeedGenerator)
            if not (is_generator and self.table.find(seed).per_sample):
                return original(shape, *args, seed=seed, **kwargs)
            return draw(self, shape, *args, seed=seed, **kwargs)

        return function


def _rows(
    draw: Any, key: Any, first_row: Any, shape: Any, static: Sequence[int | None], per_block: int
) -> Any:
    """Draw numbers of ``shape`` whose row i comes from a range of counters that belongs to it.

    Args:
        draw: (shape, key, counter) → numbers, ``per_block`` of them from one counter value.
        key: Philox key.
        first_row: number of the first row.
        shape: wanted extents, tensors or numbers.
        static: the same, None where unknown.
        per_block: numbers that the generator makes of one counter value.
    """
    if not shape:
        return tf.reshape(draw([1], key, _counter(first_row, 1)), [])
    known = [extent for extent in static[1:] if extent is not None]
    row: Any = math.prod(known)
    if len(known) < len(static) - 1:
        row = tf.reduce_prod(tf.stack(shape[1:]))
    blocks = (row + per_block - 1) // per_block
    numbers = draw([shape[0], blocks * per_block], key, _counter(first_row, blocks))
    if not isinstance(row, int) or row % per_block:
        numbers = numbers[:, :row]
    result = tf.reshape(numbers, tf.stack([tf.cast(extent, tf.int32) for extent in shape]))
    result.set_shape(static)
    return result


def _counter(first_row: Any, blocks: Any) -> Any:
    low = tf.cast(first_row, tf.int64) * tf.cast(blocks, tf.int64)
    return tf.bitcast(tf.stack([low, tf.zeros_like(low)]), tf.uint64)


def _bits(shape: Any, key: Any, counter: Any) -> Any:
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack(shape), key=key, counter=counter, alg=_PHILOX, dtype=tf.uint32
    )


def _float_rows(context: RandomContext, operation: Any, shape: Any, dtype: Any, seed: Any) -> Any:
    """Draw floats, one row per sample; float64 takes two words of a block, all others one."""
    dtype = tf.as_dtype(keras.backend.standardize_dtype(dtype or keras.backend.floatx()))
    wide = dtype == tf.float64
    made = tf.float64 if wide else tf.float32

    def draw(extents: Any, key: Any, counter: Any) -> Any:
        return operation(shape=tf.stack(extents), key=key, counter=counter, alg=_PHILOX, dtype=made)

    shape = tf.unstack(shape) if tf.is_tensor(shape) else list(shape)
    static = [extent if isinstance(extent, int) else None for extent in shape]
    key = context.philox_key(seed)
    per_block = _WORDS // 2 if wide else _WORDS
    return tf.cast(_rows(draw, key, context.first_sample, shape, static, per_block), dtype)


def _normal_rows(
    context: RandomContext,
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    numbers = _float_rows(context, tf.raw_ops.StatelessRandomNormalV2, shape, dtype, seed)
    return numbers * tf.cast(stddev, numbers.dtype) + tf.cast(mean, numbers.dtype)


def _uniform_rows(
    context: RandomContext,
    shape: Any,
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    numbers = _float_rows(context, tf.raw_ops.StatelessRandomUniformV2, shape, dtype, seed)
    low, high = tf.cast(minval, numbers.dtype), tf.cast(maxval, numbers.dtype)
    return numbers * (high - low) + low
