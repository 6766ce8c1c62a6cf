from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpcomm.hyparflow.epochs import EpochCursor


class Stream:
    """Yields (pass, batch) and records what it is told."""

    def __init__(self, length: int, known: bool = True) -> None:
        self.length = length
        self.num_batches = length if known else None
        self.told: list[str] = []

    def open(self, number: int) -> Iterator[tuple[int, int]]:
        yield from ((number, i) for i in range(self.length))

    def begin_epoch(self) -> None:
        self.told.append("begin")

    def end_epoch(self) -> None:
        self.told.append("end")


def test_every_epoch_starts_anew_without_steps() -> None:
    stream = Stream(3)
    cursor = EpochCursor(stream)
    assert cursor.steps == 3
    assert list(cursor.epoch()) == [(0, 0), (0, 1), (0, 2)]
    assert list(cursor.epoch()) == [(1, 0), (1, 1), (1, 2)]
    assert stream.told == ["end", "begin", "end", "begin", "end"]


def test_steps_go_on_where_the_last_epoch_ended() -> None:
    cursor = EpochCursor(Stream(5), 2)
    assert list(cursor.epoch()) == [(0, 0), (0, 1)]
    assert list(cursor.epoch()) == [(0, 2), (0, 3)]
    with pytest.warns(UserWarning, match="this epoch is shorter"):
        assert list(cursor.epoch()) == [(0, 4)]
    assert list(cursor.epoch()) == [(1, 0), (1, 1)]


def test_steps_that_fit_start_anew_without_a_warning() -> None:
    cursor = EpochCursor(Stream(4), 2)
    passes = [list(cursor.epoch()) for _ in range(3)]
    assert passes == [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(1, 0), (1, 1)]]


def test_unknown_length_is_learned() -> None:
    cursor = EpochCursor(Stream(3, known=False))
    assert cursor.steps is None
    assert len(list(cursor.epoch())) == 3
    assert cursor.steps == 3
    assert list(cursor.epoch()) == [(1, 0), (1, 1), (1, 2)]


def test_an_epoch_that_is_left_early_still_ends() -> None:
    stream = Stream(3)
    cursor = EpochCursor(stream)
    batches = cursor.epoch()
    next(batches)
    batches.close()
    assert stream.told == ["end", "begin", "end"]


def test_rewind_starts_anew() -> None:
    cursor = EpochCursor(Stream(5), 2)
    assert list(cursor.epoch()) == [(0, 0), (0, 1)]
    cursor.rewind()
    assert list(cursor.epoch()) == [(1, 0), (1, 1)]


@pytest.mark.filterwarnings("ignore:the data ended")
@pytest.mark.parametrize("steps", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("stop_after", range(11))
def test_a_restored_cursor_goes_on_exactly(steps: int | None, known: bool, stop_after: int) -> None:
    def epochs(cursor: EpochCursor, first: int) -> Iterator[tuple[int, tuple[int, int]]]:
        for number in range(first, 4):
            yield from ((number, batch) for batch in cursor.epoch())

    whole = list(epochs(EpochCursor(Stream(5, known), steps), 0))
    cursor = EpochCursor(Stream(5, known), steps)
    seen, saved, at = [], cursor.state(in_epoch=False), 0
    for number, batch in epochs(cursor, 0):
        if len(seen) == stop_after:
            break
        seen.append((number, batch))
        saved, at = cursor.state(in_epoch=True), number
    again = EpochCursor(Stream(5, known), steps)
    again.restore(saved)
    assert seen + list(epochs(again, at)) == whole


def test_a_cursor_saved_between_epochs_goes_on() -> None:
    for steps in (None, 2, 5):
        cursor = EpochCursor(Stream(5), steps)
        list(cursor.epoch())
        again = EpochCursor(Stream(5), steps)
        again.restore(cursor.state(in_epoch=False))
        assert list(again.epoch()) == list(cursor.epoch())


def test_start_at_counts_passes_from_there() -> None:
    cursor = EpochCursor(Stream(1))
    cursor.start_at(3)
    assert list(cursor.epoch()) == [(3, 0)]
