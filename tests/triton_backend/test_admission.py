"""The exact boundary between what is served and what is refused at once."""

import pytest

from builder.artifact.config import Limits
from builder.errors import RequestError
from tests.triton_backend.making import make_limits
from triton_backend.admission import check_token_ids, resolve_max_known, resolve_stopping_ids
from triton_backend.kv.pool import BlockPool
from triton_backend.request import Request, SamplingParams

LIMITS = make_limits(max_seq_len=64)
ROOMY = BlockPool(100, 4)


def resolve(
    num_prompt: int,
    max_tokens: int | None,
    *,
    min_tokens: int = 0,
    limits: Limits = LIMITS,
    pool: BlockPool = ROOMY,
) -> int:
    params = SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens)
    return resolve_max_known(Request("a", (1,) * num_prompt, params), limits, pool)


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "max_known"),
    [(62, 1, 63), (62, 2, 64), (63, 1, 64), (62, None, 64), (63, None, 64), (1, 63, 64)],
)
def test_prompt_and_answer_up_to_the_limit_are_admitted(
    num_prompt: int, max_tokens: int | None, max_known: int
) -> None:
    assert resolve(num_prompt, max_tokens) == max_known


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "message"),
    [
        (63, 2, "a prompt of 63 tokens and an answer of 2 exceed max_seq_len 64"),
        (64, 1, "a prompt of 64 tokens and an answer of 1 exceed max_seq_len 64"),
        (64, None, "a prompt of 64 tokens and an answer of at least 1 exceed max_seq_len 64"),
        (65, None, "a prompt of 65 tokens"),
        (1, 64, "a prompt of 1 tokens and an answer of 64 exceed"),
        (0, 5, "the prompt must have at least 1 token; got 0."),
    ],
)
def test_one_token_beyond_the_limit_is_refused(
    num_prompt: int, max_tokens: int | None, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        resolve(num_prompt, max_tokens)


def test_the_last_token_of_an_answer_needs_no_block() -> None:
    pool = BlockPool(4, 4)  # 12 tokens of KV
    assert resolve(10, 3, pool=pool) == 13
    with pytest.raises(RequestError, match="need 4 KV blocks of 4 tokens; the pool has 3"):
        resolve(10, 4, pool=pool)


def test_without_max_tokens_an_answer_may_fill_the_pool() -> None:
    pool = BlockPool(4, 4)
    assert resolve(10, None, pool=pool) == 13
    assert resolve(12, None, pool=pool) == 13
    with pytest.raises(
        RequestError, match="a prompt of 13 tokens and an answer of at least 1 need"
    ):
        resolve(13, None, pool=pool)


def test_min_tokens_must_fit_too() -> None:
    assert resolve(60, None, min_tokens=4) == 64
    with pytest.raises(RequestError, match=r"min_tokens 5 does not fit: .* at most 4"):
        resolve(60, None, min_tokens=5)


@pytest.mark.parametrize(
    ("own", "ignore_eos", "stopping"),
    [((), False, {1, 2}), ((5,), False, {1, 2, 5}), ((5,), True, {5}), ((), True, set())],
)
def test_stopping_ids_are_the_end_ids_and_the_request_s_own(
    own: tuple[int, ...], ignore_eos: bool, stopping: set[int]
) -> None:
    params = SamplingParams(stop_token_ids=own, ignore_eos=ignore_eos)
    assert resolve_stopping_ids(Request("a", (1,), params), frozenset({1, 2}), 10) == stopping


def test_min_tokens_must_leave_something_to_generate() -> None:
    def resolve_all(min_tokens: int) -> frozenset[int]:
        params = SamplingParams(stop_token_ids=(0, 1), min_tokens=min_tokens)
        return resolve_stopping_ids(Request("a", (1,), params), frozenset({2}), 3)

    assert resolve_all(0) == {0, 1, 2}
    with pytest.raises(RequestError, match="min_tokens 1 leaves nothing to generate: all 3 ids"):
        resolve_all(1)


@pytest.mark.parametrize(("ids", "index"), [((0, 50, 3), 1), ((49, 0, -1), 2)])
def test_ids_outside_the_vocabulary_are_refused_by_place(ids: tuple[int, ...], index: int) -> None:
    with pytest.raises(
        RequestError, match=rf"prompt_token_ids\[{index}\] must be an id from 0 to 49"
    ):
        check_token_ids("prompt_token_ids", ids, 50)


def test_ids_of_the_vocabulary_are_taken() -> None:
    check_token_ids("prompt_token_ids", (0, 49), 50)
    check_token_ids("stop_token_ids", (), 50)
