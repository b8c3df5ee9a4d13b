"""Programs of this package that run as processes of their own."""

import sys


def command_of(module: str) -> tuple[str, ...]:
    """Give the command that runs a module of ours; its arguments follow.

    -P: the current folder is a user's or a server's, and Python would look into it for modules first.
    """
    return (sys.executable, "-P", "-m", module)
