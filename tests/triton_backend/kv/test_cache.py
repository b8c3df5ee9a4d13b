"""The block cache: what is found, what is taken and what is published."""

import pytest

from builder.errors import EngineError
from tests.triton_backend.kv.ledger import Ledger, Player, ids
from triton_backend.kv.hit import NO_HIT

A = b"a"
PROMPT = tuple(range(10))
"""2 full blocks of 4 and a half one."""


def test_an_empty_cache_finds_nothing() -> None:
    assert Ledger().find(A, *PROMPT) == NO_HIT


def test_full_blocks_of_one_sequence_are_found_by_the_next() -> None:
    ledger = Ledger()
    ledger.serve(A, *PROMPT)
    hit = ledger.find(A, *PROMPT, 99)
    assert (hit.num_tokens, hit.num_partial_tokens, len(hit.blocks)) == (8, 0, 2)
    assert ledger.find(A, 0, 1, 2, 3, 99, 98).num_reused == 4
    assert ledger.find(A, 99, 1, 2, 3, 4, 5) == NO_HIT


def test_a_block_that_is_not_complete_is_not_found() -> None:
    ledger = Ledger()
    player = ledger.start(A, PROMPT)
    assert player is not None
    ledger.compute(player, 7)
    assert ledger.find(A, *PROMPT).num_tokens == 4
    ledger.compute(player, 1)
    assert ledger.find(A, *PROMPT).num_tokens == 8


def test_blocks_are_found_while_their_owner_still_runs_and_are_shared() -> None:
    ledger = Ledger()
    first, second = ledger.start(A, PROMPT), None
    assert first is not None
    ledger.compute(first)
    second = ledger.start(A, PROMPT)
    assert second is not None
    assert second.table[:2] == first.table[:2]
    assert second.table[2] != first.table[2]
    ledger.check()
    ledger.stop(first)
    ledger.check()
    ledger.stop(second)
    ledger.check()
    assert (ledger.cache.num_idle, ledger.cache.num_held) == (2, 0)


def test_no_more_than_the_limit_is_found() -> None:
    ledger = Ledger()
    ledger.serve(A, *PROMPT)
    chain = ledger.cache.new_chain(A)
    found = [ledger.cache.lookup(chain, ids(*PROMPT), limit).num_reused for limit in range(11)]
    assert found == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]
    matched = [ledger.cache.match(chain, ids(*PROMPT), limit) for limit in range(11)]
    assert matched == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8]


def test_the_last_block_is_found_in_part() -> None:
    ledger = Ledger()
    ledger.serve(A, *PROMPT)
    hit = ledger.find(A, 0, 1, 2, 3, 4, 5, 99)
    assert (hit.num_tokens, hit.num_partial_tokens, hit.num_reused) == (4, 2, 6)
    assert hit.partial_block not in {*hit.blocks, None}


def test_a_prompt_that_is_cached_whole_leaves_one_token_to_compute() -> None:
    ledger = Ledger()
    ledger.serve(A, *range(8))
    hit = ledger.find(A, *range(8))
    assert (hit.num_tokens, hit.num_partial_tokens) == (4, 3)


def test_of_partial_matches_the_longest_and_then_the_newest_is_taken() -> None:
    ledger = Ledger()
    for last in ((5, 6, 7), (5, 6, 8), (5, 9, 9), (6, 6, 6)):
        ledger.serve(A, 1, 2, 3, 4, 4, *last)
    hit = ledger.find(A, 1, 2, 3, 4, 4, 5, 6, 1)
    assert hit.num_partial_tokens == 3
    assert hit.partial_block is not None
    assert ledger.content[hit.partial_block][3] == (A, (1, 2, 3, 4, 4, 5, 6, 8))


def test_a_partial_match_can_begin_a_prompt() -> None:
    ledger = Ledger()
    ledger.serve(A, *range(4))
    assert ledger.find(A, 0, 1, 9).num_partial_tokens == 2


def test_only_so_many_continuations_are_looked_at() -> None:
    ledger = Ledger(num_blocks=200)
    for token in range(100):
        ledger.serve(A, 0, 1, 2, 3, token, 0, 0, 0)
    assert ledger.find(A, 0, 1, 2, 3, 36, 0, 1).num_partial_tokens == 2
    assert ledger.find(A, 0, 1, 2, 3, 35, 0, 1).num_partial_tokens == 0


def test_the_partial_block_is_held_until_it_was_copied() -> None:
    ledger = Ledger(num_blocks=4)
    ledger.serve(A, *range(8))
    hit = ledger.find(A, *range(8))
    assert (hit.num_idle, hit.is_partial_idle) == (1, True)
    ledger.cache.take(hit)
    assert (ledger.cache.num_idle, ledger.cache.num_available) == (0, 1)
    ledger.cache.check_integrity([[*hit.blocks], [hit.partial_block or 0]])
    ledger.cache.release([hit.partial_block or 0])
    assert (ledger.cache.num_idle, ledger.cache.num_available) == (1, 2)


def test_a_hit_can_be_taken_without_its_partial_block() -> None:
    ledger = Ledger()
    ledger.serve(A, *range(8))
    hit = ledger.find(A, *range(8)).whole()
    assert (hit.num_reused, hit.partial_block, hit.num_idle) == (4, None, 1)
    ledger.cache.take(hit)
    ledger.cache.check_integrity([hit.blocks])


def test_what_a_hit_costs_counts_blocks_that_others_could_have() -> None:
    ledger = Ledger(num_blocks=11)
    ledger.serve(A, *range(8))
    hit = ledger.find(A, *range(8))
    # 1 found and idle, 1 to copy and idle, 1 new.
    assert ledger.cache.num_needed(hit, 8) == 3
    assert ledger.cache.num_needed(hit.whole(), 8) == 2
    holder = ledger.start(A, range(8))
    assert holder is not None
    again = ledger.find(A, *range(8))
    assert (again.num_idle, again.is_partial_idle) == (0, True)
    assert ledger.cache.num_needed(again, 8) == 2
    assert ledger.cache.num_needed(again.whole(), 8) == 1
    assert ledger.start(A, range(9)) is not None
    held = ledger.find(A, *range(8))
    assert (held.num_partial_tokens, held.num_idle, held.is_partial_idle) == (3, 0, False)
    assert ledger.cache.num_needed(held, 8) == 1


def test_looking_up_takes_nothing() -> None:
    ledger = Ledger()
    ledger.serve(A, *PROMPT)
    before = ledger.cache.num_available, ledger.cache.num_idle, ledger.cache.view()
    ledger.find(A, *PROMPT)
    assert (ledger.cache.num_available, ledger.cache.num_idle, ledger.cache.view()) == before
    ledger.check()


def test_tokens_that_are_there_already_keep_their_first_block() -> None:
    ledger = Ledger()
    first, second = (ledger.start(A, PROMPT) for _ in range(2))
    assert first is not None
    assert second is not None
    ledger.compute(first)
    ledger.compute(second)
    assert ledger.cache.num_cached == 2
    assert set(ledger.find(A, *PROMPT).blocks) == set(first.table[:2])
    ledger.stop(second)
    assert ledger.cache.num_idle == 0
    ledger.check()


def test_who_came_second_adds_what_is_new() -> None:
    ledger = Ledger()
    first, second = ledger.start(A, range(6)), ledger.start(A, range(10))
    assert first is not None
    assert second is not None
    ledger.compute(first)
    ledger.stop(first)
    ledger.compute(second)
    assert ledger.cache.num_cached == 2
    ledger.check()
    ledger.stop(second)
    assert ledger.find(A, *PROMPT).num_tokens == 8
    ledger.check()


def test_a_sequence_that_lost_its_blocks_starts_again_from_what_is_left() -> None:
    ledger = Ledger()
    player = ledger.start(A, PROMPT)
    assert player is not None
    ledger.compute(player)
    ledger.stop(player)
    assert ledger.admit(player)
    assert player.num_computed == 8
    ledger.compute(player)
    for token in range(20, 24):
        assert ledger.grow(player, token)
        ledger.compute(player)
    ledger.stop(player)
    assert ledger.find(A, *PROMPT, 20, 21, 22, 23).num_tokens == 12
    ledger.check()


def test_a_sequence_that_was_forgotten_meanwhile_is_published_anew() -> None:
    ledger = Ledger()
    player = ledger.start(A, PROMPT)
    assert player is not None
    ledger.compute(player)
    ledger.stop(player)
    ledger.cache.clear()
    assert ledger.admit(player)
    assert player.num_computed == 0
    ledger.compute(player)
    assert ledger.cache.num_cached == 2
    ledger.check()


def test_a_cleared_cache_is_as_new() -> None:
    ledger = Ledger()
    ledger.serve(A, *PROMPT)
    player = ledger.start(A, PROMPT)
    assert player is not None
    ledger.cache.clear()
    assert (ledger.cache.num_cached, ledger.find(A, *PROMPT)) == (0, NO_HIT)
    ledger.check()
    ledger.stop(player)
    assert ledger.cache.pool.num_used == 0


def test_blocks_that_somebody_holds_can_be_shared() -> None:
    ledger = Ledger()
    leader = ledger.start(A, PROMPT)
    assert leader is not None
    follower = Player(A, PROMPT, ledger.cache.new_chain(A))
    ledger.cache.share(leader.table[:2])
    follower.table.extend(leader.table[:2])
    ledger.players.append(follower)
    ledger.check()
    ledger.stop(leader)
    ledger.check()
    assert ledger.cache.num_held == 2


def test_asking_for_more_than_is_available_takes_and_evicts_nothing() -> None:
    ledger = Ledger(num_blocks=6)
    ledger.serve(A, *range(8))
    with pytest.raises(
        EngineError, match=r"6 blocks were asked .* 5 are available: 3 free, 2 idle"
    ):
        ledger.cache.allocate(6)
    assert (ledger.cache.num_cached, ledger.cache.num_available) == (2, 5)
    ledger.check()
