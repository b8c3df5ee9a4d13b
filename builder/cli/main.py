"""The `builder` command: a table of commands, each imported only when it runs.

`builder --help` therefore imports no numpy, onnx or torch and answers at once.
"""

import importlib
import logging
from dataclasses import dataclass
from typing import Any

import click

from builder.cli.discreet import reraise_discreetly
from builder.cli.failures import reported
from builder.cli.streams import mend_streams
from builder.errors import UserError, known_names


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and its line in the help of the group."""

    place: str
    """`module:attribute` of the click command."""
    help: str
    extra: str | None = None
    """The extra of the distribution that it needs, beside what is always installed."""


COMMANDS = {
    "compile": Entry("builder.cli.compile:command", "Compile a checkpoint into one artifact."),
    "inspect": Entry("builder.cli.inspect:command", "Show what an artifact is and holds."),
    "verify": Entry(
        "builder.cli.verify:command",
        "Prove that an artifact is whole and its answers repeatable.",
    ),
    "export": Entry(
        "builder.cli.export:command", "Write an artifact back as a Hugging Face checkpoint."
    ),
    "generate": Entry("builder.cli.generate:command", "Generate text with an artifact."),
    "simulate": Entry(
        "builder.cli.simulate:command", "Compare scheduling policies on a virtual clock."
    ),
    "digest": Entry("builder.cli.digest:command", "Name a common beginning of prompts."),
    "deploy": Entry(
        "builder.cli.deploy:command",
        "Write an artifact into a Triton model repository.",
        extra="serve",
    ),
    "validate": Entry(
        "builder.cli.validate:command",
        "Check a Triton model repository without a server.",
        extra="serve",
    ),
    "serve": Entry(
        "builder.cli.serve:command",
        "Serve a model repository in Triton, and as an OpenAI API.",
        extra="serve",
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are looked up."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the arguments of the group, which is where every run begins.

        Raises:
            click.UsageError: an option is unknown; it is not repeated, because it may be a prompt.
        """
        mend_streams()
        with reported(debug=False):
            try:
                return super().make_context(info_name, args, parent, **extra)
            except click.UsageError as error:
                reraise_discreetly(error)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Give the names in the order of a user's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; None when there is no such name.

        Raises:
            UserError: it needs an extra that is not installed.
        """
        if cmd_name not in COMMANDS:
            return None
        entry = COMMANDS[cmd_name]
        module, _, attribute = entry.place.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if entry.extra is None:
                raise
            package = str(error.name).partition(".")[0]
            raise UserError(
                f"builder {cmd_name} needs {package}; install forerun[{entry.extra}]"
            ) from error
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with.

        Raises:
            UserError: there is no such command.
        """
        if args[0] not in COMMANDS:
            # It is not repeated: it may be a prompt.
            raise UserError(f"the first argument is no command.{known_names(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table of commands from `COMMANDS`, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; any failure becomes one line and an exit code."""
        with reported(debug=ctx.params["debug"]):
            return super().invoke(ctx)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help="Show the traceback of a failure before its one line.")
@click.version_option(package_name="forerun", prog_name="builder")
def main(debug: bool) -> None:
    """Compile language models ahead of time, and run what was compiled."""
    # Without a handler of ours, logging would write the traceback of a failed engine step to stderr.
    handler = logging.StreamHandler() if debug else logging.NullHandler()
    logging.basicConfig(handlers=[handler])


if __name__ == "__main__":
    main()
