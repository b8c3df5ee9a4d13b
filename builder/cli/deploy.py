"""`builder deploy`: write an artifact into a Triton model repository, complete, with nothing to edit."""

from pathlib import Path

import click

from builder.cli.failures import printable
from builder.cli.interruption import stop_signals_interrupt
from triton_backend.launcher.deploy import Deployment, deploy


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
@click.option("--force", is_flag=True, help="Replace what the deployment NAME has in REPO.")
def command(
    artifact: Path,
    repository: Path,
    *,
    name: str | None,
    vllm_name: str,
    threads: int | None,
    force: bool,
) -> None:
    """Deploy the artifact in DIR as models of the Triton model repository REPO.

    The models name DIR by its absolute path and hold no copy of it. One engine serves all models of a deployment.
    """
    root = artifact.resolve()
    deployment = Deployment(root.name if name is None else name, vllm_name, root, threads)
    with stop_signals_interrupt():
        deploy(repository, deployment, replace_existing=force)
    click.echo(printable(f"{repository}: {' and '.join(deployment.faces)}"))
