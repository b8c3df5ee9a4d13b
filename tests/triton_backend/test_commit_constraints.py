"""What a step's tokens do to constrained answers: they end where they are whole, and they fail alone."""

import pytest

from builder.errors import RequestError
from tests.triton_backend.committing import commit_one, started
from tests.triton_backend.fakes import FakeText
from tests.triton_backend.making import make_sequence
from triton_backend.request import FinishReason
from triton_backend.structured.trial import TOO_COMPLEX

QUOTE = "words of an answer"


@pytest.fixture
def stage() -> FakeText:
    return FakeText()


class ListedMask:
    """Allows one run of tokens, and is complete after it."""

    def __init__(self, *token_ids: int) -> None:
        self.left = list(token_ids)

    def apply(self, logits: object) -> None:
        raise NotImplementedError

    def keeps(self, token_id: int) -> bool:
        return token_id == self.left[0]

    def accept(self, token_id: int) -> None:
        if self.left.pop(0) != token_id:
            raise ValueError(QUOTE)

    @property
    def is_complete(self) -> bool:
        return not self.left


def test_an_answer_ends_where_nothing_more_conforms(stage: FakeText) -> None:
    sequence = make_sequence("a", 3)
    sequence.mask = ListedMask(4, 5)
    started(stage, sequence)
    assert commit_one(sequence, 4, stage).finish_reason is None
    delta = commit_one(sequence, 5, stage)
    assert (delta.finish_reason, delta.stop_reason) == (FinishReason.STOP, None)
    assert not stage.live


def test_a_mask_that_fails_ends_its_answer_alone_and_quotes_nothing(
    stage: FakeText, caplog: pytest.LogCaptureFixture
) -> None:
    sequence = make_sequence("a", 3)
    sequence.mask = ListedMask(4)
    started(stage, sequence)
    delta = commit_one(sequence, 5, stage)
    assert (delta.finish_reason, delta.token_ids) == (FinishReason.ERROR, ())
    assert delta.error == "following the constraint failed with ValueError."
    assert QUOTE not in caplog.text


class OutgrownMask(ListedMask):
    """Meets a limit of its constraint."""

    def accept(self, token_id: int) -> None:  # noqa: ARG002
        raise RequestError(TOO_COMPLEX)


def test_a_constraint_that_outgrows_its_limits_ends_its_answer_as_the_requests_mistake(
    stage: FakeText, caplog: pytest.LogCaptureFixture
) -> None:
    sequence = make_sequence("a", 3)
    sequence.mask = OutgrownMask()
    started(stage, sequence)
    delta = commit_one(sequence, 5, stage)
    assert (delta.finish_reason, delta.token_ids) == (FinishReason.INVALID, ())
    assert delta.error == TOO_COMPLEX
    assert not stage.live
    assert not caplog.records
