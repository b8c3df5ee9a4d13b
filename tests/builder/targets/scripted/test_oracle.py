"""The arithmetic of the scripted engine: everything before a token must matter to what follows it."""

import random

import pytest

from builder.targets.scripted.oracle import MASK, digest_of, entry_of, logits_of, next_logits

TOKENS = (5, 9, 2, 9, 9, 0, 41)


def test_an_entry_fits_int64_and_is_never_the_poison() -> None:
    entries = [entry_of(token, 7, digest) for token in range(50) for digest in (0, 1, MASK)]
    assert all(0 <= entry < 2**63 for entry in entries)
    assert len(set(entries)) == len(entries)


@pytest.mark.parametrize("position", range(len(TOKENS)))
def test_changing_any_token_changes_the_logits(position: int) -> None:
    changed = list(TOKENS)
    changed[position] += 1
    assert next_logits(changed, vocab_size=97) != next_logits(TOKENS, vocab_size=97)


def test_the_order_of_tokens_matters() -> None:
    assert digest_of((1, 2, 3), 0) != digest_of((2, 1, 3), 0)


def test_groups_differ() -> None:
    assert digest_of(TOKENS, 0) != digest_of(TOKENS, 1)
    assert next_logits(TOKENS, vocab_size=97) != next_logits(TOKENS, vocab_size=97, num_groups=2)


def test_the_first_entry_can_be_worked_out_by_hand() -> None:
    # Digest 1, token 0, position 0: (1 ^ 0x9E3779B97F4A7C15) = ...14, folded, multiplied, halved.
    folded = 0x9E3779B97F4A7C14 ^ (0x9E3779B97F4A7C14 >> 31)
    entry = ((folded * 0x8CB92BA72F3D8DD7) % 2**64) // 2
    assert entry_of(0, 0, 1) == entry
    assert digest_of((0,), 0) == (1 + entry) % 2**64


def test_logits_are_sixteenths_with_ties_and_spread() -> None:
    rng = random.Random(1)  # noqa: S311
    rows = [logits_of(rng.getrandbits(64), 300) for _ in range(50)]
    assert all(0 <= logit < 16 and logit * 16 == int(logit * 16) for row in rows for logit in row)
    assert all(len(set(row)) < 300 for row in rows)
    assert len({row.index(max(row)) for row in rows}) > 40
