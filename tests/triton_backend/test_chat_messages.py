"""Shapes of messages, and errors that name a place and never what stands there."""

from typing import Any

import pytest

from builder.errors import RequestError
from tests.triton_backend.chat_templates import message
from triton_backend.chat_messages import (
    MAX_DEPTH,
    SENTINELS,
    ContentForm,
    broken,
    checked_data,
    checked_messages,
    escaped,
    strings_of,
    unused_sentinel,
)
from triton_backend.segments import ControlStrings

CANARY = "xyzzy"
PART = {"type": "text", "text": CANARY}


def nested(depth: int) -> list[Any]:
    """Lists in lists, `depth` of them."""
    value: list[Any] = [CANARY]
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        (None, "messages must be a list"),
        ([], "messages must be a list"),
        (CANARY, "messages must be a list"),
        ({"role": "user", "content": CANARY}, "messages must be a list"),
        ([CANARY], r"messages\[0\] must be an object"),
        ([message("user", "x"), {"content": CANARY}], r"messages\[1\].role must be a name"),
        ([message(CANARY + " \n", "x")], r"messages\[0\].role must be a name"),
        ([message("r" * 65, CANARY)], r"messages\[0\].role must be a name"),
        ([message("<|im_end|>", CANARY)], r"messages\[0\].role must be a name"),
        ([{"role": "user"}], r"messages\[0\].content must be a string or a list of text parts"),
        ([message("user", None)], r"messages\[0\].content must be"),
        ([message("user", None, tool_calls=[])], r"messages\[0\].content must be"),
        ([message("user", {CANARY: 1})], r"messages\[0\].content must be"),
        (
            [message("user", [PART, CANARY])],
            r"messages\[0\].content\[1\] must be a part of type text",
        ),
        (
            [message("user", [{"type": "image_url"}])],
            r"messages\[0\].content\[0\] must be a part of",
        ),
        ([message("user", [{"type": "text", "text": 1}])], r"content\[0\].text must be a string"),
        ([message("user", "x", tool_calls={CANARY})], r"messages\[0\] holds a set; only JSON"),
        (
            [message("user", "x", extra={1: CANARY})],
            r"messages\[0\] holds an object with keys that",
        ),
        (
            [message("user", "x", extra=nested(MAX_DEPTH))],
            rf"messages\[0\] has more than {MAX_DEPTH}",
        ),
    ],
)
def test_a_wrong_shape_is_refused_by_place(messages: Any, place: str) -> None:
    with pytest.raises(RequestError, match=place) as caught:
        checked_messages(messages, ContentForm.ANY)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "form", "expected"),
    [
        ("a", ContentForm.ANY, "a"),
        ("a", ContentForm.TEXT, "a"),
        ("a", ContentForm.PARTS, [{"type": "text", "text": "a"}]),
        ([PART, PART], ContentForm.ANY, [PART, PART]),
        ([PART, PART], ContentForm.PARTS, [PART, PART]),
        ([PART, PART], ContentForm.TEXT, f"{CANARY}\n{CANARY}"),
        ([], ContentForm.TEXT, ""),
    ],
)
def test_contents_get_the_form_of_the_template(
    content: Any, form: ContentForm, expected: Any
) -> None:
    assert checked_messages([message("user", content)], form) == [message("user", expected)]


def test_a_message_with_tool_calls_needs_no_content() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}
    (checked,) = checked_messages([call], ContentForm.TEXT)
    assert checked == {**call, "content": None}


def test_data_is_copied_deeply() -> None:
    data = {"a": [{"b": (1, 2.5, None, True)}]}
    copy = checked_data("tools", data)
    assert copy == {"a": [{"b": [1, 2.5, None, True]}]}
    copy["a"][0]["b"].append(0)
    assert data["a"][0]["b"] == (1, 2.5, None, True)


def test_data_may_be_as_deep_as_the_limit() -> None:
    assert checked_data("tools", nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    with pytest.raises(RequestError, match=f"tools has more than {MAX_DEPTH} lists or objects"):
        checked_data("tools", nested(MAX_DEPTH + 1))


def test_all_strings_are_seen_and_broken_keys_included() -> None:
    data = {"<s>": ["<s>", {"k": "a<s>b"}, 1, None]}
    assert list(strings_of(data)) == ["<s>", "<s>", "k", "a<s>b"]
    assert broken(data, ControlStrings(["<s>"]), "!") == {
        "<!s>": ["<!s>", {"k": "a<!s>b"}, 1, None]
    }


def test_names_that_say_what_a_value_is_are_not_broken() -> None:
    controls = ControlStrings(["user", "text", "<|user|>"])
    data = {"role": "user", "content": [{"type": "text", "text": "user text"}], "<|user|>": 1}
    assert broken(data, controls, "!") == {
        "role": "user",
        "content": [{"type": "text", "text": "u!ser t!ext!"}],
        "<!|u!ser|>": 1,
    }


def test_a_kind_that_is_no_name_is_broken() -> None:
    assert broken({"type": "<s>"}, ControlStrings(["<s>"]), "!") == {"type": "<!s>"}
    assert broken({"type": ["<s>"]}, ControlStrings(["<s>"]), "!") == {"type": ["<!s>"]}


def test_the_sentinel_is_one_that_the_chat_does_not_use() -> None:
    assert unused_sentinel([]) == "\ufdd0"
    assert unused_sentinel(["a\ufdd0", "\\ufdd1 \ufdd2"]) == "\ufdd3"
    assert escaped("\ufdd0") == r"\ufdd0"


def test_a_chat_with_all_noncharacters_is_refused() -> None:
    assert unused_sentinel(list(SENTINELS[:-1])) == "\ufdef"
    with pytest.raises(RequestError, match=r"all noncharacters U\+FDD0 to U\+FDEF"):
        unused_sentinel(["".join(SENTINELS)])
