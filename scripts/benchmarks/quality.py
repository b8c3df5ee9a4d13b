"""Hold what artifacts compute against the same checkpoint in float32, and against llama.cpp's formats of it.

Each engine is given a text token by token; compared are how likely it finds the token that comes, and which it finds
likeliest. Figures are paired by token, with 95 % intervals over chunks. The text is named in the output.
Usage: scripts/bench quality --artifact DIR [--artifact DIR ...] [--tokens N] [--no-peers] [--json FILE|-].
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from likelihood.comparison import agreement, agreement_gain, perplexity, perplexity_ratio
from likelihood.readings import Reading, read_artifact, read_llama_cpp, read_reference
from likelihood.text import NAME, Tokens, fingerprint, read_chunks
from peer_engines.catalogue import Place, model_of, python_of
from peer_engines.llama_context import LIBRARY
from reporting.failures import exit_with, require_room
from reporting.figures import add_json_option, told_as_json
from rich.console import Console
from rich.table import Table

from builder.artifact.store import read_manifest
from builder.targets.machine import usable_threads

CHUNK = 512
LLAMA_CPP = "llama.cpp"
RIVALS = {"int8": "Q8_0", "int4": "Q4_0"}
"""The format of llama.cpp that judges one of ours."""
MOST_AGREEMENT_LOST = 0.005
MOST_PERPLEXITY = 1.01

Readings = dict[str, Reading]


def stored(path: Path, read: Callable[[], Reading]) -> Reading:
    """Have something read once, and from then on take what was read."""
    if not path.exists():
        reading = read()
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, likelihoods=reading.log_likelihoods, choices=reading.choices)
    with np.load(path) as arrays:
        return Reading(arrays["likelihoods"], arrays["choices"])


def read_peers(place: Place, chunks: Tokens, threads: int) -> Readings:
    """Have llama.cpp read the text in each of its formats."""
    python_of(place, LLAMA_CPP)
    library = place.folder / LLAMA_CPP / LIBRARY
    folder = place.folder / "readings" / fingerprint(chunks)
    readings = {}
    for variant in RIVALS.values():
        gguf = model_of(place, LLAMA_CPP, variant) / "model.gguf"
        readings[variant] = stored(
            folder / f"{variant}.npz",
            lambda gguf=gguf: read_llama_cpp(library, gguf, chunks, threads),  # type: ignore[misc]
        )
    return readings


def versus(mine: Reading, rival: Reading, reference: Reading, rival_name: str) -> dict[str, Any]:
    """Hold a reading against the rival's; 8 bits may lose a little, 4 bits nothing."""
    gain, ratio = agreement_gain(mine, rival, reference), perplexity_ratio(mine, rival)
    if rival_name == RIVALS["int8"]:
        met = gain.value >= -MOST_AGREEMENT_LOST and ratio.value <= MOST_PERPLEXITY
    else:
        met = gain.value >= 0 and ratio.value <= 1
    return {"agreement_gain": asdict(gain), "perplexity_ratio": asdict(ratio), "met": met}


def report_of(ours: Readings, peers: Readings, reference: Reading) -> dict[str, Any]:
    """Give the figures of each reading, and of each of ours against each rival."""
    engines: dict[str, Any] = {"reference": {"perplexity": perplexity(reference)}}
    for name, reading in (ours | peers).items():
        engines[name] = {
            "perplexity": perplexity(reading),
            "perplexity_ratio": asdict(perplexity_ratio(reading, reference)),
            "agreement": asdict(agreement(reading, reference)),
        }
    for name, reading in ours.items():
        engines[name]["versus"] = {
            rival: versus(reading, found, reference, rival) for rival, found in peers.items()
        }
    return engines


def interval(figures: dict[str, float]) -> str:
    return f"{figures['value']:.4f} ({figures['low']:.4f} to {figures['high']:.4f})"


def show(report: dict[str, Any], console: Console) -> None:
    """Print tables."""
    console.print(f"{report['tokens']} tokens in chunks of {CHUNK}: {report['text']}")
    engines = report["engines"]
    table = Table("engine", "perplexity", "over float32's", "same choice as float32")
    for name, figures in engines.items():
        values = (
            interval(figures[key]) for key in ("perplexity_ratio", "agreement") if key in figures
        )
        table.add_row(name, f"{figures['perplexity']:.3f}", *values)
    console.print(table)
    table = Table("artifact", "llama.cpp", "agreement gained", "perplexity over its", "bar")
    for name, figures in engines.items():
        for rival, found in figures.get("versus", {}).items():
            values = (interval(found[key]) for key in ("agreement_gain", "perplexity_ratio"))
            table.add_row(name, rival, *values, "met" if found["met"] else "missed")
    console.print(table)


def main() -> None:
    """Read the text with all, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, action="append", required=True, metavar="DIR")
    parser.add_argument("--tokens", type=int, default=32_768, metavar="N")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--no-peers", action="store_true", help="leave llama.cpp out")
    add_json_option(parser)
    options = parser.parse_args()
    for root in options.artifact:
        require_room(read_manifest(root).limits, seq_len=CHUNK, num_seqs=1, block_size=1)
    usable_threads(options.threads)
    place = Place()
    tokenizer = options.artifact[0] / "tokenizer" / "tokenizer.json"
    chunks = read_chunks(tokenizer, options.tokens, CHUNK)
    reference = stored(
        place.folder / "readings" / fingerprint(chunks) / "reference.npz",
        lambda: read_reference(place.checkpoint, chunks),
    )
    peers = {} if options.no_peers else read_peers(place, chunks, options.threads)
    ours = {str(root): read_artifact(root, chunks, options.threads) for root in options.artifact}
    report = {"text": NAME, "tokens": chunks.size, "engines": report_of(ours, peers, reference)}
    if told_as_json(report, options.json):
        return
    show(report, Console())


if __name__ == "__main__":
    exit_with(main)
