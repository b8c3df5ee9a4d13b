"""What a front submits becomes a request: whose it is, what it may share, and words as ids."""

from typing import Any

import msgspec
import pytest

from builder.errors import RequestError
from triton_backend.config import PolicyName
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.kv.domains import derive_domain
from triton_backend.messages import (
    Claim,
    ControlText,
    PlainText,
    Prompt,
    Segments,
    Submit,
    Terms,
    TokenIds,
)
from triton_backend.reception import MAX_WORDS, Reception, num_characters
from triton_backend.request import Request, SamplingParams
from triton_backend.segments import Segment, SegmentKind
from triton_backend.tenancy import sign

SECRET = b"s" * 32
NOW_S = 1000.0
EXPIRES_S = 1100


class FakeModel:
    """Writes a word in the codes of its characters, and notes what it prepares."""

    def __init__(self) -> None:
        self.prepared: list[Request] = []

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        assert isinstance(prompt, TokenIds)
        return prompt.token_ids

    def token_runs(self, word: str) -> tuple[tuple[int, ...], ...]:
        return (tuple(word.encode()), (32, *word.encode()))

    def has_to_compile(self, request: Request) -> bool:
        return request.params.constraint is not None

    def prepare(self, request: Request) -> Request:
        self.prepared.append(request)
        return request


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


def reception(model: FakeModel, **given: Any) -> Reception:
    settings = {"policy": PolicyName.FCFS, "secret": SECRET, "clock": lambda: NOW_S}
    return Reception(model, **{**settings, **given})


def claim(tenant: str, *, request_id: str = "r", expires_s: int = EXPIRES_S) -> Claim:
    tag = sign(SECRET, tenant=tenant, request_id=request_id, expires_s=expires_s)
    return Claim(tenant, expires_s, tag)


def submit(request_id: str = "r", *, params: SamplingParams | None = None, **terms: Any) -> Submit:
    return Submit(7, TokenIds((1, 2)), params or SamplingParams(), Terms(**terms), request_id)


def received(model: FakeModel, given: Submit, **settings: Any) -> Request:
    return reception(model, **settings).request_of("1/7", given)


def test_a_request_is_what_was_submitted(model: FakeModel) -> None:
    request = received(model, submit(params=SamplingParams(seed=5), store=False))
    assert (request.request_id, request.prompt_token_ids) == ("1/7", (1, 2))
    assert request.params == SamplingParams(seed=5)
    assert not request.store
    assert received(model, submit()).store
    assert request.deadline_s is None


def test_a_deadline_is_the_engines_own(model: FakeModel) -> None:
    given = msgspec.structs.replace(submit(), deadline_s=12.5)
    assert received(model, given).deadline_s == 12.5


def test_a_caller_whose_tag_is_valid_is_in_the_domain_of_its_tenant(model: FakeModel) -> None:
    request = received(model, submit(claim=claim("alice")))
    assert (request.tenant, request.domain) == ("alice", derive_domain(SECRET, "alice"))
    again = received(model, submit("other", claim=claim("alice", request_id="other")))
    assert again.domain == request.domain
    assert received(model, submit(claim=claim("bob"))).domain != request.domain


NOBODY: list[tuple[str, Claim | None]] = [
    ("no claim", None),
    ("another tenant's tag", Claim("bob", EXPIRES_S, claim("alice").tag)),
    ("another request's tag", claim("alice", request_id="s")),
    ("a later end", Claim("alice", EXPIRES_S + 1, claim("alice").tag)),
    ("expired", claim("alice", expires_s=int(NOW_S))),
    ("no tag", Claim("alice", EXPIRES_S, "")),
]


@pytest.mark.parametrize("given", [pytest.param(each, id=name) for name, each in NOBODY])
def test_a_caller_without_a_valid_tag_is_nobody_and_shares_nothing(
    model: FakeModel, given: Claim | None
) -> None:
    request = received(model, submit(claim=given, cache_salt="mine"))
    assert (request.tenant, request.domain) == ("", None)


def test_without_a_secret_nobody_is_believed(model: FakeModel) -> None:
    request = received(model, submit(claim=claim("alice")), secret=None)
    assert (request.tenant, request.domain) == ("", None)


def test_a_salt_makes_a_domain_inside_the_tenants_own(model: FakeModel) -> None:
    plain = received(model, submit(claim=claim("alice")))
    salted = received(model, submit(claim=claim("alice"), cache_salt="mine"))
    other = received(model, submit(claim=claim("bob"), cache_salt="mine"))
    assert len({plain.domain, salted.domain, other.domain}) == 3
    assert salted.domain == derive_domain(SECRET, "alice", "mine")
    assert salted.tenant == "alice"


def test_priority_counts_under_its_policy(model: FakeModel) -> None:
    request = received(model, submit(priority=-3), policy=PolicyName.PRIORITY)
    assert request.priority == -3
    assert received(model, submit(), policy=PolicyName.FAIR).priority == 0


def test_priority_is_refused_where_it_has_no_effect(model: FakeModel) -> None:
    with pytest.raises(RequestError, match="priority has no effect under the policy fair of this"):
        received(model, submit(priority=-3), policy=PolicyName.FAIR)


def test_bad_words_become_all_ids_they_are_written_in(model: FakeModel) -> None:
    request = received(model, submit(bad_words=("ab", "c")))
    assert request.params.bad_words == ((97, 98), (32, 97, 98), (99,), (32, 99))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", ""), r"bad_words\[1\] must have 1 to 1024 characters; got 0."),
        (("x" * 1025,), r"bad_words\[0\] must have 1 to 1024 characters; got 1025."),
        (("secret",) * (MAX_WORDS + 1), "bad_words must hold at most 128 words; got 129."),
        (("secret" * 20,), r"bad_words\[0\] must have 1 to 64 ids; got 120."),
    ],
)
def test_bad_words_that_can_not_be_banned_are_refused(
    model: FakeModel, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        received(model, submit(bad_words=words))
    assert "secret" not in str(caught.value)


def test_preparing_is_the_models_affair(model: FakeModel) -> None:
    received_by = reception(model)
    request = received_by.request_of("1/7", submit())
    assert not received_by.has_to_compile(request)
    assert received_by.prepare(request) is request
    assert model.prepared == [request]


def test_a_bad_word_that_is_too_long_is_named_by_its_place_among_the_words(
    model: FakeModel,
) -> None:
    with pytest.raises(RequestError, match=r"bad_words\[2\] must have 1 to 64 ids; got 65."):
        received(model, submit(bad_words=("ab", "c", "x" * 64)))


@pytest.mark.parametrize(
    ("prompt", "count"),
    [
        (TokenIds((1, 2)), 2),
        (PlainText("four"), 4),
        (ControlText("four"), 4),
        (Segments((Segment(SegmentKind.TEXT, "five5"), Segment(SegmentKind.TEXT, "two"))), 8),
    ],
)
def test_all_texts_of_a_request_count(prompt: Prompt, count: int) -> None:
    assert num_characters(Submit(1, prompt, SamplingParams())) == count
    constraint = Constraint(ConstraintKind.REGEX, "r" * 1000)
    params = SamplingParams(
        constraint=constraint, stop=("s" * 100, "t" * 10), logits_processors=("p" * 50,)
    )
    terms = Terms(bad_words=("b" * 5,))
    assert num_characters(Submit(1, prompt, params, terms)) == count + 1165
