"""Calls that all ranks of a communicator make together, one per file."""

from __future__ import annotations
