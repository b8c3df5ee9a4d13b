"""Events: who follows them knows what is stored, or knows that it missed some."""

from tests.triton_backend.kv.ledger import Ledger, ids
from triton_backend.kv.events import Cleared, Event, EventStream, Removed, Stored, Subscription
from triton_backend.kv.keys import COMMON, child_key, root_key

A, B = b"a", b"b"
PROMPT = tuple(range(10))


def listening(num_blocks: int = 20, **given: object) -> tuple[Ledger, Subscription]:
    stream = EventStream()
    return Ledger(num_blocks, events=stream, **given), stream.subscribe()  # type: ignore[arg-type]


def heard(subscription: Subscription) -> list[Event]:
    return [event for _, event in subscription.drain().events]


def test_a_published_run_is_told_with_keys_parent_and_tokens() -> None:
    ledger, subscription = listening()
    ledger.serve(A, *PROMPT)
    first = child_key(root_key(A), ids(0, 1, 2, 3))
    second = child_key(first, ids(4, 5, 6, 7))
    assert heard(subscription) == [Stored((first, second), None, ids(*range(8)), 4, A)]


def test_a_run_that_goes_on_names_the_block_before_it() -> None:
    ledger, subscription = listening()
    player = ledger.start(A, PROMPT)
    assert player is not None
    ledger.compute(player, 5)
    ledger.compute(player)
    first, second = heard(subscription)
    assert isinstance(first, Stored)
    assert isinstance(second, Stored)
    assert (second.parent, second.token_ids) == (first.keys[-1], ids(4, 5, 6, 7))


def test_common_blocks_are_a_run_of_their_own() -> None:
    ledger, subscription = listening(common=[range(4)])
    ledger.serve(A, *PROMPT)
    common, own = heard(subscription)
    assert isinstance(common, Stored)
    assert isinstance(own, Stored)
    assert [common.domain, own.domain] == [COMMON, A]
    assert own.parent == common.keys[-1]


def test_nothing_new_is_no_event() -> None:
    ledger, subscription = listening()
    ledger.serve(A, *PROMPT)
    subscription.drain()
    ledger.serve(A, *PROMPT)
    ledger.cache.erase(B)
    ledger.cache.expire()
    assert heard(subscription) == []


def test_evicted_expired_and_erased_blocks_are_told() -> None:
    ledger, subscription = listening(6, ttl_s=10)
    ledger.serve(A, *PROMPT)
    (stored,) = heard(subscription)
    assert isinstance(stored, Stored)
    ledger.cache.release(ledger.cache.allocate(4))
    assert heard(subscription) == [Removed((stored.keys[1],))]
    ledger.clock.now_s = 10
    ledger.cache.expire()
    assert heard(subscription) == [Removed((stored.keys[0],))]
    ledger.serve(A, *PROMPT)
    ledger.cache.erase(A)
    assert heard(subscription) == [stored, Removed(stored.keys)]


def test_clearing_is_one_event() -> None:
    ledger, subscription = listening()
    ledger.cache.clear()
    assert heard(subscription) == [Cleared()]


def test_events_are_numbered_one_by_one_across_subscriptions() -> None:
    stream = EventStream()
    stream.emit(Cleared())
    subscription = stream.subscribe()
    assert subscription.drain() == ([], 0)
    stream.emit(Removed((b"k",)))
    stream.emit(Cleared())
    assert subscription.drain() == ([(1, Removed((b"k",))), (2, Cleared())], 0)
    assert subscription.drain() == ([], 0)
    assert stream.since(0).events[0] == (0, Cleared())
    assert stream.next_number == 3


def test_who_drains_too_seldom_is_told_how_much_was_missed() -> None:
    stream = EventStream(max_blocks=5)
    subscription = stream.subscribe()
    for number in range(4):
        stream.emit(Removed((bytes([number]),) * 2))
    events, num_missed = subscription.drain()
    assert ([number for number, _ in events], num_missed) == ([2, 3], 2)
    stream.emit(Cleared())
    assert subscription.drain() == ([(4, Cleared())], 0)


def test_the_newest_event_is_kept_however_large() -> None:
    stream = EventStream(max_blocks=5)
    subscription = stream.subscribe()
    stream.emit(Cleared())
    large = Removed((b"k",) * 9)
    stream.emit(large)
    assert subscription.drain() == ([(1, large)], 1)


def test_two_subscriptions_do_not_take_events_from_each_other() -> None:
    stream = EventStream()
    first, second = stream.subscribe(), stream.subscribe()
    stream.emit(Cleared())
    assert first.drain() == second.drain() == ([(0, Cleared())], 0)


def test_a_snapshot_tells_all_that_is_stored_parents_first() -> None:
    ledger = Ledger(common=[range(4)])
    ledger.serve(A, *PROMPT)
    ledger.serve(A, *PROMPT[:4], 9, 9, 9, 9, 9)
    ledger.serve(B, *PROMPT)
    told: set[bytes | None] = {None}
    for event in ledger.cache.snapshot():
        assert event.parent in told
        assert len(event.token_ids) == len(event.keys) * event.block_size
        told.update(event.keys)
    assert len(told) - 1 == ledger.cache.num_cached == 4


def test_tokens_and_domains_are_left_out_of_what_is_printed() -> None:
    ledger, subscription = listening()
    ledger.serve(b"secret domain", 77701, 77702, 77703, 77704, 5)
    printed = repr(subscription.drain()) + repr(ledger.cache.snapshot())
    assert "77701" not in printed
    assert "secret domain" not in printed
