"""Logs a failure of what serves many without quoting any of them."""

import logging
import traceback

from builder.errors import ForerunError


def log_failure(logger: logging.Logger, what: str, failure: Exception) -> None:
    """Log what failed and where. Only our own errors are quoted: a library's may hold a prompt or an answer."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    logger.error("%s: %s\n%s", what, describe(failure), where)


def describe(failure: Exception) -> str:
    """Say what a failure was: the message of our own errors, of others their type alone."""
    return str(failure) if isinstance(failure, ForerunError) else type(failure).__name__
