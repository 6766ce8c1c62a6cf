from __future__ import annotations

import itertools

import pytest

from hpcomm.errors import InvalidArgumentError
from hpcomm.verify.case import (
    GRIDS,
    MICRO_BATCHES,
    MODELS,
    by_split,
    make_cases,
    make_grids,
    pairwise,
    varying,
)


def _all():
    return make_cases(MODELS, make_grids([], [], []), MICRO_BATCHES, ["gpipe"])


def test_default_cases_are_the_whole_matrix():
    cases = _all()
    assert len(cases) == 6 * 5 * 3
    assert len({case.key for case in cases}) == len(cases)
    assert {case.strategy for case in cases} == {"model", "data", "hybrid"}
    assert max(case.world_size for case in cases) == 4
    # A batch that three and four micro-batches do not divide, in one replica and in two.
    for case in cases:
        if case.micro_batches > 1:
            assert (case.batch_size // case.replicas) % case.micro_batches


@pytest.mark.parametrize(
    ("strategies", "partitions", "replicas", "want"),
    [
        ([], [], [], list(GRIDS)),
        (["model"], [], [], [(2, 1), (3, 1), (4, 1)]),
        (["data"], [], [], [(1, 2)]),
        (["hybrid"], [], [], [(2, 2)]),
        (["model"], [2, 5], [], [(2, 1), (5, 1)]),
        (["data"], [], [3], [(1, 3)]),
        (["hybrid"], [2, 3], [2], [(2, 2), (3, 2)]),
        (["model", "hybrid"], [2], [2], [(2, 1), (2, 2)]),
        (["model", "data", "hybrid"], [2], [2], [(2, 1), (1, 2), (2, 2)]),
        ([], [2], [1], [(2, 1)]),
        ([], [2], [2], [(2, 2)]),
        ([], [1], [2], [(1, 2)]),
    ],
)
def test_grids_follow_the_flags(strategies, partitions, replicas, want):
    assert make_grids(strategies, partitions, replicas) == want


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["pipeline"], [], []), "--strategy pipeline: not known"),
        (([], [0], []), "--partitions \\[0\\]: must be at least 1"),
        (([], [], [-1]), "--replicas \\[-1\\]"),
        ((["model"], [1], []), "nothing to verify"),
        ((["data"], [], [1]), "nothing to verify"),
        (([], [1], [1]), "nothing to verify"),
    ],
)
def test_wrong_grids_are_refused(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make_grids(*arguments)


def test_batch_smaller_than_micro_batches_is_refused():
    with pytest.raises(InvalidArgumentError, match="larger --batch-size"):
        make_cases(["mlp"], [(1, 2)], [4], ["gpipe"], batch_sizes=[10, 7])


def test_unknown_model_is_refused():
    with pytest.raises(InvalidArgumentError, match="'nope' is not known"):
        make_cases(["nope"], [(2, 1)], [1], ["gpipe"])


def test_cases_of_all_lists_differ_in_their_key():
    cases = make_cases(
        ["mlp", "tied"], [(2, 1)], [1], ["gpipe"], dtypes=["float64", "float32"],
        image_sizes=[8, 16], batch_sizes=[10, 12], steps=[1, 2], seeds=[0, 1, 1],
    )  # fmt: skip
    with_images = 2**5
    assert len(cases) == len({case.key for case in cases}) == with_images + with_images // 2
    assert len({case.reference_key for case in cases}) == len(cases)
    assert {case.image_size for case in cases if case.model == "tied"} == {None}
    assert varying(cases) == ("dtype", "image_size", "batch_size", "steps", "seed")
    assert varying(make_cases(["mlp", "tied"], [(2, 1)], [1], ["gpipe"])) == ()
    assert all(len(group) == 1 for group in by_split(cases))


def test_cases_share_a_reference_where_only_the_split_differs():
    cases = make_cases(["mlp"], GRIDS, [1, 3], ["gpipe", "1f1b"])
    keys = {case.reference_key for case in cases}
    assert len(keys) == 4  # replicas 1 and 2, micro-batches 1 and 3
    groups = by_split(cases)
    assert len(groups) == len(GRIDS) * 2
    assert all(len({case.micro_batches for case in group}) == len(group) == 2 for group in groups)


def test_pairwise_covers_all_pairs_with_fewer_cases():
    cases = _all()
    chosen = pairwise(cases)
    assert set(chosen) <= set(cases)
    assert len(chosen) <= 33

    def pairs(some):
        found = set()
        for case in some:
            settings = (case.model, (case.partitions, case.replicas), case.micro_batches)
            found |= set(itertools.combinations(enumerate(settings), 2))
        return found

    assert pairs(chosen) == pairs(cases)
    assert pairwise(cases) == chosen


def test_pairwise_covers_the_settings_that_differ():
    cases = make_cases(
        ["tied", "mlp"], [(2, 1), (1, 2)], [1, 3], ["gpipe"], dtypes=["float64", "float32"],
        seeds=[0, 1, 2],
    )  # fmt: skip
    chosen = pairwise(cases)
    assert {(case.dtype, case.seed) for case in chosen} == set(
        itertools.product(["float64", "float32"], [0, 1, 2])
    )
    assert len(chosen) < len(cases) / 3
