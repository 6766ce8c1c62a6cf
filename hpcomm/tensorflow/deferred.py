"""Build a model without memory for its weights, and give memory to some of them later.

``keras.StatelessScope(initialize_variables=False)`` defers variables too, but refuses those that
start from a number, and so ``model.compile`` inside of it: an optimizer counts its iterations in
one. Here only variables with an initializer are deferred; their state is then the one that the
scope would leave them in.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from keras.src import backend

from hpcomm.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "build_deferred",
    "deferred_initialization",
    "initialize",
    "is_initialized",
    "temporarily_initialized",
]

_HOOK = "_initialize_with_initializer"


@contextlib.contextmanager
def deferred_initialization() -> Iterator[list[Any]]:
    """Create variables without values while the context is open.

    Yields:
        The variables created so far, without values.

    Raises:
        UnsupportedError: this version of Keras creates its variables in another way.
    """
    pending: list[Any] = []

    def defer(variable: Any, initializer: Any) -> None:
        variable._value = None
        variable._initializer = initializer
        pending.append(variable)

    original = getattr(backend.Variable, _HOOK, None)
    if original is None:
        raise UnsupportedError(
            "a model function needs a Keras whose variables can be created without values; "
            "pass a model instead of a function, or use Keras 3.6 … 3.15"
        )
    setattr(backend.Variable, _HOOK, defer)
    try:
        yield pending
    finally:
        setattr(backend.Variable, _HOOK, original)


def build_deferred(function: Any, random_state: Any) -> tuple[Any, list[Any]]:
    """Run a model function without giving memory to weights.

    Keras layers draw the seeds of their initializers from Python's generator when they are made, so
    equal states give equal weights on all ranks, whichever of them a rank initializes. The caller's
    own state of the generator goes on as if the function had been called normally.

    Args:
        function: takes no arguments, returns a model.
        random_state: of ``random.getstate()``, the same on all ranks.

    Returns:
        What the function returned, and all variables without values.
    """
    random.setstate(random_state)
    with deferred_initialization() as pending:
        model = function()
    return model, pending


def is_initialized(variable: Any) -> bool:
    """Tell whether a Keras variable has a value."""
    return variable._value is not None


def initialize(variables: Iterable[Any], values: Iterable[Any] | None = None) -> None:
    """Give memory to variables that have none yet.

    Args:
        variables: Keras variables; those with a value are left alone unless ``values`` are given.
        values: arrays to start from; None runs the variables' own initializers.
    """
    if values is None:
        for variable in variables:
            if not is_initialized(variable):
                variable._deferred_initialize()
        return
    for variable, value in zip(variables, values, strict=True):
        if is_initialized(variable):
            variable.assign(value)
        else:
            with tf.init_scope():
                variable._initialize(tf.convert_to_tensor(value, dtype=variable._dtype))
                variable._initializer = None


@contextlib.contextmanager
def temporarily_initialized(variables: Iterable[Any]) -> Iterator[None]:
    """Give memory to variables for as long as the context is open.

    Args:
        variables: those that have a value already keep it.
    """
    added = [(v, v._initializer) for v in variables if not is_initialized(v)]
    initialize(v for v, _ in added)
    try:
        yield
    finally:
        for variable, initializer in added:
            variable._value = None
            variable._initializer = initializer
