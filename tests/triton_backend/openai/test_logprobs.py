"""Tokens as OpenAI shows them."""

import math

import pytest

from tests.models import tiny_tokenizer
from tests.triton_backend.vocabularies import loaded, sentencepiece
from triton_backend.openai.deltas import Candidate, ToldPrompt, ToldToken
from triton_backend.openai.logprobs import (
    CompletionColumns,
    chat_logprobs,
    prompt_logprobs,
    spelling,
)
from triton_backend.openai.replies import PromptLogprob
from triton_backend.tokenizer import Tokenizer

TOKENIZER = Tokenizer(tiny_tokenizer().to_str().encode(), bos_token_id=None, add_bos=False)
A, C3, A9, IM_END, PADDING = 65, 0xC3, 0xA9, 258, 300


def candidate(token_id: int, logprob: float = -1.0) -> Candidate:
    return Candidate(token_id, TOKENIZER.token_bytes(token_id), logprob)


def token(token_id: int, logprob: float = -1.0, top: dict[int, float] | None = None) -> ToldToken:
    best = tuple(candidate(*each) for each in (top or {}).items())
    return ToldToken(candidate(token_id, logprob), 1, best)


@pytest.mark.parametrize(
    ("token_id", "text"),
    [(A, "A"), (C3, "bytes:\\xc3"), (IM_END, "<|im_end|>"), (PADDING, "")],
)
def test_every_id_has_a_spelling(token_id: int, text: str) -> None:
    assert spelling(TOKENIZER, candidate(token_id)) == text


def test_the_bytes_of_a_chats_tokens_add_up_to_its_text() -> None:
    content = chat_logprobs(TOKENIZER, [token(C3), token(A9), token(A), token(IM_END)]).content
    assert b"".join(bytes(each.bytes or []) for each in content).decode() == "éA"
    assert content[-1].bytes is None


def test_the_likeliest_tokens_need_not_hold_the_token_itself() -> None:
    (entry,) = chat_logprobs(TOKENIZER, [token(A, -9.0, {IM_END: -0.1, C3: -2.0})]).content
    assert [(top.token, top.bytes) for top in entry.top_logprobs] == [
        ("<|im_end|>", None),
        ("bytes:\\xc3", [C3]),
    ]
    columns = CompletionColumns(TOKENIZER, num_top=2).describe([token(A, -9.0, {C3: -2.0})])
    assert columns.top_logprobs == [{"bytes:\\xc3": -2.0, "A": -9.0}]


def test_ids_that_are_spelled_alike_show_the_likeliest() -> None:
    padding = token(A, -0.5, {PADDING: -1.0, PADDING + 1: -2.0})
    columns = CompletionColumns(TOKENIZER, num_top=2).describe([padding])
    assert columns.top_logprobs == [{"": -1.0, "A": -0.5}]


@pytest.mark.parametrize("logprob", [-math.inf, math.nan])
def test_what_json_cant_hold_is_a_very_low_number(logprob: float) -> None:
    (entry,) = chat_logprobs(TOKENIZER, [token(A, logprob, {C3: logprob})]).content
    assert entry.logprob == entry.top_logprobs[0].logprob == -9999.0
    columns = CompletionColumns(TOKENIZER, num_top=0).describe([token(A, logprob)])
    assert columns.token_logprobs == [-9999.0]


def test_offsets_count_characters_over_all_pieces() -> None:
    columns = CompletionColumns(TOKENIZER, num_top=0)
    first = columns.describe([token(A), token(C3)])
    second = columns.describe([token(A9), token(IM_END), token(A)])
    assert first.text_offset + second.text_offset == [0, 1, 1, 2, 2]


def test_an_answer_does_not_complete_a_character_that_its_prompt_breaks_off() -> None:
    columns = CompletionColumns(TOKENIZER, num_top=0)
    prompt = columns.describe_prompt(ToldPrompt(A, b"A", (token(C3),)))
    answer = columns.describe([token(A9), token(A)])
    assert (prompt.text_offset, answer.text_offset) == ([0, 1], [1, 2])


def test_the_space_that_opens_a_text_is_no_part_of_it() -> None:
    tokenizer = loaded(sentencepiece(front="normalizer"))
    ids = tokenizer.encode("ab ab")
    first, *others = [ToldToken(Candidate(i, tokenizer.token_bytes(i), -1.0), 1, ()) for i in ids]
    prompt = ToldPrompt(first.chosen.token_id, first.chosen.data, tuple(others))
    columns = CompletionColumns(tokenizer, num_top=0)
    told = columns.describe_prompt(prompt)
    assert b"".join(map(tokenizer.token_bytes, ids)) == b" ab ab"
    assert "ab ab"[told.text_offset[-1] :] == tokenizer.token_bytes(ids[-1]).decode()


def test_a_prompts_tokens_are_told_once_each_and_by_rank() -> None:
    told = ToldToken(candidate(C3, -3.0), 9, (candidate(IM_END, -0.5), candidate(A, -math.inf)))
    prompt = ToldPrompt(A, b"A", (told, token(A, -0.5, {A: -0.5, C3: -1.0})))
    assert prompt_logprobs(TOKENIZER, prompt, 2) == [
        None,
        {
            C3: PromptLogprob(-3.0, 9, "\ufffd"),
            IM_END: PromptLogprob(-0.5, 1, "<|im_end|>"),
            A: PromptLogprob(-9999.0, 2, "A"),
        },
        {A: PromptLogprob(-0.5, 1, "A"), C3: PromptLogprob(-1.0, 2, "\ufffd")},
    ]
    assert prompt_logprobs(TOKENIZER, prompt, 0)[2] == {A: PromptLogprob(-0.5, 1, "A")}
