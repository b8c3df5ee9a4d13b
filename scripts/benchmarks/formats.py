"""Hold number formats side by side: what each costs to make, how large it is, and what it loses against float32.

Every format is compiled, calibrated before where it is a calibrated one, and reads the same texts as the model does in float32
with transformers. Beside them stand modelopt's own fake-quantized model of the same weights, and llama.cpp's formats of the
same bits where `scripts/bench quality` made them before.
Usage: scripts/bench formats [--model DIR] [--formats NAME,...] [--text FILE ...] [--tokens N] [--chart PNG] [--json FILE|-].
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from likelihood.readings import Reader, artifact_reader, llama_cpp_reader, torch_reader
from likelihood.text import fingerprint
from number_formats.catalogue import FORMATS
from number_formats.judging import Held, cut, hold, judged
from number_formats.making import MAX_SEQ_LEN, Made, make
from number_formats.modelopt_model import float_model, modelopt_model
from number_formats.table import show
from peer_engines.catalogue import Place
from peer_engines.llama_context import LIBRARY
from reporting.failures import exit_with
from reporting.figures import add_json_option, told_as_json
from rich.console import Console

from builder.errors import unknown_name
from builder.gate.text import Text, own_text, read_text
from builder.targets.machine import usable_threads

Record = dict[str, Any]


def record_of(name: str, read: Reader, held: list[Held], **facts: Any) -> Record:
    """Give what is told of one engine: some facts, and its figures on each text."""
    figures = {each.text.name: asdict(judged(name, read, each)) for each in held}
    return {"name": name, **facts, "figures": figures}


def facts_of(made: Made) -> Record:
    """Give what an artifact took, and how large it is."""
    return {
        "compilation": asdict(made.compilation),
        "calibration": None if made.calibration is None else asdict(made.calibration),
        "artifact_bytes": made.num_bytes,
        "bits_per_weight": made.bits_per_weight,
    }


def of_artifact(name: str, made: Made, held: list[Held], threads: int) -> Record:
    """Judge an artifact of a format."""
    with artifact_reader(made.root, threads) as read:
        return record_of(name, read, held, **facts_of(made))


def of_llama_cpp(place: Place, variant: str, held: list[Held], threads: int) -> list[Record]:
    """Judge a format of llama.cpp, where driver and model are there."""
    library = place.folder / "llama.cpp" / LIBRARY
    gguf = place.model(f"llama.cpp-{variant}") / "model.gguf"
    if not (library.exists() and gguf.exists()):
        return []
    read = llama_cpp_reader(library, gguf, length=MAX_SEQ_LEN, threads=threads)
    size = gguf.stat().st_size
    return [record_of(f"llama.cpp {variant}", read, held, artifact_bytes=size)]


def of_all(name: str, made: Made, held: list[Held], options: argparse.Namespace) -> list[Record]:
    """Judge an artifact of a format, and what stands beside it: modelopt's model and llama.cpp's format, if there are such."""
    place = Place(folder=options.peers)
    model: Path = options.model or place.checkpoint
    found = [of_artifact(name, made, held, options.threads)]
    if options.no_peers:
        return found
    if config := FORMATS[name].modelopt:
        theirs = torch_reader(modelopt_model(model, config, made.checkpoint))
        found.append(record_of(f"modelopt {name}", theirs, held))
    if options.model is None and (variant := FORMATS[name].llama_cpp):
        # A thread sets up its matrix tiles for llama.cpp once: in ours, where other engines set up theirs, it would die.
        with ThreadPoolExecutor(1) as apart:
            found += apart.submit(of_llama_cpp, place, variant, held, options.threads).result()
    return found


def once(file: Path, judge: Callable[[], list[Record]]) -> list[Record]:
    """Judge, or read what was found before: all formats of a model take most of an hour."""
    if not file.exists():
        text = json.dumps(judge())
        file.write_text(text)
    found: list[Record] = json.loads(file.read_text())
    return found


def records(options: argparse.Namespace, folder: Path, texts: list[Text]) -> Iterator[Record]:
    """Make and judge all formats that are asked for, one after another."""
    model: Path = options.model or Place(folder=options.peers).checkpoint
    held: list[Held] = []
    for name in options.formats:
        made = make(model, name, folder / name, samples=options.calib_samples)
        if not held:
            reference = cache(lambda: torch_reader(float_model(model)))
            held = [
                hold(text, cut(made.root, text, options.tokens), reference, folder)
                for text in texts
            ]
        tokens = np.concatenate([chunk for each in held for chunk in each.chunks])
        beside = "alone" if options.no_peers else "beside-peers"
        file = folder / name / f"{fingerprint(tokens)}-{beside}.json"
        yield from once(file, partial(of_all, name, made, held, options))
        if options.folder is None:
            shutil.rmtree(folder / name)


def names(text: str) -> list[str]:
    """Read the names of formats.

    Raises:
        ArgumentTypeError: one is unknown.
    """
    found = list(dict.fromkeys(text.split(",")))
    for name in found:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(unknown_name("format", name, FORMATS))
    return found


def parser() -> argparse.ArgumentParser:
    """Give the options."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("--model", type=Path, metavar="DIR", help="a Hugging Face folder")
    found.add_argument("--formats", type=names, default=list(FORMATS), metavar="NAME,...")
    found.add_argument("--text", type=Path, action="append", default=[], metavar="FILE")
    found.add_argument("--tokens", type=int, default=4096, metavar="N", help="of each text")
    found.add_argument("--calib-samples", type=int, metavar="N", help="calibrate with fewer")
    found.add_argument("--threads", type=int, default=2, metavar="N")
    found.add_argument("--peers", type=Path, default=Place().folder, metavar="DIR")
    found.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="keep all that is made and found here, and take what is there",
    )
    found.add_argument("--no-peers", action="store_true", help="leave modelopt, llama.cpp out")
    found.add_argument("--chart", type=Path, metavar="PNG")
    add_json_option(found)
    return found


def main() -> None:
    """Compare, and tell."""
    options = parser().parse_args()
    usable_threads(options.threads)
    texts = [own_text(), *map(read_text, options.text)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        report: Record = {
            "tokens": options.tokens,
            "texts": {text.name: text.sha256 for text in texts},
            "engines": list(records(options, folder, texts)),
        }
    if options.chart is not None:
        from number_formats.chart import draw_chart  # noqa: PLC0415 (of the extra `plot`)

        draw_chart(options.chart, report["engines"])
    if not told_as_json(report, options.json):
        show(report, Console())


if __name__ == "__main__":
    exit_with(main)
