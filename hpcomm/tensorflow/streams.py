"""Data sets and generators, read by Keras's own adapters on the rank that reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters import get_data_adapter

from hpcomm.errors import InvalidArgumentError
from hpcomm.tensorflow.arrays import (
    check_targets,
    fit_shape,
    is_arrays,
    leaves,
    name_inputs,
    spread_sample_weight,
    to_array,
)
from hpcomm.tensorflow.refusals import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KerasStream"]


class KerasStream:
    """Batches of anything that ``Model.fit`` reads, as (inputs by name, targets, weights, count).

    Shuffling, class weights, worker processes and the calls at the begin and end of an epoch are
    Keras's, so a data set sees here what it sees in one process.
    """

    def __init__(
        self,
        model: Any,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int | None,
        steps: int | None,
        shuffle: bool | str,
        class_weight: Any,
        needs_targets: bool,
        call: str,
    ) -> None:
        """Open the data.

        Args:
            model: whose inputs are fed.
            x: a tf.data.Dataset, PyDataset, generator, torch or grain loader, or arrays.
            y: targets; only with arrays.
            sample_weight: only with arrays.
            batch_size: only with arrays.
            steps: steps of an epoch, if the user said.
            shuffle: whether the order of a PyDataset or of arrays is shuffled.
            class_weight: class → weight, or None.
            needs_targets: whether a loss is to be computed.
            call: name of the public function, for messages.

        Raises:
            InvalidArgumentError: Keras does not take such data.
            UnsupportedError: a distributed data set.
        """
        if isinstance(x, tf.distribute.DistributedDataset):
            raise refuse("distributed-dataset", call=call)
        self._model = model
        self._call = call
        self._needs_targets = needs_targets
        arrays = is_arrays(x, y, sample_weight)
        if not (arrays or isinstance(x, keras.utils.PyDataset)):
            shuffle = False  # such data are in the order they want; Keras would warn at its default
        try:
            self._adapter = get_data_adapter(
                x,
                y,
                sample_weight,
                batch_size=batch_size,
                steps_per_epoch=steps,
                shuffle=shuffle,
                class_weight=class_weight,
            )
        except ValueError as error:
            # Keras quotes a batch that it cannot use in full.
            text, _, _ = str(error).partition(" Received: ")
            raise InvalidArgumentError(f"{call}: {text}") from error

    @property
    def num_batches(self) -> int | None:
        """Batches from beginning to end; None if that is not known."""
        number: int | None = self._adapter.num_batches
        return number

    def begin_epoch(self) -> None:
        """Tell the data that an epoch begins."""
        self._adapter.on_epoch_begin()

    def end_epoch(self) -> None:
        """Tell the data that an epoch is over."""
        self._adapter.on_epoch_end()

    def open(self, number: int) -> Iterator[tuple[dict[str, Any], Any, Any, int]]:
        """Read from the beginning.

        Args:
            number: of the pass; a data set decides by itself what that means for its order.

        Yields:
            Inputs by name, targets, sample weights and the number of samples.
        """
        del number
        for item in self._adapter.get_tf_dataset():
            x, y, weight = (
                self._to_numpy(part) for part in keras.utils.unpack_x_y_sample_weight(item)
            )
            inputs = name_inputs(self._model, x, call=self._call)
            for name, array in inputs.items():
                fit_shape(self._model, name, array.shape)
            if self._needs_targets:
                check_targets(self._model, y, call=self._call)
            weight = spread_sample_weight(y, weight, call=self._call)
            yield inputs, y, weight, self._count(inputs, y, weight)

    def _to_numpy(self, structure: Any) -> Any:
        def convert(leaf: Any) -> Any:
            if leaf is None or isinstance(leaf, tf.experimental.Optional):
                return None
            return to_array(leaf, call=self._call)

        return keras.tree.map_structure(convert, structure)

    def _count(self, *structures: Any) -> int:
        counts = {
            int(leaf.shape[0]) if leaf.ndim else -1
            for structure in structures
            for leaf in leaves(structure)
        }
        if len(counts) != 1 or -1 in counts:
            raise InvalidArgumentError(
                f"{self._call}: the arrays of a batch must hold the same number of samples, got "
                f"{sorted(counts)}"
            )
        return counts.pop()
