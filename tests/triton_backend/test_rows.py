"""Where a row of logits stands in its sequence."""

from tests.triton_backend.making import make_sequence
from triton_backend.rows import LogitRow
from triton_backend.sequence import Sequence


def answered() -> Sequence:
    """Three tokens of prompt, 0 to 2, and two of an answer."""
    sequence = make_sequence("a", 3)
    sequence.token_ids.extend([7, 8])
    return sequence


def test_a_row_behind_all_tokens_tells_of_the_next() -> None:
    row = LogitRow(answered())
    assert (row.num_known, row.num_generated, row.next_token_id) == (5, 2, None)


def test_drafts_count_as_known() -> None:
    row = LogitRow(answered(), (4, 4))
    assert (row.num_known, row.num_generated, row.next_token_id) == (7, 4, None)


def test_a_row_in_the_prompt_knows_the_token_that_follows() -> None:
    row = LogitRow(answered(), num_behind=3)
    assert (row.num_known, row.num_generated, row.next_token_id) == (2, -1, 2)
