"""How a benchmark ends: what can't be done as asked is one line, and an exit code of its kind."""

import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from builder.artifact.config import Limits
from builder.errors import ForerunError, UserError


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Run the main function of a benchmark, and exit with its code, or with that of what went wrong."""
    try:
        sys.exit(main())
    except ForerunError as error:
        code, said = error.exit_code, str(error)
    except subprocess.CalledProcessError as error:
        code, said = error.returncode, f"{error.cmd[0]} failed with exit code {error.returncode}"
    except FileNotFoundError as error:
        code, said = UserError.exit_code, f"there is no {error.filename}"
    print(f"error: {said}", file=sys.stderr)
    sys.exit(code)


def require_room(limits: Limits, *, seq_len: int, num_seqs: int, block_size: int) -> None:
    """Refuse an artifact that can't hold so many sequences of so many tokens at once.

    Raises:
        UserError: names the limit, and what it must be.
    """
    if limits.max_seq_len < seq_len:
        raise UserError(
            f"the artifact has max_seq_len {limits.max_seq_len}, this benchmark needs {seq_len}; "
            f"compile with --max-seq-len {seq_len} or more"
        )
    num_blocks = 1 + num_seqs * -(-seq_len // block_size)
    if limits.num_blocks < num_blocks:
        raise UserError(
            f"the artifact has a pool of {limits.num_blocks} blocks, this benchmark needs {num_blocks}; "
            "compile with a larger --kv-cache-bytes"
        )
