"""What `builder generate` refuses, and how it ends when the work fails."""

from pathlib import Path

import pytest

from builder.cli import prompts, runtimes
from builder.targets.scripted.execute import ScriptedExecutor
from tests.builder.cli.scripted_engine import Watched, generate
from triton_backend.tokenizer import Tokenizer


def test_a_prompt_over_the_limit_is_refused_before_anything_is_generated(
    tiny_artifact: Path, executors: list[Watched]
) -> None:
    result = generate(tiny_artifact, "fine", "x" * 64, "--max-tokens", 4)
    assert result.stderr.startswith("error: prompt 2: a prompt of 64 tokens ")
    assert "64" in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert result.exit_code == 2
    (executor,) = executors
    assert executor.num_steps == 0
    assert executor.is_closed


@pytest.mark.usefixtures("executors")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--temperature", "-1"], "temperature must be a number from 0 to 100; got -1.0."),
        (["a", "--temperature", "nan"], "temperature must be a number"),
        (["a", "--top-p", "1.5"], "top_p must be a number"),
        (["a", "--max-tokens", "0"], "max_tokens must be an integer from 1"),
        (["a", "--stop", ""], "stop[0] must have 1 to"),
        (["a", "--stop-token-id", "259"], "stop_token_ids[0]"),
        (["a", "--min-tokens", "5", "--max-tokens", "4"], "min_tokens must be at most max_tokens"),
        ([""], "the prompt must have at least 1 token"),
        (["a", ""], "prompt 2: the prompt must have at least 1 token"),
        (["-", "-"], "stdin can be read once"),
        (["a", "--system", "b"], "--system is part of a chat; add --chat"),
        (["a", "--chat", "--parse-special"], "--parse-special is for plain prompts"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_can_not_be_generated_is_refused_in_one_line(
    tiny_artifact: Path, arguments: list[str], message: str
) -> None:
    result = generate(tiny_artifact, *arguments)
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert result.exit_code == 2


@pytest.mark.parametrize("arguments", [[], ["a", "--threads", "0"], ["a", "--max-tokens", "x"]])
def test_what_makes_no_sense_is_a_usage_error(tiny_artifact: Path, arguments: list[str]) -> None:
    result = generate(tiny_artifact, *arguments)
    assert result.stderr.startswith("Usage: ")
    assert result.exit_code == 2


@pytest.mark.usefixtures("executors")
def test_a_prompt_that_is_not_utf8_is_refused(tiny_artifact: Path) -> None:
    from_stdin = generate(tiny_artifact, "a", "-", stdin=b"ab\xff")
    assert from_stdin.stderr.startswith("error: prompt 2 is not UTF-8 text from character 3 on")
    assert from_stdin.exit_code == 2
    as_argument = generate(tiny_artifact, "\udcff")
    assert as_argument.stderr.startswith("error: prompt 1 is not UTF-8 text from character 1 on")
    in_system = generate(tiny_artifact, "a", "--chat", "--system", "x\udcff")
    assert in_system.stderr.startswith("error: --system is not UTF-8 text from character 2 on")


@pytest.mark.usefixtures("executors")
@pytest.mark.parametrize("flags", [[], ["--parse-special"], ["--chat"]])
def test_text_that_could_never_fit_is_refused_unread(
    tiny_artifact: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(*_: object) -> None:
        raise AssertionError("it was encoded")

    monkeypatch.setattr(Tokenizer, "_encode_text", encode)
    result = generate(tiny_artifact, "-", *flags, stdin=b"7" * 1_000_000)
    assert result.stderr.startswith("error: the prompt has 1000")
    assert "can't fit max_seq_len 64" in result.stderr
    assert result.exit_code == 2


def test_a_stdin_without_an_end_is_not_read_to_it(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "MAX_STDIN_BYTES", 10)
    result = generate(tiny_artifact, "-", stdin=b"x" * 11)
    assert result.stderr == "error: stdin has more than 10 bytes, which is no prompt of a model\n"
    assert result.exit_code == 2


def test_an_engine_that_fails_ends_the_command_with_its_reason(
    tiny_artifact: Path, executors: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watched, "fail_at", 4)
    result = generate(tiny_artifact, "secret prompt", "b", "--ignore-eos", "--max-tokens", 9)
    assert "error: no complete answer for prompt 1, 2: " in result.stderr
    assert "the device is gone" in result.stderr
    assert "Traceback" not in result.stderr
    assert "secret" not in result.stderr
    assert result.exit_code == 1
    assert executors[0].is_closed


def test_an_interrupt_closes_the_engine(
    tiny_artifact: Path, executors: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ScriptedExecutor, "execute", interrupt)
    result = generate(tiny_artifact, "a")
    assert result.stderr == "error: interrupted\n"
    assert result.exit_code == 1
    assert executors[0].is_closed


def test_an_altered_artifact_is_refused_before_its_engine_is_opened(
    artifact_folder: Path, executors: list[Watched]
) -> None:
    (artifact_folder / "weights/rank0.safetensors").unlink()
    (artifact_folder / "weights/rank0.safetensors").write_bytes(b"v" * 5000)
    result = generate(artifact_folder, "a")
    assert "weights/rank0.safetensors" in result.stderr
    assert result.exit_code == 2
    assert executors == []


def test_two_runtimes_are_refused_before_anything_is_opened(
    tiny_artifact: Path, executors: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "_is_installed", lambda _: True)
    result = generate(tiny_artifact, "a")
    assert "onnxruntime and onnxruntime-gpu are both installed" in result.stderr
    assert result.exit_code == 2
    assert executors == []
