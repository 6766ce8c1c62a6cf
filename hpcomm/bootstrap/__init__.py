"""How ranks find each other, and how a process leaves."""

from __future__ import annotations
