"""The command line: one file per sub-command."""

from __future__ import annotations
