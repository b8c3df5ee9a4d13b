"""Any mix of coming, computing, going, erasing and expiring: the cache is what a naive model says it is."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.triton_backend.kv.ledger import Ledger, Player
from tests.triton_backend.kv.model import Model
from triton_backend.kv import chain as chain_module
from triton_backend.kv.events import Cleared, EventStream, Stored, Subscription

TTL_S = 3
DOMAINS = st.sampled_from([b"a", b"b", b"", None])
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
PLACES = st.integers(0, 2**16)


class CacheMachine(RuleBasedStateMachine):
    ledger: Ledger
    listener: Subscription
    model: Model

    @initialize(
        num_blocks=st.integers(4, 16),
        size=st.integers(1, 3),
        common=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), max_size=2),
    )
    def open(self, num_blocks: int, size: int, common: list[list[int]]) -> None:
        stream = EventStream()
        self.ledger = Ledger(num_blocks, size, ttl_s=TTL_S, events=stream, common=common)
        self.listener = stream.subscribe()
        self.model = Model(num_blocks - 1, size)
        self.common: dict[Player, int] = {}
        self.stopped: list[Player] = []
        self.followed: set[bytes] = set()

    @property
    def held(self) -> set[int]:
        return {block for player in self.ledger.players for block in player.table}

    def has_players(self) -> bool:
        return bool(self.ledger.players)

    def pick(self, place: int) -> Player:
        return self.ledger.players[place % len(self.ledger.players)]

    @rule(domain=DOMAINS, tokens=PROMPTS)
    def come(self, domain: bytes | None, tokens: list[int]) -> None:
        player = Player(domain, tokens, self.ledger.cache.new_chain(domain))
        self.common[player] = self.ledger.num_common_tokens(player.token_ids)
        self.admit(player)

    @precondition(lambda self: self.stopped)
    @rule(place=PLACES)
    def come_again(self, place: int) -> None:
        self.admit(self.stopped.pop(place % len(self.stopped)))

    def admit(self, player: Player) -> None:
        """Let a player in if there is room; what it finds is what the model finds."""
        found: list[int] = []
        num_partial, limit = 0, len(player.token_ids) - 1
        if player.chain.domain is not None:
            tokens = player.token_ids[:limit]
            found, num_partial = self.model.find(player.chain.domain, tokens, self.common[player])
        hit = self.ledger.cache.lookup(player.chain, player.token_ids, limit)
        assert (list(hit.blocks), hit.num_partial_tokens) == (found, num_partial)
        matched = self.ledger.cache.match(player.chain, player.token_ids, limit)
        assert matched == len(found) * self.model.size

        partial = set() if hit.partial_block is None else {hit.partial_block}
        num_new = -(-len(player.token_ids) // self.model.size) - len(found)
        if len(self.held | {*found} | partial) + num_new > self.model.room:
            partial = set()
        held = self.held | {*found} | partial
        fits = len(held) + num_new <= self.model.room
        if fits:
            self.model.make_room(num_new, held)
        assert self.ledger.admit(player) == fits
        if fits and partial:
            assert player.num_computed == hit.num_reused
            self.model.give_back(partial, self.held, self.ledger.clock.now_s)

    @precondition(has_players)
    @rule(place=PLACES, count=st.none() | st.integers(1, 6))
    def compute(self, place: int, count: int | None) -> None:
        player = self.pick(place)
        self.ledger.compute(player, count)
        if player.chain.domain is not None:
            computed = player.token_ids[: player.num_computed]
            names = self.model.names(player.chain.domain, computed, self.common[player])
            self.model.publish(names, player.table, self.held, self.ledger.clock.now_s)

    @precondition(has_players)
    @rule(place=PLACES, token=st.integers(0, 1))
    def grow(self, place: int, token: int) -> None:
        player = self.pick(place)
        if len(player.token_ids) % self.model.size == 0 and len(self.held) < self.model.room:
            self.model.make_room(1, self.held)
        self.ledger.grow(player, token)

    @precondition(has_players)
    @rule(place=PLACES, comes_again=st.booleans())
    def stop(self, place: int, comes_again: bool) -> None:
        player = self.pick(place)
        released = set(player.table)
        self.ledger.stop(player)
        self.model.give_back(released, self.held, self.ledger.clock.now_s)
        if comes_again:
            self.stopped.append(player)

    @rule(seconds=st.integers(0, TTL_S))
    def expire(self, seconds: int) -> None:
        self.ledger.clock.now_s += seconds
        self.ledger.cache.expire()
        self.model.expire(self.ledger.clock.now_s - TTL_S, self.held)

    @rule(domain=st.sampled_from([b"a", b"b", b""]))
    def erase(self, domain: bytes) -> None:
        for player in (*self.ledger.players, *self.stopped):
            if player.domain == domain:
                player.chain.close()
        before = len(self.model.blocks)
        self.model.erase(domain)
        assert self.ledger.cache.erase(domain) == before - len(self.model.blocks)

    @rule(really=st.integers(0, 9))
    def clear(self, really: int) -> None:
        if really == 0:
            self.ledger.cache.clear()
            self.model.blocks.clear()

    @invariant()
    def agrees(self) -> None:
        self.ledger.check()
        view = self.ledger.cache.view()
        assert sorted(block for run in view for block in run.blocks) == sorted(
            self.model.blocks.values()
        )
        assert self.ledger.cache.num_cached == len(self.model.blocks)

    @invariant()
    def listener_knows(self) -> None:
        drained = self.listener.drain()
        assert drained.num_missed == 0
        for _, event in drained.events:
            if isinstance(event, Stored):
                assert event.parent is None or event.parent in self.followed
                assert not self.followed & set(event.keys)
                self.followed |= set(event.keys)
            elif isinstance(event, Cleared):
                self.followed.clear()
            else:
                assert self.followed >= set(event.keys)
                self.followed -= set(event.keys)
        snapshot = {key for event in self.ledger.cache.snapshot() for key in event.keys}
        assert self.followed == snapshot


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCacheMachine = CacheMachine.TestCase


@pytest.mark.slow
class TestCacheMachineLong(CacheMachine.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=60, deadline=None)


def forged_key(parent: bytes, token_ids: "list[int]") -> bytes:
    """Keys of 2 bits: nearly all collide."""
    return bytes([(parent[0] + sum(token_ids)) % 4])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 3), has_common=st.booleans())
def test_colliding_keys_cost_hits_and_never_an_answer(
    seed: int, size: int, has_common: bool
) -> None:
    rng = random.Random(seed)  # noqa: S311
    ledger = Ledger(12, size, common=[[0, 1, 1]] if has_common else [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_module, "child_key", forged_key)
        patch.setattr(chain_module, "fork_key", lambda parent, _: parent)
        patch.setattr(chain_module, "root_key", lambda _: b"\0")
        for _ in range(60):
            if ledger.players and rng.random() < 0.5:
                player = rng.choice(ledger.players)
                ledger.compute(player, rng.randint(1, 6))
                if rng.random() < 0.5:
                    ledger.stop(player)
            else:
                # Its hit is compared with what was written in each block.
                tokens = rng.choices((0, 1), k=rng.randint(1, 8))
                ledger.start(rng.choice((b"a", b"b", None)), tokens)
            ledger.check()


def test_a_forged_key_does_not_open_another_domain() -> None:
    ledger = Ledger()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_module, "root_key", lambda _: b"\0")
        ledger.serve(b"a", *range(10))
        assert ledger.find(b"a", *range(10)).num_tokens == 8
        assert ledger.find(b"b", *range(10)).num_reused == 0
        ledger.serve(b"b", *range(10))
    assert ledger.cache.num_cached == 2
