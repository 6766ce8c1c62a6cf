"""Who gets which samples of a global batch: pure arithmetic, the same on every rank."""

from __future__ import annotations

from hpcomm.errors import InvalidArgumentError

__all__ = ["cut", "share"]


def cut(total: int, parts: int) -> list[int]:
    """Return the sizes of ``parts`` contiguous shares of ``total`` samples.

    Sizes differ by at most one, larger ones first; with fewer samples than parts the last shares
    are empty.

    Args:
        total: samples to distribute, >= 0.
        parts: shares to make, >= 1.

    Returns:
        ``parts`` numbers that add up to ``total``.

    Raises:
        InvalidArgumentError: a number is out of its range.
    """
    if total < 0 or parts < 1:
        raise InvalidArgumentError(f"cut: cannot make {parts} shares of {total} samples")
    small, larger = divmod(total, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def share(total: int, parts: int, index: int) -> tuple[int, int]:
    """Return the first sample and the end (exclusive) of one share of `cut`.

    Args:
        total: samples to distribute, >= 0.
        parts: shares to make, >= 1.
        index: which share, 0 … parts-1.

    Returns:
        ``(start, stop)`` with ``0 <= start <= stop <= total``.

    Raises:
        InvalidArgumentError: a number is out of its range.
    """
    if not 0 <= index < parts:
        raise InvalidArgumentError(f"share: there is no share {index} of {parts}")
    small, larger = divmod(total, parts)
    start = index * small + min(index, larger)
    return start, start + small + (index < larger)
