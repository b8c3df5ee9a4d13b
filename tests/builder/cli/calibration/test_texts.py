"""What is calibrated with: our own prompts, files of users, and lines that are no sample."""

import json
import re
from pathlib import Path

import pytest

from builder.cli.calibration.texts import OWN, OWN_NAME, read_calibration_text
from builder.errors import UserError
from builder.gate.text import own_text, questions

PRIVATE = "the words of a user"
RUN = 8
"""Words in a row that two texts may not share."""


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def runs(text: str) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[place : place + RUN]) for place in range(len(found) - RUN + 1)}


def test_our_own_prompts_are_many_and_none_comes_twice() -> None:
    text = read_calibration_text(None, None)
    assert text.name == OWN_NAME
    assert len(set(map(str, text.samples))) == len(text.samples) >= 256
    assert len(read_calibration_text(None, 10).samples) == 10


def test_our_own_prompts_share_nothing_with_the_text_of_the_gate() -> None:
    held = own_text()
    turns = [turn["content"] for dialogue in held.dialogues for turn in dialogue]
    prompts = {" ".join(words(question.prompt)) for question in questions()}
    seen = set().union(*map(runs, (*held.passages, *turns)))
    for line in OWN.read_text().splitlines():
        sample = json.loads(line)
        own = [sample["prompt"]] if "prompt" in sample else []
        own += [turn["content"] for turn in sample.get("messages", ())]
        assert not any(runs(each) & seen for each in own), line
        assert not any(" ".join(words(each)) in prompts for each in own), line


def test_a_text_file_is_one_sample(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("One.\n\nTwo.\n")
    assert read_calibration_text(tmp_path / "mine.txt", None).samples == ("One.\n\nTwo.\n",)


def test_a_line_of_jsonl_is_a_text_a_prompt_or_a_chat_and_may_say_more(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]
    lines = [{"text": "a", "id": 1}, {"prompt": "b"}, {"messages": chat}]
    (tmp_path / "mine.jsonl").write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    text = read_calibration_text(tmp_path / "mine.jsonl", None)
    assert text.samples == ("a", ({"role": "user", "content": "b"},), tuple(chat))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{PRIVATE}", "line 2 has no JSON"),
        (f'["{PRIVATE}"]', "line 2 has another shape"),
        (f'{{"prompt": ["{PRIVATE}"]}}', "line 2 has another shape"),
        (f'{{"question": "{PRIVATE}"}}', "line 2 has 0 of text, prompt and messages"),
        (f'{{"text": "{PRIVATE}", "prompt": "b"}}', "line 2 has 2 of text, prompt and messages"),
    ],
)
def test_a_line_that_is_no_sample_is_named_and_not_shown(
    tmp_path: Path, line: str, message: str
) -> None:
    (tmp_path / "mine.jsonl").write_text(f'{{"text": "a"}}\n{line}\n')
    with pytest.raises(UserError, match=message) as caught:
        read_calibration_text(tmp_path / "mine.jsonl", None)
    assert PRIVATE not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["mine.txt", "mine.jsonl"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(" \n")
    with pytest.raises(UserError, match="is empty; give some text"):
        read_calibration_text(tmp_path / name, None)


def test_a_file_that_can_not_be_read_is_named_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--calib .*none\.txt can't be read"):
        read_calibration_text(tmp_path / "none.txt", None)
