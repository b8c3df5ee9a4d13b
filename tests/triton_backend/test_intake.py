"""What becomes of a request before it is queued: a sequence per choice, or a refusal that quotes nothing."""

from typing import Any

import pytest

from builder.errors import ArtifactError, RequestError
from tests.triton_backend.making import Clock, make_limits, make_request
from triton_backend.config import EngineConfig
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.intake import Intake, may_draft
from triton_backend.kv.cache import BlockCache
from triton_backend.kv.pool import BlockPool

REGEX = Constraint(ConstraintKind.REGEX, "secret")


class CountedMasks:
    """Gives a new mask each time, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Constraint, frozenset[int]]] = []

    def start(self, constraint: Constraint, stopping_ids: frozenset[int]) -> Any:
        self.asked.append((constraint, stopping_ids))
        return object()


def make_intake(**given: Any) -> Intake:
    limits = make_limits()
    cache = BlockCache(BlockPool(limits.num_blocks, 4), clock=Clock())
    return Intake(
        limits,
        cache,
        **{
            "vocab_size": 50,
            "end_token_ids": (2,),
            "draw_seed": lambda: 77,
            "mask_provider": None,
            **given,
        },
    )


def test_each_choice_is_a_sequence_with_the_same_seed() -> None:
    siblings = make_intake().sequences_of(
        make_request("a", (1, 2), num_choices=3, stop_token_ids=(5,), max_tokens=4), EngineConfig()
    )
    assert [sequence.choice for sequence in siblings] == [0, 1, 2]
    for sequence in siblings:
        assert sequence.siblings is siblings
        assert (sequence.seed, sequence.max_known) == (77, 6)
        assert sequence.stopping_ids == {2, 5}
        assert (sequence.mask, sequence.drafter) == (None, None)


def test_the_seed_of_the_request_is_taken_if_there_is_one() -> None:
    (sequence,) = make_intake().sequences_of(make_request("a", (1,), seed=5), EngineConfig())
    assert sequence.seed == 5


def test_blocks_are_shared_in_the_domain_unless_reuse_is_off() -> None:
    request = make_request("a", (1,), about={"domain": b"one"})
    for reuses, domain in ((True, b"one"), (False, None)):
        (sequence,) = make_intake().sequences_of(request, EngineConfig(prefix_reuse=reuses))
        assert sequence.chain.domain == domain


def test_each_choice_has_a_mask_of_its_own() -> None:
    masks = CountedMasks()
    siblings = make_intake(mask_provider=masks).sequences_of(
        make_request("a", (1,), num_choices=2, constraint=REGEX), EngineConfig()
    )
    assert masks.asked == [(REGEX, frozenset({2}))] * 2
    assert siblings[0].mask is not siblings[1].mask


def test_a_constraint_needs_a_provider_and_is_not_quoted() -> None:
    with pytest.raises(RequestError, match="constraint is not supported") as refused:
        make_intake().sequences_of(make_request("a", (1,), constraint=REGEX), EngineConfig())
    assert "secret" not in str(refused.value)


def test_end_ids_must_be_in_the_vocabulary() -> None:
    with pytest.raises(ArtifactError, match="end token id 50 is not in the vocabulary of 50 ids"):
        make_intake(end_token_ids=(2, 50))


@pytest.mark.parametrize(
    ("params", "setting", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"speculation": True}, False, True),
        ({"speculation": False}, True, False),
        ({"constraint": REGEX}, True, False),
        ({"logits_processors": ("any",), "speculation": True}, True, False),
    ],
)
def test_answers_are_drafted_if_they_may(
    params: dict[str, Any], setting: bool, expected: bool
) -> None:
    request = make_request("a", (1,), **params)
    assert may_draft(request, EngineConfig(speculation=setting)) is expected
