"""Figures of a run."""

from builder.cli.run import Outcome
from builder.cli.stats import stats_rows
from triton_backend.request import FinishReason


def test_every_prompt_and_the_total_are_described() -> None:
    first = Outcome(FinishReason.LENGTH, 12, 65, ttft_s=0.25, total_s=2.25, error=None)
    second = Outcome(FinishReason.STOP, 3, 1, ttft_s=0.5, total_s=0.5, error=None)
    assert stats_rows([first, second], load_s=0.8) == [
        (
            "prompt 1",
            "12 prompt tokens, 65 generated tokens, finished by length; TTFT 250 ms, then 32.0 tokens/s",
        ),
        (
            "prompt 2",
            "3 prompt tokens, 1 generated tokens, finished by stop; TTFT 500 ms",
        ),
        ("total", "66 generated tokens in 2.2 s, 29.3 tokens/s; loaded in 800 ms"),
    ]


def test_a_run_that_took_no_time_has_no_rate() -> None:
    nothing = Outcome(FinishReason.ERROR, 3, 0, ttft_s=0.0, total_s=0.0, error="failed")
    assert stats_rows([nothing], load_s=0.0)[-1] == (
        "total",
        "0 generated tokens in 0 ms, - tokens/s; loaded in 0 ms",
    )
