"""Compare our engine with llama.cpp, OpenVINO, vLLM and ONNX Runtime GenAI on this processor, the same model in each.

The first run installs them under out/peers. Each worker is a process of its own, two threads, the same token ids,
greedy, end tokens ignored; rounds are interleaved, medians are compared. `load` begins when imports are done.
Usage: scripts/bench peers --artifact DIR [--artifact DIR ...] [--gguf FILE] [--peers NAME[:FORM],...] [--rounds N]
       [--quick] [--chart FILE] [--json FILE|-].
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peer_engines.catalogue import HERE, PEERS, Place, command_of, command_of_ours, demo_model
from peer_engines.chart import draw_chart
from peer_engines.comparison import Figures, Ratio, figure_table, medians, ratio_table, ratios
from peer_engines.installing import PeerError, call
from reporting.failures import exit_with
from reporting.figures import add_json_option, told_as_json
from rich.console import Console
from rich.progress import Progress

from builder.artifact.store import read_manifest

ERRORS = Console(stderr=True)
WORKER_S = 900.0
"""A worker takes about one minute on an idle machine; one that spins against neighbours may take for ever."""
TABLE_WIDTH = 130
"""In files and pipes."""

Commands = dict[str, list[str]]


def name_of_ours(artifact: Path) -> str:
    """Name an artifact by its folder and precision."""
    return f"forerun {artifact.resolve().name} ({read_manifest(artifact).engines[0].requested})"


def prepare(place: Place, names: list[str], failures: dict[str, str]) -> Commands:
    """Make the peers ready, one after another; what fails is noted and left out."""
    commands: Commands = {}
    for name in names:
        peer, _, only = name.partition(":")
        for variant in [only] if only else PEERS[peer].write:
            full_name = f"{peer} {variant}"
            with ERRORS.status(f"preparing {full_name}"):
                try:
                    commands[full_name] = command_of(place, peer, variant)
                except PeerError as error:
                    failures[full_name] = str(error)
    return commands


def run_worker(command: list[str]) -> dict[str, Any]:
    """Run one worker and give its figures, with how busy the machine was before.

    Raises:
        PeerError: it ended badly.
    """
    busy = os.getloadavg()[0]
    report: dict[str, Any] = json.loads(
        call(command, cwd=HERE, timeout_s=WORKER_S).splitlines()[-1]
    )
    return report | {"load_average": round(busy, 2)}


def run_rounds(
    commands: Commands, options: argparse.Namespace, failures: dict[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """Run every worker once per round, each round beginning with another one."""
    names, reports = list(commands), defaultdict[str, list[dict[str, Any]]](list)
    with Progress(console=ERRORS) as progress:
        bar = progress.add_task("", total=options.rounds * len(names))
        for number in range(options.rounds):
            for index in range(len(names)):
                name = names[(index + number) % len(names)]
                progress.update(bar, description=f"round {number + 1}: {name}")
                extra = ["--seed", str(number), "--threads", str(options.threads)]
                extra += ["--quick"] if options.quick else []
                try:
                    reports[name].append(run_worker(commands[name] + extra))
                    # What came stays readable where a long run is stopped.
                    progress.print(name, json.dumps(reports[name][-1]), soft_wrap=True)
                except PeerError as error:
                    failures[name] = str(error)
                    progress.print(name, "failed:", failures[name], soft_wrap=True)
                progress.advance(bar)
    return {name: reports[name] for name in names if reports[name]}


def hold(all_medians: Mapping[str, Figures], ours: Collection[str]) -> dict[str, list[Ratio]]:
    """Hold each artifact against the best of the peers."""
    peers = {name: figures for name, figures in all_medians.items() if name not in ours}
    return {
        name: ratios(figures, peers, is_int4="int4" in name)
        for name, figures in all_medians.items()
        if name in ours and peers
    }


def notes_of(peers: list[str]) -> dict[str, str]:
    """Say of each engine what it is."""
    return {
        name: PEERS[name].note for name in dict.fromkeys(peer.partition(":")[0] for peer in peers)
    }


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--gguf", type=Path, default=demo_model(), metavar="FILE")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAME[:FORM],...")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--quick", action="store_true", help="one round of shorter answers")
    parser.add_argument("--chart", type=Path, default=Place().folder / "peers.png", metavar="FILE")
    add_json_option(parser)
    options = parser.parse_args()
    options.peers = [name for name in options.peers.split(",") if name]
    known = [*PEERS, *(f"{name}:{form}" for name in PEERS for form in PEERS[name].write)]
    if unknown := [name for name in options.peers if name not in known]:
        parser.error(f"no peer {unknown[0]!r}; there are {', '.join(known)}")
    if options.quick:
        options.rounds = 1
    return options


def main() -> None:
    """Install, convert, run and compare."""
    options, failures = read_options(), dict[str, str]()
    place = Place(gguf=options.gguf.absolute())
    ours = {name_of_ours(artifact): artifact for artifact in options.artifact}
    commands = {name: command_of_ours(artifact) for name, artifact in ours.items()}
    commands |= prepare(place, options.peers, failures)
    rounds = run_rounds(commands, options, failures)
    all_medians = {name: medians(reports) for name, reports in rounds.items()}
    held, notes = hold(all_medians, ours), notes_of(options.peers)
    report = {
        "notes": notes,
        "medians": all_medians,
        "ratios": {name: [asdict(ratio) for ratio in found] for name, found in held.items()},
        "failures": failures,
        "rounds": rounds,
    }
    if all_medians:
        draw_chart(options.chart, all_medians, ours)
    if told_as_json(report, options.json):
        return
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    console.print(figure_table(all_medians, failures))
    for name, found in held.items():
        console.print(ratio_table(name, found))
    for name, note in notes.items():
        console.print(f"{name}: {note}")
    console.print(f"chart: {options.chart}")


if __name__ == "__main__":
    exit_with(main)
