"""One `config.pbtxt` on disk: parsed, with the line and the key of whatever is wrong in it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from builder.errors import UserError

CONFIG = "config.pbtxt"
AGAIN = "run builder deploy --force again"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A parsed configuration and the text it came from."""

    path: Path
    text: str
    config: Any
    """A ModelConfig of Triton's protocol."""

    @property
    def parameters(self) -> dict[str, str]:
        """Its parameters, by name."""
        return {name: value.string_value for name, value in self.config.parameters.items()}

    def problem(self, key: str, reason: str) -> str:
        """Write one line about a key: where it is, what is wrong, what to do.

        The place is the first line that has the key as a field or as a quoted name; the first of all without one.
        """
        pattern = re.compile(rf'^\s*{re.escape(key)}\b|"{re.escape(key)}"')
        lines = self.text.splitlines()
        line = next((number for number, each in enumerate(lines, 1) if pattern.search(each)), 1)
        return f"{self.path}:{line}: {key}: {reason}; {AGAIN}"


def read_config(folder: Path) -> ConfigFile:
    """Parse the configuration of the model in `folder`.

    Raises:
        UserError: there is none, or it can't be parsed; the message names line and key.
    """
    path = folder / CONFIG
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{folder} is no model: it has no {CONFIG}; remove it") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; {AGAIN}") from error
    try:
        return ConfigFile(path, text, text_format.Parse(text, model_config_pb2.ModelConfig()))
    except text_format.ParseError as error:
        raise UserError(_describe(path, text, error)) from error


def format_config(config: Any) -> str:
    """Write a configuration as text."""
    return str(text_format.MessageToString(config))


def _describe(path: Path, text: str, error: text_format.ParseError) -> str:
    line = min(error.GetLine() or 1, len(text.splitlines()) or 1)
    keys = re.findall(r"([a-z_]+)\s*[:{\[]", (text.splitlines() or [""])[line - 1])
    key = f"{keys[-1]}: " if keys else ""
    # The parser writes the place in front of its reason, and often the whole line, with what it holds.
    reason = re.sub(r"^\d+:\d+ : ('.*': (?=\w))?", "", str(error)).rstrip(".")
    return f"{path}:{line}: {key}{reason}; {AGAIN}"
