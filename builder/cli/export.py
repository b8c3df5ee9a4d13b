"""`builder export`: write what an artifact holds back as a checkpoint that other programs, and this one, read."""

import sys
from pathlib import Path

import click

from builder.artifact.store import open_artifact, read_manifest
from builder.cli.display import display_on
from builder.cli.failures import printable
from builder.cli.interruption import stop_signals_interrupt
from builder.cli.sizes import format_bytes
from builder.export.folder import check_destination, plan_export, write_export


@click.command(short_help="Write an artifact back as a Hugging Face checkpoint.")
@click.argument("artifact", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--hf",
    "destination",
    type=click.Path(path_type=Path),
    required=True,
    metavar="OUT",
    help="Folder to write: config.json, model.safetensors, and the tokenizer's files.",
)
@click.option(
    "--target",
    metavar="TARGET",
    help="Engine whose weights are written.  [default: the only one of DIR]",
)
@click.option("--force", is_flag=True, help="Replace an exported checkpoint at OUT.")
def command(artifact: Path, destination: Path, target: str | None, force: bool) -> None:
    """Write the weights that an engine of the artifact in DIR computes with to the folder OUT.

    The numbers are the engine's own, in the layout that vLLM, SGLang and TensorRT-LLM read: compiling OUT
    again gives the same logits. The checkpoint that the artifact was made of is not needed.
    """
    display = display_on(sys.stderr)
    check_destination(artifact, destination, replace_existing=force)
    size = sum(record.size_bytes for record in read_manifest(artifact).files.values())
    with stop_signals_interrupt(), display.progress() as progress:
        progress.stage("verify", size)
        export = plan_export(open_artifact(artifact, progress.advance), target)
        progress.stage("write", export.num_bytes)
        write_export(export, destination, advance=progress.advance, replace_existing=force)
    done = f"{export.layout_name}, {len(export.specs)} tensors, {format_bytes(export.num_bytes)}"
    click.echo(printable(f"{destination}: {done}"))
