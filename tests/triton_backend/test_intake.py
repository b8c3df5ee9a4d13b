"""What becomes of a request before it is queued: a sequence per choice, or a refusal that quotes nothing."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from builder.errors import ArtifactError, RequestError
from tests.triton_backend.making import Clock, make_limits, make_request, make_sequence
from triton_backend.config import EngineConfig
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.intake import Intake, may_draft
from triton_backend.kv.cache import BlockCache
from triton_backend.kv.pool import BlockPool
from triton_backend.request import Request
from triton_backend.sequence import Sequence
from triton_backend.text import NoText

REGEX = Constraint(ConstraintKind.REGEX, "secret")


class CountedMasks:
    """Compiles to itself, gives a new mask each time, and remembers what it was asked."""

    def __init__(self) -> None:
        self.compiled: list[Constraint] = []
        self.started: list[Collection[int]] = []

    def compile(self, constraint: Constraint) -> Any:
        self.compiled.append(constraint)
        return self

    def start(self, stopping_ids: Collection[int]) -> Any:
        self.started.append(stopping_ids)
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


def sequences_of(
    intake: Intake, request: Request, config: EngineConfig | None = None
) -> list[Sequence]:
    """Lay the groundwork of a request, and make its sequences."""
    config = config or EngineConfig()
    groundwork = intake.groundwork_of(request, config, NoText())
    return intake.sequences_of(replace(request, groundwork=groundwork), config)


def test_each_choice_is_a_sequence_with_the_same_seed() -> None:
    siblings = sequences_of(
        make_intake(),
        make_request("a", (1, 2), num_choices=3, stop_token_ids=(5,), max_tokens=4),
    )
    assert [sequence.choice for sequence in siblings] == [0, 1, 2]
    for sequence in siblings:
        assert sequence.siblings is siblings
        assert (sequence.seed, sequence.max_known) == (77, 6)
        assert sequence.stopping_ids == {2, 5}
        assert (sequence.mask, sequence.drafter) == (None, None)


def test_the_seed_of_the_request_is_taken_if_there_is_one() -> None:
    (sequence,) = sequences_of(make_intake(), make_request("a", (1,), seed=5))
    assert sequence.seed == 5


def test_blocks_are_shared_in_the_domain_unless_reuse_is_off() -> None:
    request = make_request("a", (1,), about={"domain": b"one"})
    for reuses, domain in ((True, b"one"), (False, None)):
        (sequence,) = sequences_of(make_intake(), request, EngineConfig(prefix_reuse=reuses))
        assert sequence.chain.domain == domain


def test_each_choice_has_a_mask_of_its_own() -> None:
    masks = CountedMasks()
    siblings = sequences_of(
        make_intake(mask_provider=masks), make_request("a", (1,), num_choices=2, constraint=REGEX)
    )
    assert masks.compiled == [REGEX]
    assert masks.started == [frozenset({2})] * 2
    assert siblings[0].mask is not siblings[1].mask


def test_a_constraint_needs_a_provider_and_is_not_quoted() -> None:
    with pytest.raises(RequestError, match="constraint is not supported") as refused:
        sequences_of(make_intake(), make_request("a", (1,), constraint=REGEX))
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


def test_whoever_drafts_shares_the_runs_of_the_prompt() -> None:
    request = make_request("a", (1, 2, 3, 1, 2), num_choices=2, speculation=True)
    first, second = sequences_of(make_intake(), request)
    assert first.drafter is not second.drafter
    assert first.request.groundwork is second.request.groundwork
    for sequence in (first, second):
        assert sequence.drafter is not None
        assert sequence.drafter.propose(sequence.token_ids, 1) == (3,)


def test_a_prompt_is_the_same_with_and_without_groundwork() -> None:
    (sequence,) = sequences_of(make_intake(), make_request("a", (1, 49, 0)))
    assert sequence.token_ids.tolist() == [1, 49, 0]
    assert make_sequence("b", 3).token_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("prompt", [(50,), (2**70,), (-1,), (1,) * 1001])
def test_a_prompt_that_can_not_be_served_is_refused_before_its_groundwork(
    prompt: tuple[int, ...],
) -> None:
    masks = CountedMasks()
    request = make_request("a", prompt, constraint=REGEX, speculation=True)
    with pytest.raises(RequestError):
        make_intake(mask_provider=masks).groundwork_of(request, EngineConfig(), NoText())
    assert masks.compiled == []
