"""Keeps what torch, transformers and modelopt print away from people, and what they raise in one error of ours."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

from builder.errors import BuildError

FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What modelopt raises besides RuntimeError, which torch raises too when memory is short."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what is printed, logged and warned of inside: bars, hints for GPUs, and advice on code that is not ours.

    Raises:
        BuildError: a library failed inside; the message is its own first line.
    """
    logged = logging.root.manager.disable
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
            yield
    except MemoryError as error:
        raise BuildError(
            "calibration ran out of memory; close other programs or use a larger machine"
        ) from error
    except (RuntimeError, *FAILURES) as error:
        first = (str(error).splitlines() or [""])[0]
        raise BuildError(f"calibration failed: {type(error).__name__}: {first}") from error
    finally:
        logging.disable(logged)
