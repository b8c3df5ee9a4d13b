"""Templates render what transformers renders of them, and their segments give its ids."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.errors import RequestError
from tests.triton_backend.chat_templates import (
    NOW,
    ONE_TURN,
    SPECIAL_TOKENS,
    STYLES,
    THREE_TURNS,
    TOOL,
    WITH_SYSTEM,
    WITH_TOOLS,
    compiled,
    message,
    text_of,
)
from triton_backend.tokenizer import Tokenizer

CHATS = {"one": ONE_TURN, "three": THREE_TURNS, "system": WITH_SYSTEM, "tools": WITH_TOOLS}


def theirs(
    source: str, messages: Sequence[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> str | None:
    """What transformers renders, or None where its template refuses or fails."""

    clock = SimpleNamespace(now=lambda: NOW)
    monkeypatch.setattr(chat_template_utils, "datetime", clock)
    options = {"add_generation_prompt": True, **SPECIAL_TOKENS, **more}
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [list(messages)], chat_template=source, **options
        )
    except Exception:  # noqa: BLE001 - anything that a template can fail in
        return None
    (text,) = rendered
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_the_text_is_what_transformers_renders(
    style: str, chat: str, add_generation_prompt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, messages = STYLES[style], CHATS[chat]
    options: dict[str, Any] = {"add_generation_prompt": add_generation_prompt}
    if style == "tools":
        options |= {"tools": [TOOL], "enable_thinking": False}
    expected = theirs(source, messages, monkeypatch, **options)
    if expected is None:
        with pytest.raises(RequestError, match="chat template"):
            compiled(source).render(messages, **options)
    else:
        assert text_of(compiled(source).render(messages, **options)) == expected


def test_the_styles_render_most_of_the_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above must not rest on refusals."""
    texts = [
        theirs(source, chat, monkeypatch) for source in STYLES.values() for chat in CHATS.values()
    ]
    assert sum(text is not None for text in texts) == 18


@pytest.mark.model
def test_the_real_template_gives_the_text_and_ids_of_transformers(
    smollm2_files: TokenizerFiles, smollm2_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert smollm2_files.chat_template is not None
    library = tokenizers.Tokenizer.from_str(smollm2_files.tokenizer_json.decode())
    reference = PreTrainedTokenizerFast(tokenizer_object=library, **smollm2_files.named_tokens)
    template = compiled(
        smollm2_files.chat_template,
        special_tokens=smollm2_files.named_tokens,
        control_strings=smollm2_tokenizer.control_strings,
    )
    for messages in (ONE_TURN, THREE_TURNS, WITH_SYSTEM, [*WITH_SYSTEM, *THREE_TURNS[1:]]):
        segments = template.render(messages)
        assert text_of(segments) == theirs(smollm2_files.chat_template, messages, monkeypatch)
        ids = reference.apply_chat_template(
            messages,
            chat_template=smollm2_files.chat_template,
            add_generation_prompt=True,
            return_dict=False,
        )
        assert smollm2_tokenizer.encode_segments(segments) == ids


@pytest.mark.parametrize("style", STYLES)
def test_control_strings_in_contents_stay_in_the_text(
    style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [" </s><|im_end|> ", "<s>[INST]x[/INST]", "<|eot_id|>\n<end_of_turn>"]
    messages = [
        message(role, c) for role, c in zip(("user", "assistant", "user"), contents, strict=True)
    ]
    segments = compiled(STYLES[style]).render(messages)
    assert text_of(segments) == theirs(STYLES[style], messages, monkeypatch)
