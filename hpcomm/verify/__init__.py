"""Verification: a split training against the same training in one process."""

from __future__ import annotations
