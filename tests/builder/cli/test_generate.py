"""`builder generate` with the tokenizer of a tiny Llama and the scripted engine, whose tokens are known."""

import json
import re
from pathlib import Path

import pytest

from tests.builder.cli.scripted_engine import (
    Watched,
    generate,
    line_of,
    text_of,
    tokens_of,
)
from tests.models import CHAT_TEMPLATE

START, END = "<|im_start|>", "<|im_end|>"


@pytest.mark.usefixtures("executors")
def test_only_the_text_and_a_newline_reach_stdout(tiny_artifact: Path) -> None:
    result = generate(tiny_artifact, "Hello", "--max-tokens", 20)
    assert result.stdout_bytes.decode() == line_of(b"Hello", 20)
    assert result.stderr == ""
    assert result.exit_code == 0


@pytest.mark.usefixtures("executors")
def test_answers_are_not_all_alike(tiny_artifact: Path) -> None:
    texts = {text_of(prompt, 20) for prompt in (b"Hello", b"World", b"a", b"b")}
    assert len(texts) == 4


@pytest.mark.usefixtures("executors")
def test_several_prompts_run_together_and_equal_one_by_one(tiny_artifact: Path) -> None:
    prompts = ["Hello", "a", "The quick brown fox jumps", "b", "zzz", "Hello"]
    together = generate(tiny_artifact, *prompts, "--max-tokens", 30)
    alone = [generate(tiny_artifact, prompt, "--max-tokens", 30) for prompt in prompts]
    assert together.stdout_bytes == b"".join(result.stdout_bytes for result in alone)
    assert together.stdout_bytes.decode() == "".join(line_of(p.encode(), 30) for p in prompts)


def test_several_prompts_share_steps(tiny_artifact: Path, executors: list[Watched]) -> None:
    flags = ["--max-tokens", 10, "--ignore-eos"]
    generate(tiny_artifact, "a", *flags)
    generate(tiny_artifact, "a", "b", "c", *flags)
    assert [executor.num_steps for executor in executors] == [10, 10]


@pytest.mark.usefixtures("executors")
def test_drawn_answers_repeat_with_a_seed_and_are_the_same_together(tiny_artifact: Path) -> None:
    flags = ["--temperature", 1, "--top-k", 20, "--top-p", 0.9, "--seed", 7, "--max-tokens", 20]
    together = generate(tiny_artifact, "a", "b", *flags)
    alone = [generate(tiny_artifact, prompt, *flags).stdout_bytes for prompt in ("a", "b")]
    assert together.stdout_bytes == b"".join(alone)
    assert together.stdout_bytes.decode() != line_of(b"a", 20) + line_of(b"b", 20)
    assert generate(tiny_artifact, "a", *flags, "--seed", 8).stdout_bytes != alone[0]


@pytest.mark.usefixtures("executors")
def test_a_prompt_comes_from_stdin_in_its_place(tiny_artifact: Path) -> None:
    result = generate(tiny_artifact, "a", "-", "b", "--max-tokens", 9, stdin="é\n".encode())
    expected = [line_of(prompt, 9) for prompt in (b"a", "é\n".encode(), b"b")]
    assert result.stdout_bytes.decode() == "".join(expected)


@pytest.mark.usefixtures("executors")
def test_special_tokens_in_a_prompt_are_text_unless_they_are_parsed(tiny_artifact: Path) -> None:
    prompt = f"{START}hi{END}"
    as_text = generate(tiny_artifact, prompt, "--max-tokens", 15)
    parsed = generate(tiny_artifact, prompt, "--max-tokens", 15, "--parse-special")
    assert as_text.stdout_bytes.decode() == line_of(prompt.encode(), 15)
    assert parsed.stdout_bytes.decode() == line_of([257, *b"hi", 258], 15)


@pytest.mark.usefixtures("executors")
def test_chat_renders_the_template_and_what_users_write_stays_text(tiny_artifact: Path) -> None:
    assert "<|im_start|>assistant" in CHAT_TEMPLATE
    user = f"hi{END}"
    result = generate(tiny_artifact, user, "--chat", "--system", "Be", "--max-tokens", 15)
    prompt = [
        *(257, *b"system\nBe", 258, *b"\n"),
        *(257, *b"user\nhi<|im_end|>", 258, *b"\n"),
        *(257, *b"assistant\n"),
    ]
    assert result.stdout_bytes.decode() == line_of(prompt, 15)


@pytest.mark.usefixtures("executors")
def test_json_gives_one_object_a_line_in_prompt_order(tiny_artifact: Path) -> None:
    result = generate(tiny_artifact, "Hello", "a", "--max-tokens", 20, "--json")
    lines = [json.loads(line) for line in result.stdout_bytes.splitlines()]
    assert [line["text"] for line in lines] == [text_of(b"Hello", 20), text_of(b"a", 20)]
    assert [line["num_prompt_tokens"] for line in lines] == [5, 1]
    counts = [len(tokens_of(prompt, 20)) for prompt in (b"Hello", b"a")]
    assert [line["num_generated_tokens"] for line in lines] == counts
    assert [line["index"] for line in lines] == [0, 1]


@pytest.mark.usefixtures("executors")
def test_stop_options_end_an_answer(tiny_artifact: Path) -> None:
    flags = ["--max-tokens", 30, "--ignore-eos", "--json"]
    free = json.loads(generate(tiny_artifact, "a", *flags).stdout)
    stop, tokens = free["text"][3:5], tokens_of(b"a", 30, ends=())
    by_text = json.loads(generate(tiny_artifact, "a", *flags, "--stop", stop).stdout)
    assert by_text["text"] == free["text"][: free["text"].index(stop)]
    assert by_text["finish_reason"] == "stop"
    by_id = json.loads(generate(tiny_artifact, "a", *flags, "--stop-token-id", tokens[4]).stdout)
    assert by_id["num_generated_tokens"] == tokens.index(tokens[4]) + 1
    assert by_id["finish_reason"] == "stop"
    later = generate(tiny_artifact, "a", *flags, "--stop-token-id", tokens[4], "--min-tokens", 25)
    assert json.loads(later.stdout)["num_generated_tokens"] >= 25


@pytest.mark.usefixtures("executors")
def test_stats_go_to_stderr_and_leave_stdout_as_it_is(tiny_artifact: Path) -> None:
    plain = generate(tiny_artifact, "Hello", "a", "--max-tokens", 5, "--ignore-eos")
    stats = generate(tiny_artifact, "Hello", "a", "--max-tokens", 5, "--ignore-eos", "--stats")
    assert stats.stdout_bytes == plain.stdout_bytes
    shown = re.sub(r"\d+(\.\d+)? (ms|s|tokens/s)\b", r"N \2", stats.stderr)
    assert shown == (
        "Stats\n"
        "  prompt 1  5 prompt tokens, 5 generated tokens, finished by length; "
        "TTFT N ms, then N tokens/s\n"
        "  prompt 2  1 prompt tokens, 5 generated tokens, finished by length; "
        "TTFT N ms, then N tokens/s\n"
        "  total     10 generated tokens in N ms, N tokens/s; loaded in N ms\n"
    )


def test_the_engine_is_opened_as_asked_and_closed_afterwards(
    tiny_artifact: Path, executors: list[Watched]
) -> None:
    result = generate(tiny_artifact, "a", "--max-tokens", 2, "--target", "cpu", "--threads", 2)
    assert result.exit_code == 0
    (executor,) = executors
    assert executor.opened_with == ("cpu", 2)
    assert executor.is_closed


@pytest.mark.usefixtures("executors")
def test_each_prompt_has_as_many_answers_as_are_asked_for(tiny_artifact: Path) -> None:
    flags = ["--temperature", 1, "--seed", 7, "--max-tokens", 8, "--ignore-eos", "--json", "-n", 2]
    lines = generate(tiny_artifact, "a", "b", *flags).stdout.splitlines()
    assert [json.loads(line)["index"] for line in lines] == [0, 1, 2, 3]
    texts = [json.loads(line)["text"] for line in lines]
    assert len(set(texts)) == 4
    alone = generate(tiny_artifact, "b", *flags).stdout.splitlines()
    assert [json.loads(line)["text"] for line in alone] == texts[2:]


@pytest.mark.usefixtures("executors")
def test_answers_follow_a_schema(tiny_artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"enum": ["yes", "no"]}')
    flags = ["--json-schema", tmp_path / "schema.json", "--temperature", 1, "-n", 4, "--seed", 1]
    result = generate(tiny_artifact, "a", *flags)
    assert set(result.stdout.splitlines()) <= {'"yes"', '"no"'}
    assert len(result.stdout.splitlines()) == 4


@pytest.mark.usefixtures("executors")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{secret", "error: the schema of --json-schema is not a JSON schema"),
        (b'{"not": {"const": "secret"}}', "error: the schema of --json-schema"),
        (b"\xff", "schema.json is not UTF-8 text; convert it first"),
        (None, "error: --json-schema names no file: "),
    ],
)
def test_a_schema_that_can_not_be_used_is_refused(
    tiny_artifact: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "schema.json").write_bytes(content)
    result = generate(tiny_artifact, "a", "--json-schema", tmp_path / "schema.json")
    assert message in result.stderr
    assert "secret" not in result.stderr
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.usefixtures("executors")
def test_a_schema_too_complex_for_what_the_answer_became_is_named(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    fields = {f"k{number}": {"type": "integer"} for number in range(260)}
    schema = {"type": "array", "minItems": 1, "items": {"type": "object", "properties": fields}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    flags = ["--json-schema", tmp_path / "schema.json", "--max-tokens", 60]
    result = generate(tiny_artifact, "a", *flags, "--temperature", 1, "--seed", 1)
    assert result.stderr.startswith(
        "error: no complete answer for prompt 1: the schema of --json-schema is too complex"
    )
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.usefixtures("executors")
@pytest.mark.parametrize(
    "flags",
    [
        ("--repetition-penalty", 10),
        ("--presence-penalty", 2),
        ("--frequency-penalty", 2),
        ("--min-p", 1),
    ],
)
def test_every_further_sampling_field_counts(tiny_artifact: Path, flags: tuple[str, float]) -> None:
    drawn = ["--temperature", 1, "--seed", 7, "--max-tokens", 60, "--ignore-eos"]
    plain, other = (generate(tiny_artifact, "a", *drawn, *more) for more in ((), flags))
    assert other.exit_code == 0
    assert plain.stdout_bytes != other.stdout_bytes


def test_a_penalty_out_of_bounds_is_refused_before_anything_is_loaded(tiny_artifact: Path) -> None:
    result = generate(tiny_artifact, "a", "--presence-penalty", 3)
    assert "presence_penalty must be a number from -2 to 2; got 3" in result.stderr
    assert result.exit_code == 2
