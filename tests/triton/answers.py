"""Whole answers over a stream, and their outputs joined."""

from typing import Any

from tritonclient.grpc import InferResult

from tests.triton.clients import Stream


def ask(to: Stream, /, **fields: Any) -> list[InferResult]:
    """Send a request and wait for all its responses."""
    to.ask(**fields)
    return to.answer()


def column(results: list[InferResult], name: str) -> list[Any]:
    """Join an output over all responses."""
    return [value for result in results for value in result.as_numpy(name).tolist()]
