"""`builder generate`: continue prompts with an artifact, together in one engine.

Only generated text reaches stdout. Prompts never reach a message.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

from builder.artifact.gate_report import check_gate
from builder.artifact.store import read_manifest
from builder.cli.discreet import DiscreetCommand
from builder.cli.display import Silence, TerminalDisplay, display_on
from builder.cli.outputs import JsonOutput, TextOutput
from builder.cli.prompts import read_prompts, read_schema, refuse_other_encodings
from builder.cli.run import Outcome, naming_prompt, run_requests
from builder.cli.runtimes import refuse_two_runtimes
from builder.cli.session import open_session
from builder.cli.stats import stats_rows
from builder.errors import (
    ArtifactError,
    EngineError,
    RequestError,
    UnsupportedError,
    UserError,
    known_names,
)
from builder.targets import ALIASES, PLANNED, TARGETS
from triton_backend.loading import LoadedModel
from triton_backend.request import FinishReason, Request, SamplingParams


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `builder generate` asks for."""

    artifact: Path
    prompts: tuple[str, ...]
    chat: bool
    system: str | None
    parse_special: bool
    max_tokens: int | None
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    json_schema: Path | None
    num_choices: int
    seed: int | None
    stop: tuple[str, ...]
    stop_token_id: tuple[int, ...]
    ignore_eos: bool
    target: str | None
    threads: int | None
    allow_missed_gate: bool
    stats: bool
    as_json: bool

    @property
    def params(self) -> SamplingParams:
        """Sampling parameters, the same for every prompt.

        Raises:
            UserError: one is out of bounds, or the schema can't be read.
        """
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            constraint=read_schema(self.json_schema),
            num_choices=self.num_choices,
            seed=self.seed,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop_token_ids=self.stop_token_id,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
        )


@click.command(short_help="Generate text with an artifact.", cls=DiscreetCommand)
@click.argument("artifact", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("prompts", nargs=-1, required=True, metavar="PROMPT...")
@click.option("--chat", is_flag=True, help="Render each prompt as a user message of a chat.")
@click.option("--system", metavar="TEXT", help="System message of the chat.")
@click.option(
    "--parse-special",
    is_flag=True,
    help="Let special tokens that a prompt spells out be those tokens; they are text otherwise.",
)
@click.option(
    "--max-tokens", type=int, metavar="N", help="Tokens of an answer.  [default: up to the limit]"
)
@click.option(
    "--min-tokens", type=int, default=0, metavar="N", help="Tokens before anything ends an answer."
)
@click.option(
    "--temperature",
    type=float,
    default=0.0,
    show_default=True,
    metavar="X",
    help="0 is greedy (the most likely token); above, tokens are drawn.",
)
@click.option(
    "--top-k", type=int, default=0, metavar="N", help="Draw among the N most likely tokens."
)
@click.option(
    "--top-p", type=float, default=1.0, metavar="X", help="Draw among this share of probability."
)
@click.option(
    "--min-p", type=float, default=0.0, metavar="X", help="Draw among what is X times as likely."
)
@click.option(
    "--repetition-penalty",
    type=float,
    default=1.0,
    metavar="X",
    help="Above 1, tokens of prompt and answer become less likely.",
)
@click.option(
    "--presence-penalty", type=float, default=0.0, metavar="X", help="The same of the answer's own."
)
@click.option(
    "--frequency-penalty", type=float, default=0.0, metavar="X", help="The same, per occurrence."
)
@click.option(
    "--json-schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Schema that answers conform to, whatever is drawn.",
)
@click.option("-n", "num_choices", type=int, default=1, metavar="N", help="Answers to each prompt.")
@click.option("--seed", type=int, metavar="N", help="Make drawn answers repeatable.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Text that ends an answer; repeatable.")
@click.option(
    "--stop-token-id", type=int, multiple=True, metavar="N", help="Id that ends one; repeatable."
)
@click.option("--ignore-eos", is_flag=True, help="Go on after the model's own end tokens.")
@click.option("--target", metavar="NAME", help="Engine to run.  [default: the artifact's first]")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads of the engine.")
@click.option(
    "--allow-missed-gate", is_flag=True, help="Run an artifact that missed its quality gate."
)
@click.option("--stats", is_flag=True, help="Show TTFT and tokens/s on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object an answer and line.")
def command(**options: Any) -> None:
    """Continue each PROMPT with the artifact in DIR; - reads a prompt from stdin.

    Several prompts run together, give the same text as one by one, and are printed in their order.
    """
    generate(Options(**options), sys.stdin.buffer, sys.stdout.buffer)


def generate(options: Options, stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Open the artifact, run the prompts and write the answers.

    Raises:
        UserError: the artifact, a prompt or an option can't be used; nothing was generated then.
        EngineError: an answer could not be finished.
    """
    refuse_two_runtimes()
    refuse_misplaced(options)
    refuse_contradictions(options)
    check_gate(
        options.artifact,
        read_manifest(options.artifact),
        allow_missed=options.allow_missed_gate,
        warn=display_on(sys.stderr).note,
    )
    params, prompts = options.params, read_prompts(options.prompts, stdin)
    started = time.perf_counter()
    loading = TerminalDisplay(sys.stderr, keep_bars=False) if sys.stderr.isatty() else Silence()
    with open_session(
        options.artifact, display=loading, target=options.target, threads=options.threads
    ) as model:
        load_s = time.perf_counter() - started
        refuse_unsupported_schema(model, params)
        requests = [
            Request(str(number), ids, params)
            for number, ids in enumerate(encode_all(model, prompts, options))
        ]
        output = (JsonOutput if options.as_json else TextOutput)(
            stdout, len(requests) * params.num_choices
        )
        outcomes = run_requests(model.engine, requests, output=output, clock=time.perf_counter)
    if options.stats:
        display_on(sys.stderr).facts("Stats", stats_rows(outcomes, load_s=load_s))
    raise_failed(outcomes, params.num_choices)


def refuse_unsupported_schema(model: LoadedModel, params: SamplingParams) -> None:
    """Compile the schema, if there is one.

    Raises:
        UserError: it is invalid, not supported, or too large.
    """
    if params.constraint is None:
        return
    try:
        model.masks.compile(params.constraint)
    except RequestError as error:
        raise UserError(_in_words_of_options(str(error))) from error


def refuse_misplaced(options: Options) -> None:
    """Refuse what names no folder or target, without repeating it: prompts may have taken their places.

    Raises:
        ArtifactError: the first argument is no folder.
        UnsupportedError: there is no such target.
    """
    if not os.path.isdir(options.artifact):  # noqa: PTH112 - of a path too long for a file it says no
        raise ArtifactError(
            "DIR, the first argument, is no folder; give the folder of an artifact, then the prompts"
        )
    known = (*TARGETS, *ALIASES)
    if options.target is not None and options.target not in (*known, *PLANNED):
        raise UnsupportedError(f"--target names no target.{known_names(options.target, known)}")


def refuse_contradictions(options: Options) -> None:
    """Refuse options that would have no effect.

    Raises:
        UserError: names the option and what to do.
    """
    if options.system is not None:
        refuse_other_encodings("--system", options.system)
        if not options.chat:
            raise UserError(
                "--system is part of a chat; add --chat, or put the text into the prompt"
            )
    if options.chat and options.parse_special:
        raise UserError(
            "--parse-special is for plain prompts; in a chat only the template writes special tokens"
        )


def encode_all(
    model: LoadedModel, prompts: Sequence[str], options: Options
) -> list[tuple[int, ...]]:
    """Give the token ids of every prompt, as a chat or as plain text.

    Raises:
        UserError: the artifact has no chat template, or a prompt can't be encoded.
    """
    encode = encoder(model, options)
    ids = []
    for number, prompt in enumerate(prompts, start=1):
        with naming_prompt(number, len(prompts)):
            ids.append(encode(prompt))
    return ids


def encoder(model: LoadedModel, options: Options) -> Callable[[str], tuple[int, ...]]:
    """Give the function that turns a prompt into token ids."""
    if options.chat:
        template = model.chat_template()
        system = [] if options.system is None else [{"role": "system", "content": options.system}]
        return lambda prompt: model.encode_chat(
            template, [*system, {"role": "user", "content": prompt}]
        )
    return model.encode_with_control if options.parse_special else model.encode_text


def raise_failed(outcomes: list[Outcome], num_choices: int) -> None:
    """Fail when an answer ended with an error; each prompt has so many.

    Raises:
        EngineError: names the prompts and the first error.
    """
    failed = {
        place // num_choices + 1: _in_words_of_options(outcome.error or "")
        for place, outcome in enumerate(outcomes)
        if outcome.finish_reason in (FinishReason.ERROR, FinishReason.INVALID)
    }
    if failed:
        numbers = ", ".join(map(str, failed))
        raise EngineError(f"no complete answer for prompt {numbers}: {next(iter(failed.values()))}")


def _in_words_of_options(message: str) -> str:
    return message.replace("constraint.text", "the schema of --json-schema")
