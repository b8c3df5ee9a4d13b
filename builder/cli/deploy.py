"""`builder deploy`: write an artifact into a Triton model repository, complete, with nothing to edit."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from builder.artifact.gate_report import check_gate
from builder.artifact.store import read_manifest
from builder.cli.display import display_on
from builder.cli.failures import printable
from builder.cli.interruption import stop_signals_interrupt
from builder.cli.numeric import COUNT, FiniteRange
from triton_backend.config import EngineConfig, PolicyName
from triton_backend.engine_options import read_prefix
from triton_backend.launcher.deploy import Deployment, deploy

DEFAULT = EngineConfig()


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `builder deploy` asks for."""

    artifact: Path
    repository: Path
    name: str | None
    vllm_name: str
    threads: int | None
    policy: str
    max_waiting: int
    max_waiting_tokens: int | None
    max_chunk_tokens: int | None
    no_prefix_reuse: bool
    cache_ttl: float | None
    common_prefix: tuple[str, ...]
    speculate: bool
    max_draft_tokens: int
    allow_missed_gate: bool
    force: bool

    @property
    def engine(self) -> EngineConfig:
        """Settings of the engine.

        Raises:
            UserError: a common prefix is not of its form.
        """
        return EngineConfig(
            policy=self.policy,
            max_waiting=self.max_waiting,
            max_waiting_tokens=self.max_waiting_tokens,
            max_chunk_tokens=self.max_chunk_tokens,
            prefix_reuse=not self.no_prefix_reuse,
            cache_ttl_s=self.cache_ttl,
            common_prefixes=tuple(map(read_prefix, self.common_prefix)),
            speculation=self.speculate,
            max_draft_tokens=self.max_draft_tokens,
        )

    @property
    def deployment(self) -> Deployment:
        """What is deployed.

        Raises:
            UserError: a common prefix is not of its form.
        """
        root = self.artifact.resolve()
        name = root.name if self.name is None else self.name
        return Deployment(
            name,
            self.vllm_name,
            root,
            self.threads,
            self.engine,
            allow_missed_gate=self.allow_missed_gate,
        )


@click.command(short_help="Write an artifact into a Triton model repository.")
@click.argument("artifact", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("repository", type=click.Path(path_type=Path), metavar="REPO")
@click.option(
    "--name",
    metavar="NAME",
    help="Deployment, and its model with Forerun's own face.  [default: the name of DIR]",
)
@click.option(
    "--vllm-name",
    metavar="NAME",
    default="vllm_model",
    show_default=True,
    help="Its model with the face of Triton's vLLM backend.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 9999),
    metavar="N",
    help="Threads of the engine.  [default: all cores]",
)
@click.option(
    "--policy",
    type=click.Choice(list(map(str, PolicyName))),
    default=str(PolicyName.FCFS),
    show_default=True,
    help="Who is admitted first of those who wait.",
)
@click.option(
    "--max-waiting",
    type=COUNT,
    default=DEFAULT.max_waiting,
    show_default=True,
    metavar="N",
    help="Answers that may wait; further ones are refused at once, to be tried again.",
)
@click.option(
    "--max-waiting-tokens",
    type=COUNT,
    metavar="N",
    help="The same in tokens of prompts.  [default: no bound]",
)
@click.option(
    "--max-chunk-tokens",
    type=COUNT,
    metavar="N",
    help="Tokens of prompts in a step that running answers wait for.  [default: no bound]",
)
@click.option(
    "--no-prefix-reuse", is_flag=True, help="Compute every prompt anew, also one seen before."
)
@click.option(
    "--cache-ttl",
    type=FiniteRange(0.001, 999_999_999),
    metavar="S",
    help="Seconds until an unused prompt is forgotten.  [default: when its room is needed]",
)
@click.option(
    "--common-prefix",
    multiple=True,
    metavar="TOKENS:SHA256",
    help="Beginning of prompts that all tenants share; repeatable. builder digest gives it.",
)
@click.option(
    "--speculate",
    is_flag=True,
    help="Draft tokens by prompt lookup; answers stay the same, byte for byte.",
)
@click.option(
    "--max-draft-tokens",
    type=COUNT,
    default=DEFAULT.max_draft_tokens,
    show_default=True,
    metavar="N",
    help="Tokens drafted per answer and step.",
)
@click.option(
    "--allow-missed-gate",
    is_flag=True,
    help="Serve an artifact that missed its quality gate all the same.",
)
@click.option("--force", is_flag=True, help="Replace what the deployment NAME has in REPO.")
def command(**options: Any) -> None:
    """Deploy the artifact in DIR as models of the Triton model repository REPO.

    The models name DIR by its absolute path and hold no copy of it. One engine serves all models of a deployment. No
    option changes an answer.
    """
    asked = Options(**options)
    deployment = asked.deployment
    check_gate(
        deployment.artifact,
        read_manifest(deployment.artifact),
        allow_missed=asked.allow_missed_gate,
        warn=display_on(sys.stderr).note,
    )
    with stop_signals_interrupt():
        deploy(asked.repository, deployment, replace_existing=asked.force)
    click.echo(printable(f"{asked.repository}: {' and '.join(deployment.faces)}"))
