"""`builder digest`: name a beginning of prompts by its tokens, as `builder deploy --common-prefix` takes it.

What follows a text decides how its end is cut into tokens, and a template may write the date. So the text is encoded
with many different things behind it and at two moments, and only what all of them begin with is named.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

import click

from builder.cli.discreet import DiscreetCommand
from builder.cli.display import display_for
from builder.cli.prompts import read_prompts
from builder.cli.runtimes import refuse_two_runtimes
from builder.cli.session import open_session
from builder.errors import UserError
from triton_backend.chat_template import ChatTemplate
from triton_backend.kv.domains import prefix_digest
from triton_backend.loading import LoadedModel

ENDINGS = (
    "a",
    "Z",
    "7",
    " b",
    " Z",
    " 7",
    "\n",
    "\n\n",
    "  ",
    ".",
    ",",
    "'s",
    "(",
    "<",
    "é",
    "日",
    "😀",
)
"""What may follow: parts of words, numbers, spaces, lines, marks, other scripts."""
MOMENTS = (datetime(1999, 2, 3, 4, 5, 6), datetime(2032, 11, 28, 17, 48, 59))
"""They agree in no part of a date or a time."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `builder digest` asks for."""

    artifact: Path
    text: str
    chat: bool


@click.command(short_help="Name a common beginning of prompts.", cls=DiscreetCommand)
@click.argument("artifact", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("text", metavar="TEXT")
@click.option("--chat", is_flag=True, help="TEXT is the system message of chats.")
def command(**options: Any) -> None:
    """Print TOKENS:SHA256 of prompts that begin with TEXT, for builder deploy --common-prefix; - reads stdin.

    The tokens are those of the artifact in DIR, as far as they are the same whatever follows TEXT.
    """
    click.echo(digest(Options(**options), sys.stdin.buffer))


def digest(options: Options, stdin: BinaryIO) -> str:
    """Give number and digest of the tokens that all prompts with this beginning share.

    Raises:
        UserError: the artifact or the text can't be used, or the tokens fill no block.
    """
    refuse_two_runtimes()
    if not os.path.isdir(options.artifact):  # noqa: PTH112 - of a path too long for a file it says no
        raise UserError("DIR, the first argument, is no folder; give an artifact, then the text")
    (text,) = read_prompts((options.text,), stdin)
    with open_session(options.artifact, display=display_for(quiet=True)) as model:
        encodings = (chats if options.chat else completions)(model, text)
        block_size = model.executor.kv.block_size
    shared = common_beginning(encodings)
    if len(shared) < block_size:
        raise UserError(
            f"prompts that begin so share {len(shared)} tokens, and blocks of {block_size} are shared;"
            " give a longer text"
        )
    return f"{len(shared)}:{prefix_digest(shared)}"


def completions(model: LoadedModel, text: str) -> list[tuple[int, ...]]:
    """Give the ids of prompts that begin with a text."""
    return [model.encode_text(text + ending) for ending in ENDINGS]


def chats(model: LoadedModel, text: str) -> list[tuple[int, ...]]:
    """Give the ids of chats that begin with a system message.

    Raises:
        UserError: the artifact has no chat template.
    """
    system = {"role": "system", "content": text}
    return [
        model.encode_chat(template, [system, {"role": "user", "content": ending}])
        for template in map(_template_at(model), MOMENTS)
        for ending in ENDINGS
    ]


def _template_at(model: LoadedModel) -> Callable[[datetime], ChatTemplate]:
    return lambda moment: model.chat_template(lambda: moment)


def common_beginning(encodings: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Give the ids that all of them begin with."""
    first, last = min(encodings), max(encodings)
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return tuple(token_id for token_id, _ in pairs)
