"""Each step of the chain alone: by hand, off = identity, and bounds that hold what they bound."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_backend.sampling.draw import draw
from triton_backend.sampling.kept import Kept
from triton_backend.sampling.min_p import keep_min_p
from triton_backend.sampling.temperature import weigh
from triton_backend.sampling.top_k import keep_top_k
from triton_backend.sampling.top_p import keep_top_p

HALVES = np.array([[3, 2, 1, 0]], np.float32) * np.float32(math.log(2))
"""Weights 1, 1/2, 1/4, 1/8: a mass of 15/8."""


def kept_of(logits: np.ndarray, *, vocab_size: int | None = None, temperature: float = 1.0) -> Kept:
    """Weigh rows of which `logits` are the largest of V; the rest is worth nothing."""
    at = np.full(len(logits), temperature, np.float32)
    sums = np.log(np.exp(logits / at[:, None]).sum(axis=1)).astype(np.float32)
    return weigh(logits, at, np.array([sums, sums]), vocab_size=vocab_size or logits.shape[1])


def kept_with(cumulative: list[float], mass: float, *, vocab_size: int) -> Kept:
    """One row in exact numbers."""
    last = cumulative[-1] - (cumulative[-2] if len(cumulative) > 1 else 0)
    return Kept(
        weights=np.diff(np.array([cumulative]), prepend=0.0),
        cumulative=np.array([[*cumulative, np.inf]]),
        mass=np.array([[mass], [mass]]),
        next_weight=np.array([0.0 if len(cumulative) == vocab_size else last]),
        vocab_size=vocab_size,
    )


def test_weights_are_relative_to_the_largest() -> None:
    kept = kept_of(HALVES)
    assert kept.cumulative[0] == pytest.approx([1, 1.5, 1.75, 1.875, np.inf])
    assert kept.num_tokens == 4
    assert kept.mass[:, 0] == pytest.approx([1.875, 1.875])
    assert kept.next_weight[0] == 0


def test_temperature_flattens() -> None:
    kept = kept_of(HALVES, temperature=2.0)
    ratios = np.diff(kept.cumulative[0, :-1], prepend=0)
    assert ratios == pytest.approx([1, 2**-0.5, 2**-1, 2**-1.5])


def test_what_is_not_at_hand_weighs_no_more_than_the_last_at_hand() -> None:
    assert kept_of(HALVES, vocab_size=9).next_weight[0] == pytest.approx(0.125)


@pytest.mark.parametrize(("top_k", "mass"), [(1, 1), (2, 1.5), (3, 1.75), (4, 2), (0, 2), (9, 2)])
def test_top_k_keeps_the_weight_of_k_tokens(top_k: int, mass: float) -> None:
    # A mass of 2 where the weights sum to 1.875 shows where the mass was left alone.
    kept = keep_top_k(kept_with([1, 1.5, 1.75, 1.875], 2, vocab_size=4), np.array([top_k]))
    assert kept.mass[:, 0].tolist() == [mass, mass]


def test_top_k_beyond_the_tokens_at_hand_is_bounded() -> None:
    kept = keep_top_k(kept_with([1, 1.5], 2, vocab_size=9), np.array([4]))
    assert kept.mass[0, 0] == 1.5
    assert kept.mass[1, 0] == pytest.approx(1.5 + 2 * 0.5)
    assert kept.mass[1, 0] > 1.5 + 2 * 0.5


@pytest.mark.parametrize(
    ("top_p", "mass"), [(0, 1), (0.5, 1), (0.51, 1.5), (0.75, 1.5), (0.76, 1.75), (0.9, 1.875)]
)
def test_top_p_keeps_up_to_the_token_that_reaches_the_share(top_p: float, mass: float) -> None:
    kept = keep_top_p(kept_with([1, 1.5, 1.75, 1.875], 2, vocab_size=4), np.array([top_p]))
    assert kept.mass[:, 0].tolist() == [mass, mass]


def test_top_p_that_no_token_reaches_keeps_all() -> None:
    kept = keep_top_p(kept_with([1, 1.5, 1.75, 1.875], 2, vocab_size=4), np.array([0.99]))
    assert kept.mass[:, 0].tolist() == [1.98, 1.98]


def test_top_p_of_1_changes_nothing() -> None:
    kept = kept_with([1, 1.5], 2, vocab_size=9)
    assert (keep_top_p(kept, np.array([1.0])).mass == kept.mass).all()


def test_top_p_beyond_the_tokens_at_hand_is_bounded() -> None:
    kept = keep_top_p(kept_with([1, 1.5], 2, vocab_size=9), np.array([0.9]))
    assert kept.mass[:, 0].tolist() == [1.8, 2.3]


def test_steps_of_the_chain_work_on_what_the_ones_before_kept() -> None:
    kept = kept_with([1, 1.5, 1.75, 1.875], 2, vocab_size=4)
    kept = keep_top_p(keep_top_k(kept, np.array([2])), np.array([0.66]))
    assert kept.mass[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("uniform", "rank"), [(0, 0), (0.49, 0), (0.5, 1), (0.74, 1), (0.75, 2), (0.874, 2)]
)
def test_the_draw_inverts_the_cumulative_weight(uniform: float, rank: int) -> None:
    ranks, is_decided = draw(kept_with([1, 1.5, 1.75], 2, vocab_size=9), np.array([uniform]))
    assert (ranks.tolist(), is_decided.tolist()) == ([rank], [True])


def test_a_draw_beyond_the_tokens_at_hand_is_undecided() -> None:
    _, is_decided = draw(kept_with([1, 1.5, 1.75], 2, vocab_size=9), np.array([0.875]))
    assert is_decided.tolist() == [False]


def test_a_draw_into_the_rounding_of_a_whole_row_is_the_likeliest() -> None:
    ranks, is_decided = draw(kept_with([1, 1.5, 1.75], 2, vocab_size=3), np.array([0.9]))
    assert (ranks.tolist(), is_decided.tolist()) == ([0], [True])


@pytest.mark.parametrize(("uniform", "is_decided"), [(0.4, True), (0.5, False), (0.6, True)])
def test_bounds_decide_where_they_agree(uniform: float, is_decided: bool) -> None:
    kept = Kept(
        weights=np.array([[1.0, 0.5]]),
        cumulative=np.array([[1.0, 1.5, np.inf]]),
        mass=np.array([[1.9], [2.2]]),
        next_weight=np.array([0.5]),
        vocab_size=9,
    )
    assert draw(kept, np.array([uniform]))[1].tolist() == [is_decided]


@given(
    seed=st.integers(0, 2**32),
    at_hand=st.integers(1, 40),
    top_k=st.integers(0, 45),
    top_p=st.floats(0, 1),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_fewer_tokens_at_hand_never_decide_otherwise(
    seed: int, at_hand: int, top_k: int, top_p: float, uniform: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = -np.sort(-rng.integers(0, 40, (1, 40)).astype(np.float32) / 8)
    sums = np.log(np.exp(logits).sum(axis=1)).astype(np.float32)

    def drawn(num_tokens: int) -> tuple[float, float, int, bool]:
        kept = weigh(
            logits[:, :num_tokens], np.ones(1, np.float32), np.array([sums, sums]), vocab_size=40
        )
        kept = keep_top_p(keep_top_k(kept, np.array([top_k])), np.array([top_p]))
        ranks, is_decided = draw(kept, np.array([uniform]))
        return kept.mass[0, 0], kept.mass[1, 0], int(ranks[0]), bool(is_decided[0])

    _, mass, rank, is_whole_decided = drawn(40)
    least, most, rank_of_few, is_decided = drawn(at_hand)
    assert is_whole_decided
    assert least <= mass <= most
    assert not is_decided or rank_of_few == rank


@pytest.mark.parametrize(
    ("min_p", "mass"),
    [(1.0, 1), (0.75, 1), (0.5, 1.5), (0.3, 1.5), (0.25, 1.75), (0.125, 1.875), (0.1, 2), (0, 2)],
)
def test_min_p_keeps_tokens_at_least_so_many_times_as_likely_as_the_first(
    min_p: float, mass: float
) -> None:
    # A mass of 2 where the weights sum to 1.875 shows where the mass was left alone.
    whole = kept_with([1, 1.5, 1.75, 1.875], 2, vocab_size=5 if mass < 2 else 4)
    kept = keep_min_p(whole, np.array([min_p]))
    assert kept.mass[0, 0] == mass


def test_min_p_keeps_all_tokens_that_tie_with_the_first() -> None:
    kept = keep_min_p(kept_with([1, 2, 3, 3.5], 3.5, vocab_size=4), np.array([1.0]))
    assert kept.mass[:, 0].tolist() == [3, 3]


def test_min_p_that_passes_all_at_hand_leaves_open_how_many_more_pass() -> None:
    kept = keep_min_p(kept_with([1, 1.5], 4, vocab_size=9), np.array([0.2]))
    assert kept.mass[:, 0].tolist() == [1.5, 4]


def test_min_p_never_gives_back_what_top_k_took() -> None:
    kept = keep_top_k(kept_with([1, 1.5, 1.75, 1.875], 2, vocab_size=4), np.array([2]))
    assert keep_min_p(kept, np.array([0.2])).mass[:, 0].tolist() == [1.5, 1.5]
    assert keep_min_p(kept, np.array([0.9])).mass[:, 0].tolist() == [1, 1]
