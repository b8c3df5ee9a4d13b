"""What is said of a failure: our own words, and of others the type alone."""

import logging

import pytest

from builder.errors import EngineError
from triton_backend.failures import describe, log_failure

logger = logging.getLogger("test")


def test_our_own_errors_are_quoted_and_others_are_not() -> None:
    assert describe(EngineError("the plan broke")) == "the plan broke"
    assert describe(ValueError("words of a prompt")) == "ValueError"


def test_the_place_of_a_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    quote = "words of a prompt"
    try:
        int(quote)
    except ValueError as failure:
        log_failure(logger, "it failed", failure)
    assert "it failed: ValueError" in caplog.text
    assert "test_failures.py" in caplog.text
    assert quote not in caplog.text
