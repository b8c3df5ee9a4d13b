"""`builder validate`: check a model repository without starting a server."""

from pathlib import Path

import click

from builder.cli.failures import printable
from builder.errors import UserError
from triton_backend.launcher.deployed import Repository, read_repository


@click.command(short_help="Check a Triton model repository without a server.")
@click.argument("repository", type=click.Path(path_type=Path), metavar="REPO")
def command(repository: Path) -> None:
    """Check every model of the Triton model repository REPO.

    What is wrong is named by file, line and key. Models that builder deploy did not write are only parsed.
    """
    valid = valid_repository(repository)
    for front in valid.fronts:
        told = front.settings
        line = f"{front.model}: face {told.face} of deployment {told.deployment}, {told.artifact}"
        click.echo(printable(line))
    for model in valid.others:
        click.echo(printable(f"{model}: not written by builder deploy"))


def valid_repository(root: Path) -> Repository:
    """Read a repository that can be served as it is.

    Raises:
        UserError: it can't; of several problems, all but the last are written to stderr before.
    """
    repository = read_repository(root)
    if repository.problems:
        *others, last = repository.problems
        for problem in others:
            click.echo(f"error: {printable(problem)}", err=True)
        raise UserError(last)
    return repository
