"""What a run took, in lines for people."""

from collections.abc import Sequence

from builder.cli.display import Rows
from builder.cli.run import Outcome
from builder.cli.sizes import format_duration


def stats_rows(outcomes: Sequence[Outcome], *, load_s: float) -> Rows:
    """Give one row per prompt, and one over all."""
    rows = [
        (f"prompt {number}", outcome_line(outcome)) for number, outcome in enumerate(outcomes, 1)
    ]
    tokens = sum(outcome.num_generated_tokens for outcome in outcomes)
    took = max(outcome.total_s for outcome in outcomes)
    total = (
        f"{tokens} generated tokens in {format_duration(took)}, {rate(tokens, took)}; "
        f"loaded in {format_duration(load_s)}"
    )
    return [*rows, ("total", total)]


def outcome_line(outcome: Outcome) -> str:
    """Describe one answer: its tokens, why it ended, and how fast it came."""
    speed = outcome.decode_tokens_per_s
    decode = "" if speed is None else f", then {speed:.1f} tokens/s"
    return (
        f"{outcome.num_prompt_tokens} prompt tokens, {outcome.num_generated_tokens} generated tokens, "
        f"finished by {outcome.finish_reason.value}; TTFT {format_duration(outcome.ttft_s)}{decode}"
    )


def rate(tokens: int, seconds: float) -> str:
    """Give tokens per second; a dash when no time passed."""
    return f"{tokens / seconds:.1f} tokens/s" if seconds > 0 else "- tokens/s"
