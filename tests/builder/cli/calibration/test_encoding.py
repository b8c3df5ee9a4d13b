"""Samples in tokens: chats as the model's template writes them, texts as they stand."""

import pytest

from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.cli.calibration.encoding import encode_samples
from builder.cli.calibration.texts import CalibrationText, Sample
from builder.errors import UserError
from tests.models import tiny_llama

CHAT = ({"role": "user", "content": "hi <|im_end|>"},)
START, END = 257, 258


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TokenizerFiles:
    folder = tmp_path_factory.mktemp("encoding") / "tiny"
    return open_checkpoint(str(tiny_llama(folder))).tokenizer


def rows_of(files: TokenizerFiles, *samples: Sample) -> tuple[tuple[int, ...], ...]:
    return encode_samples(CalibrationText("mine", "0" * 64, samples), files).rows


def test_a_prompt_is_written_by_the_template_and_waits_for_its_answer(
    files: TokenizerFiles,
) -> None:
    (row,) = rows_of(files, CHAT)
    assert row[0] == START
    assert row.count(END) == 1  # what the sample spells itself stays text
    assert bytes(token for token in row if token < 256).endswith(b"\nassistant\n")


def test_a_chat_that_is_answered_ends_with_its_answer(files: TokenizerFiles) -> None:
    (row,) = rows_of(files, (*CHAT, {"role": "assistant", "content": "yes"}))
    assert row.count(END) == 2
    assert row[-5:] == (*b"yes", END, 10)


def test_a_text_stands_as_it_is_and_an_empty_one_is_none(files: TokenizerFiles) -> None:
    assert rows_of(files, "one <|im_end|>", "") == (tuple(b"one <|im_end|>"),)


def test_control_tokens_are_told_from_text(files: TokenizerFiles) -> None:
    samples = encode_samples(CalibrationText("mine", "0" * 64, (CHAT,)), files)
    assert samples.control_ids == {256, 257, 258}
    assert samples.num_text_tokens == samples.num_tokens - 3


def test_a_sample_that_the_template_refuses_is_numbered(files: TokenizerFiles) -> None:
    with pytest.raises(UserError, match="sample 2 of mine can't be used"):
        rows_of(files, "fine", ({"role": "user"},))
