"""Keras builders of the models, one file per family."""

from __future__ import annotations
