"""How many files, connections among them, this process and its children may have open."""

import contextlib
import resource

ENOUGH = 65_536
"""Where the hard limit is higher, it can be a billion, and some programs count up to it."""


def allow_many_files() -> None:
    """Raise the soft limit towards the hard one; it is never lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
