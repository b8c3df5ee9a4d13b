"""Eviction: when the room is needed or the time is up, least recently used first, a prompt's end first."""

import random

import pytest

from builder.errors import EngineError
from tests.triton_backend.kv.ledger import Ledger, Player

A, B = b"a", b"b"


def prompt(name: int, blocks: int) -> list[int]:
    """`blocks` full blocks of 4 tokens and one token more."""
    return [name * 100 + place for place in range(4 * blocks + 1)]


def found(ledger: Ledger, *prompts: list[int]) -> list[int]:
    """Blocks of each prompt that would be reused."""
    return [len(ledger.find(A, *tokens).blocks) for tokens in prompts]


def test_nothing_is_evicted_while_blocks_are_free() -> None:
    ledger = Ledger(num_blocks=6)
    ledger.serve(A, *prompt(1, 2))
    ledger.cache.allocate(3)
    assert found(ledger, prompt(1, 2)) == [2]


def test_the_end_of_the_prompt_used_longest_ago_goes_first() -> None:
    ledger = Ledger(num_blocks=8)
    one, two = prompt(1, 3), prompt(2, 3)
    ledger.serve(A, *one)
    ledger.serve(A, *two)
    remaining = []
    for _ in range(7):
        ledger.cache.allocate(1)
        remaining.append(found(ledger, one, two))
    assert remaining == [[3, 3], [2, 3], [1, 3], [0, 3], [0, 2], [0, 1], [0, 0]]


def test_what_was_used_again_stays_longer() -> None:
    ledger = Ledger(num_blocks=8)
    one, two = prompt(1, 2), prompt(2, 2)
    ledger.serve(A, *one)
    ledger.serve(A, *two)
    ledger.serve(A, *one)
    ledger.cache.allocate(5)
    assert found(ledger, one, two) == [2, 0]


def test_a_prefix_outlives_all_that_builds_on_it() -> None:
    ledger = Ledger(num_blocks=8)
    one, fork = prompt(1, 3), [*prompt(1, 1)[:4], 7, 7, 7, 7, 7]
    ledger.serve(A, *one)
    ledger.serve(A, *fork)
    ledger.cache.allocate(5)
    assert found(ledger, one, fork) == [1, 2]
    ledger.cache.allocate(1)
    assert found(ledger, one, fork) == [1, 1]


def test_blocks_that_somebody_holds_are_not_evicted() -> None:
    ledger = Ledger(num_blocks=6)
    player = ledger.start(A, prompt(1, 2))
    assert player is not None
    ledger.compute(player)
    ledger.cache.allocate(2)
    with pytest.raises(EngineError, match="0 are available"):
        ledger.cache.allocate(1)
    assert found(ledger, prompt(1, 2)) == [2]


def test_a_copied_block_counts_as_used() -> None:
    ledger = Ledger(num_blocks=9)
    ledger.serve(A, 1, 2, 3, 4, 5, 6, 7, 8)
    ledger.serve(A, *prompt(2, 2))
    ledger.serve(A, 1, 2, 3, 4, 5, 6, 9)
    ledger.cache.allocate(6)
    assert found(ledger, prompt(2, 2), [1, 2, 3, 4, 5, 6, 7, 8, 9]) == [0, 2]


def test_who_builds_on_an_evicted_copy_keeps_its_blocks_and_heals_the_prefix() -> None:
    ledger = Ledger(num_blocks=8)
    one = prompt(1, 2)
    first, second = ledger.start(A, one[:5]), ledger.start(A, one)
    assert first is not None
    assert second is not None
    ledger.compute(first)
    ledger.compute(second)
    ledger.stop(first)
    ledger.check()
    # The first's block is idle, and the second's block builds on it.
    assert (ledger.cache.num_idle, ledger.cache.num_cached) == (1, 2)
    ledger.players.append(first)
    first.table.extend(ledger.allocate(ledger.cache.num_available))
    ledger.check()
    assert ledger.cache.num_cached == 0
    ledger.compute(second)
    assert ledger.cache.num_cached == 2
    assert set(ledger.find(A, *one).blocks) == set(second.table[:2])
    ledger.check()


def test_all_that_nobody_holds_is_available_whatever_builds_on_it() -> None:
    ledger = Ledger(num_blocks=8)
    one = prompt(1, 2)
    players = [ledger.start(A, one[:5]), ledger.start(A, one)]
    for player in players:
        assert player is not None
        ledger.compute(player)
    assert players[0] is not None
    ledger.stop(players[0])
    assert ledger.cache.num_available == 7 - 3
    assert len(ledger.cache.allocate(4)) == 4


def test_blocks_live_until_the_time_to_live_after_their_last_use() -> None:
    ledger = Ledger(ttl_s=10)
    ledger.serve(A, *prompt(1, 2))
    ledger.clock.now_s = 5
    ledger.serve(A, *prompt(2, 1))
    ledger.clock.now_s = 9.9
    assert ledger.cache.expire() == 0
    ledger.clock.now_s = 10
    assert ledger.cache.expire() == 2
    assert found(ledger, prompt(1, 2), prompt(2, 1)) == [0, 1]
    ledger.check()


def test_use_renews_the_time_to_live_of_the_prefix_that_was_used() -> None:
    ledger = Ledger(ttl_s=10)
    ledger.serve(A, *prompt(1, 3))
    ledger.clock.now_s = 6
    ledger.serve(A, *prompt(1, 1))
    ledger.clock.now_s = 12
    assert ledger.cache.expire() == 2
    assert found(ledger, prompt(1, 3)) == [1]


def test_what_is_held_does_not_expire() -> None:
    ledger = Ledger(ttl_s=10)
    player = ledger.start(A, prompt(1, 2))
    assert player is not None
    ledger.compute(player)
    ledger.clock.now_s = 100
    assert ledger.cache.expire() == 0
    ledger.stop(player)
    ledger.clock.now_s = 109
    assert ledger.cache.expire() == 0
    ledger.clock.now_s = 110
    assert ledger.cache.expire() == 2


def two_of_one_prompt(ledger: Ledger) -> tuple[Player, Player]:
    """Two who compute a prompt of two blocks side by side; the first's first block is the one that is found."""
    players = [ledger.start(A, prompt(1, 2)) for _ in range(2)]
    first, second = (player for player in players if player is not None)
    ledger.compute(first, 4)
    ledger.compute(second, 4)
    return first, second


def test_who_builds_on_a_block_uses_it_while_holding_a_copy_of_its_own() -> None:
    ledger = Ledger(ttl_s=4)
    first, second = two_of_one_prompt(ledger)
    ledger.stop(first)
    ledger.clock.now_s = 3
    ledger.compute(second)
    ledger.clock.now_s = 4
    assert ledger.cache.expire() == 0
    assert found(ledger, prompt(1, 2)) == [2]
    ledger.clock.now_s = 7
    assert ledger.cache.expire() == 2
    ledger.check()


def test_a_block_that_is_built_on_is_evicted_after_what_was_given_back_before() -> None:
    ledger = Ledger(num_blocks=10)
    first, second = two_of_one_prompt(ledger)
    ledger.stop(first)
    ledger.serve(A, *prompt(2, 2))
    ledger.compute(second)
    ledger.cache.allocate(ledger.cache.pool.num_free + 2)
    assert found(ledger, prompt(1, 2), prompt(2, 2)) == [2, 0]


def test_without_a_time_to_live_nothing_expires() -> None:
    ledger = Ledger()
    ledger.serve(A, *prompt(1, 2))
    ledger.clock.now_s = 1e9
    assert ledger.cache.expire() == 0


def test_a_working_set_a_little_too_large_is_not_lost_as_a_whole() -> None:
    ledger = Ledger(num_blocks=1 + 24 * 10 * 3 // 4 + 1)
    prompts = [prompt(name, 10) for name in range(24)]
    order = random.Random(0)  # noqa: S311
    hits = []
    for _ in range(400):
        hits.append(len(ledger.serve(A, *order.choice(prompts)).blocks))
        ledger.check()
    # A cache of three quarters of what is used at random finds about as much.
    assert sum(hits[100:]) / (300 * 10) > 0.6


def test_giving_a_prompt_back_walks_it_once() -> None:
    ledger = Ledger(num_blocks=200)
    players = [ledger.start(A, prompt(1, 20)) for _ in range(2)]
    walks: list[float] = []

    def clock() -> float:
        walks.append(0.0)
        return 0.0

    for player in players:
        assert player is not None
        ledger.compute(player)
    ledger.cache._clock = clock
    for player in players:
        assert player is not None
        ledger.stop(player)
    # The second gave back copies that were never published.
    assert len(walks) == 1
