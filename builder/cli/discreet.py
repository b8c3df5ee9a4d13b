"""Usage errors that name options, and never what was given: it may be a prompt.

Whoever forgets a quote, a value or the order of arguments gives a prompt where an option or a number belongs.
"""

from typing import Any, NoReturn

import click


class DiscreetCommand(click.Command):
    """A command that takes prompts."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does.

        Raises:
            click.UsageError: as click does, but without the words of the command line.
        """
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            reraise_discreetly(error, hint=" Put -- before prompts that begin with -.")


def reraise_discreetly(error: click.UsageError, *, hint: str = "") -> NoReturn:
    """Raise a usage error again, without what was given; `hint` follows on an unknown option.

    Raises:
        click.UsageError: always.
    """
    match error:
        case click.NoSuchOption():
            near = (
                f" Did you mean {' or '.join(error.possibilities)}?" if error.possibilities else ""
            )
            raise click.UsageError(
                f"An argument begins with - and is no option.{near}{hint}", error.ctx
            ) from None
        case click.MissingParameter():
            raise error
        case click.BadParameter(param=click.Parameter() as param):
            raise click.BadParameter(f"{_wanted(param.type)}.", error.ctx, param) from None
        case _:
            raise error


def _wanted(kind: click.ParamType[Any]) -> str:
    """Say what an option takes."""
    if isinstance(kind, click.IntRange) and kind.min is not None:
        return f"not an integer of at least {kind.min}"
    return f"not a valid {kind.name}"
