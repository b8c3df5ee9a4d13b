"""Virtual token counters: what they start with, and what they remember."""

from triton_backend.policies import shares as shares_module
from triton_backend.policies.shares import Shares


def test_tokens_are_charged_to_their_tenant() -> None:
    shares = Shares()
    shares.enter("a")
    shares.enter("b")
    shares.charge("a", 5)
    shares.charge("a", 2)
    assert dict(shares.served) == {"a": 7, "b": 0}


def test_who_was_idle_starts_with_the_least_of_the_others() -> None:
    shares = Shares()
    for tenant in "abc":
        shares.enter(tenant)
    shares.charge("a", 50)
    shares.charge("b", 30)
    shares.leave("c")
    shares.enter("c")
    assert shares.served["c"] == 30


def test_going_and_coming_back_is_no_way_out_of_a_debt() -> None:
    shares = Shares()
    shares.enter("a")
    shares.enter("b")
    shares.charge("a", 50)
    shares.leave("a")
    shares.enter("a")
    assert shares.served["a"] == 50


def test_a_tenant_is_active_until_its_last_sequence_is_over() -> None:
    shares = Shares()
    shares.enter("a")
    shares.enter("a")
    shares.enter("b")
    shares.charge("b", 9)
    shares.leave("a")
    shares.enter("a")
    assert shares.served["a"] == 0  # it was there all the time


def test_nothing_is_remembered_when_nobody_is_left() -> None:
    shares = Shares()
    shares.enter("a")
    shares.charge("a", 50)
    shares.leave("a")
    assert not shares.served


def test_tenants_that_left_are_forgotten_beyond_a_number_least_debts_first(monkeypatch) -> None:
    monkeypatch.setattr(shares_module, "MOST_IDLE", 2)
    shares = Shares()
    shares.enter("stays")
    for debt, tenant in enumerate("abcd", 1):
        shares.enter(tenant)
        shares.charge(tenant, debt)
        shares.leave(tenant)
    assert dict(shares.served) == {"stays": 0, "c": 3, "d": 4}
