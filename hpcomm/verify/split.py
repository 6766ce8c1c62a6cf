"""Train the same batches split over ranks, step by step, and collect what the reference reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.hyparflow.batch import StepBatch
from hpcomm.hyparflow.shares import cut, share
from hpcomm.hyparflow.trainer import HybridTrainer
from hpcomm.tensorflow.graph import extract_graph
from hpcomm.verify.compare import Outcome
from hpcomm.verify.faults import spoil
from hpcomm.verify.problem import make_problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hpcomm.communicator import Communicator
    from hpcomm.verify.case import Case


class SplitTraining:
    """A model split over the ranks of a communicator; trained again for every case of a group.

    Args:
        case: any of the cases; they differ in the number of micro-batches only.
        comm: as many ranks as the case needs.
        inject: fault to plant, or None.
    """

    def __init__(self, case: Case, comm: Communicator, inject: str | None = None) -> None:
        self._problem = make_problem(case)
        self._comm = comm
        engine = HybridTrainer if inject is None else spoil(HybridTrainer, inject)
        self.trainer = engine(
            self._problem.model,
            comm,
            strategy=case.strategy,  # type: ignore[arg-type]
            num_partitions=case.partitions,
            num_replicas=case.replicas,
            micro_batches=case.micro_batches,
            schedule=case.schedule,
            lpp=_even_layers(self._problem.model, case.partitions),
            seed=case.seed,
            keep_gradients=True,
            on_table=False,
        )

    @property
    def fault_has_acted(self) -> bool:
        """Whether the fault has had an effect on this rank; True where none was planted."""
        return getattr(self.trainer, "fault_has_acted", True)

    def run(self, case: Case) -> Outcome | None:
        """Train a case from the start.

        Collective over the communicator.

        Args:
            case: of the same group.

        Returns:
            The outcome on rank 0, None elsewhere.
        """
        trainer, problem = self.trainer, self._problem
        problem.reset()
        trainer.micro_batches = case.micro_batches
        trainer.scatter_weights(optimizer=True)
        trainer.collect_predictions = True
        outcome = Outcome()
        for number, (inputs, targets, weights) in enumerate(problem.batches):
            batch = self._share(inputs, targets, weights)
            result = trainer.train_step(batch)
            outcome.losses.append(result.loss)
            if number == 0:
                outcome.gradients = trainer.gather_gradients() or {}
                outcome.outputs = self._named_outputs(result.predictions, "")
        first = self._share(*problem.batches[0])
        outcome.outputs |= self._named_outputs(trainer.predict_step(first).predictions, "after/")
        trainer.gather_weights("root", optimizer=True)
        outcome.outputs = self._outputs_to_root(outcome.outputs)
        if self._comm.rank != 0:
            return None
        outcome.weights = self._named_weights()
        return outcome

    def close(self) -> None:
        """Release what the trainer made."""
        self.trainer.close()

    def _share(
        self,
        inputs: dict[str, NDArray[Any]],
        targets: dict[str, NDArray[Any]],
        weights: NDArray[Any] | None,
    ) -> StepBatch:
        trainer, problem = self.trainer, self._problem
        samples = len(next(iter(inputs.values())))
        first, last = share(samples, trainer.grid.replicas.size, trainer.grid.replica)
        part = slice(first, last)
        mine = {name: array[part] for name, array in targets.items()}
        at_loss = trainer.is_loss_stage
        return StepBatch(
            inputs={name: inputs[name][part] for name in trainer.stage_inputs},
            targets=problem.targets_for_keras(mine) if at_loss else None,
            sample_weight=weights[part] if at_loss and weights is not None else None,
            num_samples=last - first,
            first_sample=first,
            global_samples=samples,
        )

    def _named_outputs(self, predictions: Any, prefix: str) -> dict[str, NDArray[Any]]:
        if predictions is None:
            return {}
        names = self._problem.model.output_names
        if isinstance(predictions, dict):
            # Keras flattens dictionaries in the order of their sorted keys.
            flat = [predictions[name] for name in sorted(predictions)]
        else:
            flat = [predictions]
        return {prefix + name: np.asarray(a) for name, a in zip(names, flat, strict=True)}

    def _outputs_to_root(self, outputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Bring the outputs from the rank that has them to rank 0."""
        found = self._comm.allgather_object(outputs or None)
        return next((one for one in found if one), {})

    def _named_weights(self) -> dict[str, NDArray[Any]]:
        model = self._problem.model
        weights = {variable.path: variable.numpy() for variable in model.variables}
        if model.optimizer.use_ema:
            averages = model.optimizer._model_variables_moving_average
            weights |= {
                f"average/{variable.path}": average.numpy()
                for variable, average in zip(model.trainable_variables, averages, strict=True)
            }
        return weights


def _even_layers(model: Any, partitions: int) -> list[int]:
    """Return equal numbers of layers per partition.

    A balanced split of a small model puts all but a few layers into one stage; equal numbers cut
    where most tensors cross.
    """
    return cut(len(extract_graph(model).calls), partitions)
