"""What stands where an option, a number or a folder belongs may be a prompt: no message repeats it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from builder.cli.main import main

WORDS = "secret plan"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["DIR", f"--{WORDS}"], "Put -- before prompts that begin with -."),
        (["DIR", f"-{WORDS}"], "Put -- before prompts that begin with -."),
        (["DIR", f"--{WORDS}=1"], "Put -- before prompts that begin with -."),
        (["DIR", f"--json={WORDS}", "a"], "Option '--json' does not take a value."),
        ([WORDS, "DIR"], "DIR, the first argument, is no folder"),
        ([WORDS * 500, "DIR"], "DIR, the first argument, is no folder"),
        (["DIR", "--target", WORDS, "a"], "--target names no target. Known: cpu, portable."),
        (["DIR", "--max-tokens", WORDS, "a"], "'--max-tokens': not a valid integer."),
        (["DIR", "--temperature", WORDS, "a"], "'--temperature': not a valid float."),
        (["DIR", "--threads", WORDS, "a"], "'--threads': not an integer of at least 1."),
        (["DIR", "--threads", "0", "a"], "'--threads': not an integer of at least 1."),
        (["DIR"], "Missing argument 'PROMPT...'"),
    ],
)
def test_generate_says_what_is_wrong_without_repeating_it(
    arguments: list[str], said: str, artifact_folder: Path
) -> None:
    given = [str(artifact_folder) if word == "DIR" else word for word in arguments]
    result = CliRunner().invoke(main, ["generate", *given])
    assert said in result.stderr
    assert "secret" not in result.stderr
    assert "plan" not in result.stderr
    assert result.stdout == ""
    assert result.exit_code == 2


@pytest.mark.parametrize("arguments", [[WORDS], [f"--{WORDS}"], [WORDS, "generate"]])
def test_neither_does_the_group(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert "secret" not in result.stderr
    assert result.exit_code == 2


def test_a_misspelt_option_is_answered_with_close_ones(artifact_folder: Path) -> None:
    result = CliRunner().invoke(main, ["generate", str(artifact_folder), "--temprature", "1", "a"])
    assert "is no option. Did you mean --temperature" in result.stderr


def test_a_prompt_may_begin_with_a_dash_behind_two_dashes(artifact_folder: Path) -> None:
    result = CliRunner().invoke(main, ["generate", str(artifact_folder), "--", "--prompt"])
    assert "is no option" not in result.stderr
