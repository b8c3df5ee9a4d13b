"""Has an artifact and its reference answer the questions of a gate, greedily, in the engine that also serves."""

from collections.abc import Mapping, Sequence

from builder.artifact.gate_report import AnswerCounts
from builder.cli.determinism.serving import Answer, serve
from builder.cli.gate.encoding import encode_question
from builder.errors import EngineError, UserError
from builder.gate.text import Question, questions, questions_sha256
from triton_backend.loading import LoadedModel
from triton_backend.request import FinishReason, Request, SamplingParams

MAX_ANSWER = 12
"""Tokens of an answer."""

Prompts = Mapping[Question, tuple[int, ...]]


def prompts_for(given: LoadedModel) -> Prompts:
    """Give the questions that an artifact has room for, in its tokens.

    Raises:
        UserError: it has room for none.
    """
    room = given.executor.limits.max_seq_len - MAX_ANSWER
    encoded = {question: encode_question(given, question) for question in questions()}
    prompts = {question: ids for question, ids in encoded.items() if len(ids) <= room}
    if not prompts:
        raise UserError(
            f"{given.artifact.root} has max_seq_len {given.executor.limits.max_seq_len}, which no question of the "
            "gate fits into; compile it with a larger --max-seq-len"
        )
    return prompts


def ask(reference: LoadedModel, given: LoadedModel, prompts: Prompts) -> AnswerCounts:
    """Have both answer the same questions; both cut text into the same tokens.

    Raises:
        EngineError: an answer could not be finished.
    """
    theirs, ours = _answers(reference, prompts), _answers(given, prompts)
    pairs = zip(theirs, ours, strict=True)
    return AnswerCounts(
        questions_sha256=questions_sha256(),
        num_asked=len(prompts),
        num_equal=sum(one.token_ids == other.token_ids for one, other in pairs),
        num_right=_count_right(prompts, ours),
        num_right_of_reference=_count_right(prompts, theirs),
    )


def _answers(model: LoadedModel, prompts: Prompts) -> list[Answer]:
    params = SamplingParams(temperature=0, max_tokens=MAX_ANSWER)
    requests = [Request(str(place), ids, params) for place, ids in enumerate(prompts.values())]
    answers = serve(model.engine, requests)
    found = [answers[request.request_id, 0] for request in requests]
    if any(each.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH) for each in found):
        raise EngineError(f"the engine of {model.artifact.root} could not finish an answer")
    return found


def _count_right(prompts: Prompts, answers: Sequence[Answer]) -> int:
    pairs = zip(prompts, answers, strict=True)
    return sum(question.is_answered_by(answer.text) for question, answer in pairs)
