"""Each link on logits, by hand on a vocabulary of ten."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.step import Float32
from builder.targets.executor import result_from_rows
from tests.triton_backend.making import make_sequence
from triton_backend.rows import LogitRow
from triton_backend.sampling.bad_words import bad_words_of
from triton_backend.sampling.ban import Ban
from triton_backend.sampling.edits import Edit
from triton_backend.sampling.logit_bias import biases_of
from triton_backend.sampling.min_tokens import min_tokens_of
from triton_backend.sampling.penalties import penalties_of
from triton_backend.sampling.sampler import Sampler

LOGITS = [2.0, -1.0, 0.0, 4.0, -4.0, 1.0, 3.0, 0.5, 0.25, -2.0]
INF = math.inf


class EvenIds:
    """A mask that allows even ids, or nothing but an end."""

    def __init__(self, *, is_complete: bool = False) -> None:
        self.is_complete = is_complete

    def keeps(self, token_id: int) -> bool:
        return token_id % 2 == 0

    def apply(self, logits: Float32) -> None:
        logits[1::2] = -np.inf

    def accept(self, token_id: int) -> None:  # noqa: ARG002
        raise AssertionError("the sampler never moves a mask")


def row_of(*answer: int, drafted: tuple[int, ...] = (), **params: Any) -> LogitRow:
    """The row after prompt tokens 0, 1, 2 and an answer."""
    sequence = make_sequence("a", 3, **params)
    sequence.token_ids.extend(answer)
    return LogitRow(sequence, drafted)


def edited(edit: Edit | None) -> list[float]:
    logits = np.array(LOGITS, np.float32)
    if edit is not None:
        edit.apply(logits)
    return logits.tolist()


def changed(edit: Edit | None) -> dict[int, float]:
    """The logits that an edit changed."""
    pairs = enumerate(zip(LOGITS, edited(edit), strict=True))
    return {token_id: after for token_id, (before, after) in pairs if before != after}


def sample(row: LogitRow) -> int | None:
    chosen = Sampler(vocab_size=10, num_candidates=4)
    asks = chosen.asks([row])
    return chosen.sample([row], asks, result_from_rows(np.array([LOGITS], np.float32), asks))[0]


def test_links_that_are_off_give_nothing() -> None:
    row = row_of(3, 4)
    links = (biases_of, penalties_of, bad_words_of, min_tokens_of)
    assert [link(row) for link in links] == [None] * 4


def test_a_bias_is_added() -> None:
    assert changed(biases_of(row_of(logit_bias=((3, -1.5), (4, 100.0))))) == {3: 2.5, 4: 96}


def test_the_least_bias_is_a_ban_at_any_temperature() -> None:
    assert changed(biases_of(row_of(logit_bias=((3, -100.0), (1, -99.0))))) == {3: -INF, 1: -100}


def test_a_bias_bans_and_boosts_greedy_answers_too() -> None:
    assert sample(row_of()) == 3
    assert sample(row_of(logit_bias=((3, -100.0),))) == 6
    assert sample(row_of(logit_bias=((4, 8.5),))) == 4
    assert sample(row_of(logit_bias=((3, 8.5),))) == 3


def test_repetition_counts_prompt_and_answer_once_and_scales_by_sign() -> None:
    edit = penalties_of(row_of(3, 3, 4, repetition_penalty=2.0))
    assert changed(edit) == {0: 1, 1: -2, 3: 2, 4: -8}


def test_presence_counts_the_answer_alone_and_once() -> None:
    edit = penalties_of(row_of(3, 3, 1, presence_penalty=0.5))
    assert changed(edit) == {3: 3.5, 1: -1.5}


def test_frequency_counts_the_answer_alone_and_every_time() -> None:
    edit = penalties_of(row_of(3, 3, 1, frequency_penalty=0.5))
    assert changed(edit) == {3: 3, 1: -1.5}


def test_all_penalties_together_scale_before_they_subtract() -> None:
    params = {"repetition_penalty": 2.0, "presence_penalty": 1.0, "frequency_penalty": 0.25}
    assert changed(penalties_of(row_of(3, 3, **params))) == {0: 1, 1: -2, 3: 0.5}


def test_a_reward_is_a_penalty_below_its_neutral() -> None:
    params = {"repetition_penalty": 0.5, "presence_penalty": -1.0}
    assert changed(penalties_of(row_of(9, **params))) == {0: 4, 1: -0.5, 9: 0}


def test_drafted_tokens_are_penalised_like_known_ones() -> None:
    params = {"repetition_penalty": 2.0, "frequency_penalty": 0.5}
    drafted, known = row_of(3, drafted=(5, 3), **params), row_of(3, 5, 3, **params)
    assert edited(penalties_of(drafted)) == edited(penalties_of(known))


@pytest.mark.parametrize("params", [{"presence_penalty": 1}, {"repetition_penalty": 2.0}])
def test_an_id_that_may_be_lowered_may_lose_its_lead(params: dict[str, float]) -> None:
    penalties = penalties_of(row_of(3, drafted=(5,), **params))
    assert penalties is not None
    assert not penalties.keeps(5)
    assert not penalties.keeps(3)
    assert penalties.keeps(29)


def test_an_id_of_the_prompt_leads_on_unless_repetition_is_penalised() -> None:
    for params, keeps in (({"presence_penalty": 1}, True), ({"repetition_penalty": 2.0}, False)):
        penalties = penalties_of(row_of(3, **params))
        assert penalties is not None
        assert penalties.keeps(0) is keeps


def test_penalties_of_an_answer_that_has_not_begun_spare_the_prompt() -> None:
    assert changed(penalties_of(row_of(presence_penalty=1.0, frequency_penalty=1.0))) == {}


def test_penalised_tokens_can_still_be_appended_to_the_sequence() -> None:
    row = row_of(3, repetition_penalty=2.0)
    edited(edit := penalties_of(row))
    row.sequence.token_ids.append(1)  # a view of the array would forbid it
    assert edit is not None


@pytest.mark.parametrize(
    ("answer", "banned"),
    [((), {9}), ((5,), {6, 9}), ((5, 6), {7, 9}), ((5, 6, 7), {9}), ((6,), {9}), ((4, 5), {6, 9})],
)
def test_the_last_id_of_a_bad_word_is_banned_behind_the_others(
    answer: tuple[int, ...], banned: set[int]
) -> None:
    words = ((5, 6), (5, 6, 7), (9,))
    assert bad_words_of(row_of(*answer, bad_words=words)) == Ban(banned)


def test_a_bad_word_does_not_begin_in_the_prompt() -> None:
    assert bad_words_of(row_of(bad_words=((2, 5),))) is None
    assert bad_words_of(row_of(5, bad_words=((2, 5, 7),))) is None


def test_a_bad_word_may_run_through_drafts() -> None:
    assert bad_words_of(row_of(5, drafted=(6,), bad_words=((5, 6, 7),))) == Ban({7})
    assert bad_words_of(row_of(drafted=(5, 6), bad_words=((5, 6, 7), (6, 2)))) == Ban({7, 2})


def test_a_long_bad_word_is_found_in_a_long_answer() -> None:
    word = (*range(10), *range(10), *range(10), *range(10), *range(10), *range(10), 0, 1, 2, 3)
    assert len(word) == 64
    assert bad_words_of(row_of(7, *word[:-1], bad_words=(word,))) == Ban({3})
    assert bad_words_of(row_of(*word[1:-1], bad_words=(word,))) is None


def test_ids_that_end_an_answer_are_banned_until_it_is_long_enough() -> None:
    found = [
        min_tokens_of(row_of(*range(length), min_tokens=2, stop_token_ids=(7,)))
        for length in range(4)
    ]
    assert found == [Ban({7}), Ban({7}), None, None]


def test_drafts_count_towards_the_minimum() -> None:
    assert min_tokens_of(row_of(drafted=(1, 1), min_tokens=2, stop_token_ids=(7,))) is None


def test_without_stopping_ids_nothing_is_banned() -> None:
    assert min_tokens_of(row_of(min_tokens=2)) is None


def test_a_complete_answer_may_end_however_short_it_is() -> None:
    row = row_of(min_tokens=2, stop_token_ids=(8,))
    row.sequence.mask = EvenIds(is_complete=True)
    assert min_tokens_of(row) is None


@pytest.mark.parametrize("temperature", [0, 0.7, 100.0])
def test_a_mask_bans_what_it_does_not_allow(temperature: float) -> None:
    drawn = set()
    for seed in range(30):
        row = row_of(temperature=temperature, seed=seed)
        row.sequence.mask = EvenIds()
        drawn.add(sample(row))
    assert drawn <= {0, 2, 4, 6, 8}
    assert temperature or drawn == {6}


def test_no_bias_lifts_a_ban() -> None:
    row = row_of(logit_bias=((3, 100.0), (7, 100.0)), bad_words=((7,),))
    row.sequence.mask = EvenIds()
    assert sample(row) == 6


PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "logit_bias": st.dictionaries(st.integers(0, 9), st.sampled_from([-100, -1, 2])).map(
            lambda pairs: tuple(pairs.items())
        ),
        "repetition_penalty": st.sampled_from([0.5, 2.0]),
        "presence_penalty": st.sampled_from([-1.0, 1.0]),
        "frequency_penalty": st.sampled_from([-1.0, 1.0]),
        "bad_words": st.lists(st.tuples(st.integers(0, 9)), max_size=3).map(tuple),
    },
)


@given(params=PARAMS, answer=st.lists(st.integers(0, 9), max_size=4), best=st.integers(0, 9))
def test_what_a_link_says_it_keeps_is_kept(
    params: dict[str, Any], answer: list[int], best: int
) -> None:
    row = row_of(*answer, **params)
    for link in (biases_of, penalties_of, bad_words_of):
        edit = link(row)
        if edit is not None and edit.keeps(best):
            logits = np.full(10, 3.0, np.float32)
            logits[best] = 3.0 + 1e-6
            edit.apply(logits)
            assert logits.argmax() == best
