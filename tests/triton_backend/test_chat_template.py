"""Rendering chats: control strings count only if the template wrote them, and errors quote nothing."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import CheckpointError, RequestError
from tests.triton_backend.chat_templates import (
    CHATML,
    CONTROLS,
    HEADERS,
    INSTRUCTIONS,
    ONE_TURN,
    SPECIAL_TOKENS,
    STYLES,
    THREE_TURNS,
    TOOL,
    TOOLS,
    TURNS,
    WITH_TOOLS,
    compiled,
    controls_of,
    message,
    text_of,
)
from tests.triton_backend.vocabularies import added, byte_level, loaded
from triton_backend.chat_template import check_template
from triton_backend.segments import Segment, SegmentKind

COMPILED = {style: compiled(source) for style, source in STYLES.items()}


@pytest.mark.parametrize("style", STYLES)
@given(data=st.data())
def test_what_a_client_sends_never_makes_a_control_segment(style: str, data: st.DataObject) -> None:
    pieces = st.sampled_from(
        [*CONTROLS, "<|", "|>", "<", ">", "im_", "end", " ", "\n", "[", "a", "\ufdd0"]
    )
    contents = st.lists(pieces, max_size=8).map("".join)
    roles = ["user", "assistant", "user"]
    hostile = [message(role, data.draw(contents)) for role in roles]
    harmless = [message(role, "x") for role in roles]
    template = COMPILED[style]
    assert controls_of(template.render(hostile)) == controls_of(template.render(harmless))


def test_parts_that_would_join_to_a_control_string_stay_text() -> None:
    parts = [{"type": "text", "text": text} for text in ("<end_", "of_turn", ">")]
    segments = compiled(TURNS).render([message("user", parts)])
    assert controls_of(segments) == ["<s>", "<start_of_turn>", "<end_of_turn>", "<start_of_turn>"]
    assert Segment(SegmentKind.TEXT, "user\n<end_of_turn>") in segments


def test_the_begin_token_that_a_template_writes_is_the_only_one() -> None:
    tokenizer = loaded(byte_level(added(256, "<s>")), bos_token_id=256)
    template = compiled(INSTRUCTIONS, control_strings=tokenizer.control_strings)
    ids = tokenizer.encode_segments(template.render([message("user", "<s>hi")]))
    assert ids == [256, *b" [INST] <s>hi [/INST]"]


def test_threads_share_a_template() -> None:
    chats = [[message("user", "x" * length)] for length in range(200)]
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda chat: text_of(COMPILED["chatml"].render(chat)), chats))
    assert texts == [text_of(COMPILED["chatml"].render(chat)) for chat in chats]


def test_tools_and_arguments_cant_spell_control_strings() -> None:
    call = {"function": {"name": "f", "arguments": {"<|im_end|>": ["</s>"]}}}
    tool = {
        "type": "function",
        "function": {"name": "<|im_start|>", "parameters": {"properties": {}}},
    }
    chat = [message("user", "x"), message("assistant", "", tool_calls=[call])]
    segments = compiled(TOOLS).render(chat, tools=[tool])
    assert controls_of(segments) == ["<|im_start|>", "<|im_end|>"] * 3 + ["<|im_start|>"]
    assert '"<|im_end|>": ["</s>"]' in text_of(segments)


def test_json_escapes_of_broken_strings_are_whole_again() -> None:
    source = "{{ messages[0].content | tojson(ensure_ascii=true) }}"
    segments = compiled(source).render([message("user", "é</s>")])
    assert segments == [Segment(SegmentKind.TEXT, '"\\u00e9</s>"')]


def test_a_role_may_complete_a_control_string_of_the_template() -> None:
    template = compiled("{{ '<|' + messages[0].role + '|>' }}", control_strings=["<|user|>"])
    assert controls_of(template.render([message("user", "x")])) == ["<|user|>"]


def test_a_control_string_of_one_character_is_always_text() -> None:
    template = compiled("{{ messages[0].content }}", control_strings=["#"])
    assert template.render([message("user", "#")]) == [Segment(SegmentKind.TEXT, "#")]


def test_the_template_sees_contents_as_they_are_but_for_control_strings() -> None:
    source = "{{ messages[0].content == '  a > b <|x ' }}{{ messages[0].content | length }}"
    assert text_of(compiled(source).render([message("user", "  a > b <|x ")])) == "True12"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0].content }}", "one\ntwo"),
        ("{{ 'x' + messages[0]['content'] }}", "xone\ntwo"),
        (TURNS, "<s><start_of_turn>user\nonetwo<end_of_turn>\n<start_of_turn>model\n"),
        ("{% for part in messages[0].content %}{{ part.text }};{% endfor %}", "one;two;"),
    ],
)
def test_text_parts_are_joined_only_for_templates_that_take_text_alone(
    source: str, text: str
) -> None:
    parts = [{"type": "text", "text": text} for text in ("one", "two")]
    assert text_of(compiled(source).render([message("user", parts)])) == text


def test_text_becomes_a_part_for_templates_that_take_parts_alone() -> None:
    template = compiled("{% for part in messages[0].content %}{{ part.text }};{% endfor %}")
    assert text_of(template.render([message("user", "one")])) == "one;"


def test_further_variables_reach_the_template_and_unknown_ones_are_refused() -> None:
    template = compiled("{{ documents[0].text if documents }}{{ depth }}")
    segments = template.render(ONE_TURN, documents=[{"text": "<s>"}], depth=3)
    assert segments == [Segment(SegmentKind.TEXT, "<s>3")]
    with pytest.raises(RequestError, match=r"variable 'dept'\. Did you mean depth"):
        template.render(ONE_TURN, dept=3)
    with pytest.raises(RequestError, match="unknown chat template variable 'bos_token'"):
        compiled("{{ bos_token }}").render(ONE_TURN, **SPECIAL_TOKENS)
    with pytest.raises(RequestError, match="depth holds a set; only JSON"):
        template.render(ONE_TURN, depth={1})


def test_tools_for_a_template_without_a_place_for_them_are_refused() -> None:
    with pytest.raises(RequestError, match="has no place for tools"):
        compiled(CHATML).render(ONE_TURN, tools=[TOOL])
    with pytest.raises(RequestError, match=r"tools\[1\] must be an object"):
        compiled(TOOLS).render(ONE_TURN, tools=[TOOL, "secret"])  # type: ignore[list-item]
    assert compiled(CHATML).render(ONE_TURN, tools=[]) == compiled(CHATML).render(ONE_TURN)


def test_the_clock_is_the_one_passed_in() -> None:
    assert "Today Date: 09 Jul 2026" in text_of(compiled(HEADERS).render(ONE_TURN))


def test_a_refusal_that_the_source_spells_out_is_shown() -> None:
    with pytest.raises(RequestError, match=r"\(line 3\): Roles must alternate: user, assistant"):
        compiled(INSTRUCTIONS).render([message("assistant", "x")])


def test_a_refusal_that_was_put_together_is_not_shown() -> None:
    source = "{{ raise_exception('no ' + messages[0].content) }}"
    with pytest.raises(RequestError, match="refuses these messages") as caught:
        compiled(source).render([message("user", "secret")])
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("messages[0][messages[0].content].x", "UndefinedError"),
        ("messages[0].content + 1", "TypeError"),
        ("messages[0].content.index('?')", "ValueError"),
        ("{}[messages[0].content]['x']", "UndefinedError"),
        ("1 / 0", "ZeroDivisionError"),
        ("namespace", "NotDataError"),
        ("[namespace]", "NotDataError"),
        ("messages | attribute", "CheckpointError"),
    ],
)
def test_a_template_that_fails_says_where_and_quotes_nothing(expression: str, kind: str) -> None:
    source = "{% set x = 1 %}\n{{ " + expression + " }}"
    with pytest.raises((RequestError, CheckpointError)) as caught:
        compiled(source).render([message("user", "secret")])
    assert "secret" not in str(caught.value)
    assert "line 2" in str(caught.value)
    assert kind in str(caught.value) or type(caught.value).__name__ == kind


def test_a_template_is_rendered_many_times_without_memory_of_the_last() -> None:
    template = compiled(TOOLS)
    first = template.render(WITH_TOOLS, tools=[TOOL])
    template.render(THREE_TURNS)
    assert template.render(WITH_TOOLS, tools=[TOOL]) == first


def test_messages_are_left_as_they_were() -> None:
    messages = [message("user", [{"type": "text", "text": "</s>"}])]
    before = json.dumps(messages)
    compiled(CHATML).render(messages)
    assert json.dumps(messages) == before


def test_every_style_passes_the_check() -> None:
    for source in STYLES.values():
        check_template(source)
