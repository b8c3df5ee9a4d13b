"""The derived numbers of a sequence."""

from tests.triton_backend.making import make_sequence
from triton_backend.sequence import Sequence


def test_a_new_sequence_knows_its_prompt_and_has_computed_nothing() -> None:
    sequence = make_sequence("a", 3)
    assert sequence.num_known == sequence.num_prompt == sequence.num_pending == 3
    assert sequence.num_generated == sequence.num_computed == 0
    assert not sequence.block_table


def test_computed_tokens_are_no_longer_pending() -> None:
    sequence = make_sequence("a", 3)
    sequence.num_computed = 2
    assert sequence.num_pending == 1
    assert sequence.num_known == 3


def test_a_generated_token_is_known_and_pending() -> None:
    sequence = make_sequence("a", 3)
    sequence.num_computed = 3
    sequence.token_ids.append(7)
    assert (sequence.num_known, sequence.num_pending, sequence.num_generated) == (4, 1, 1)
    assert sequence.num_prompt == 3


def test_sequences_are_equal_only_to_themselves() -> None:
    one, other = make_sequence("a", 3), make_sequence("a", 3)
    assert one != other
    assert len({one, other}) == 2


def test_its_repr_shows_no_token() -> None:
    sequence = make_sequence("a", 3, first_token=31337)
    assert isinstance(sequence, Sequence)
    assert "31337" not in repr(sequence)
