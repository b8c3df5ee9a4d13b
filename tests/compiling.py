"""Run `builder compile` as its users do."""

from pathlib import Path

from click.testing import CliRunner, Result

from builder.cli.main import main


def compile_(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["compile", *map(str, arguments)])


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
