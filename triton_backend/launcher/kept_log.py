"""The log of a server that something went wrong in outlives the server, and its private folder."""

import shutil
import tempfile
from pathlib import Path

SIGN = b"ERROR "
"""What fronts and engine hosts begin a line with that tells of a failure; other lines of the log are Triton's."""


def keep_log(log: Path) -> Path | None:
    """Copy a log that tells of a failure to where temporary files are, for its owner alone; None if it tells of none."""
    with log.open("rb") as lines:
        if not any(line.startswith(SIGN) for line in lines):
            return None
        lines.seek(0)
        with tempfile.NamedTemporaryFile(
            "wb", prefix="forerun-", suffix=".log", delete=False
        ) as copy:
            shutil.copyfileobj(lines, copy)
    return Path(copy.name)
