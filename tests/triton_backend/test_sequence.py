"""The derived numbers of a sequence."""

from tests.triton_backend.making import make_sequence
from triton_backend.request import TokenLogprobs
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


def test_the_first_row_is_that_of_the_last_known_token() -> None:
    sequence = make_sequence("a", 3)
    assert sequence.first_row == 2
    sequence.token_ids.append(7)
    assert sequence.first_row == 3


def test_missing_logprobs_of_the_prompt_move_the_first_row_back_for_the_first_choice() -> None:
    sequence, other = (
        make_sequence("a", 3, prompt_logprobs=0),
        make_sequence("a", 3, prompt_logprobs=0),
    )
    other.choice = 1
    assert (sequence.first_row, other.first_row) == (0, 2)
    told = TokenLogprobs(-1.0, 1, (), ())
    sequence.prompt_logprobs.append(told)
    assert sequence.first_row == 1
    sequence.prompt_logprobs.append(told)
    assert sequence.first_row == 2
    sequence.token_ids.append(7)
    assert sequence.first_row == 3


def test_an_answer_is_named_by_request_and_choice() -> None:
    sequence = make_sequence("a", 3)
    sequence.choice = 2
    assert sequence.answer_id == ("a", 2)
