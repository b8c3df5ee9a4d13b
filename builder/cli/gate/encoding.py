"""Turns the text and the questions of a gate into token ids."""

from collections.abc import Sequence
from datetime import datetime

from builder.artifact.step import Int32
from builder.errors import UserError
from builder.gate.reading import cut
from builder.gate.text import Question, Text
from triton_backend.loading import LoadedModel

CHUNK = 512
"""Tokens that are read as one text."""
DAY = datetime(2026, 1, 1)
"""The day that a template may show, so that figures are the same every day."""


def encode_text(model: LoadedModel, text: Text) -> list[int]:
    """Give the ids of a text: its passages, then its conversations as the model's template writes them."""
    encode = model.tokenizer.encode
    ids = [token for passage in text.passages for token in encode(passage)]
    if not text.dialogues or not model.artifact.manifest.tokenizer.has_chat_template:
        turns = [f"{turn['content']}\n\n" for dialogue in text.dialogues for turn in dialogue]
        return ids + [token for turn in turns for token in encode(turn)]
    template = model.chat_template(lambda: DAY)
    for dialogue in text.dialogues:
        segments = template.render(dialogue, add_generation_prompt=False)
        ids += model.tokenizer.encode_segments(segments)
    return ids


def encode_question(model: LoadedModel, question: Question) -> tuple[int, ...]:
    """Give the ids of a question, as a chat where the model has a template."""
    if not model.artifact.manifest.tokenizer.has_chat_template:
        return model.encode_text(f"Question: {question.prompt}\nAnswer:")
    messages = [{"role": "user", "content": question.prompt}]
    return model.encode_chat(model.chat_template(lambda: DAY), messages)


def chunks_of(model: LoadedModel, ids: Sequence[int]) -> list[Int32]:
    """Cut ids into chunks that the engine takes, each behind what the model puts before a text.

    Raises:
        UserError: its limits leave no room for that.
    """
    prefix = model.artifact.manifest.tokenizer.prefix_ids
    length = min(CHUNK, model.executor.limits.max_seq_len)
    if len(prefix) >= length:
        raise UserError(
            f"{model.artifact.root} has max_seq_len {length}, which leaves no room for a text; "
            "compile it with a larger --max-seq-len"
        )
    return cut(ids, prefix, length)
