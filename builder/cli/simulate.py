"""`builder simulate`: play requests into the serving engine on a virtual clock, and compare policies.

The table goes to stdout, progress to stderr. The same options give the same figures.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from builder.cli.display import display_for
from builder.cli.numeric import COUNT, FiniteRange, NumberList
from builder.cli.simulation import comparison, plot
from builder.cli.simulation.machine import read_arrivals, read_machine
from builder.cli.simulation.options import Options, refuse_contradictions
from triton_backend.simulation.arrivals import MAX_REQUESTS, mean_rate
from triton_backend.simulation.capacity import find_capacity
from triton_backend.simulation.figures import Slo
from triton_backend.simulation.lengths import MAX_LENGTH
from triton_backend.simulation.run import Machine
from triton_backend.simulation.sweep import Cell, Grid, sweep

LOADS = (0.5, 0.8, 1.0, 1.2)
MAX_LOAD = 100.0
MAX_RATE = 1e6
MAX_SEQS = 65_536
MAX_KV_TOKENS = 100_000_000
"""The engine holds some 50 bytes per block of a pool, also of one that is only simulated."""
DURATION = FiniteRange(0, 1e9, min_open=True)


def _names(_context: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    """Split a list of names."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


@click.command(short_help="Compare scheduling policies on a virtual clock.")
@click.option(
    "--policy",
    default="fcfs,srpt",
    show_default=True,
    callback=_names,
    metavar="NAME,...",
    help="Policies to compare: fcfs, priority, srpt, fair, longest_prefix.",
)
@click.option(
    "--load",
    type=NumberList(MAX_LOAD),
    metavar="X,...",
    help="Loads, as multiples of the capacity.  [default: 0.5,0.8,1,1.2]",
)
@click.option(
    "--rate", type=NumberList(MAX_RATE), metavar="X,...", help="Loads, as requests per second."
)
@click.option(
    "--requests",
    type=click.IntRange(2, MAX_REQUESTS),
    default=500,
    show_default=True,
    metavar="N",
    help="Requests to draw.",
)
@click.option(
    "--prompt",
    default="lognormal:256:1.5",
    show_default=True,
    metavar="LENGTHS",
    help="Tokens of prompts: fixed:N, uniform:A:B, exponential:MEAN or lognormal:MEAN:CV.",
)
@click.option(
    "--answer",
    default="exponential:64",
    show_default=True,
    metavar="LENGTHS",
    help="Tokens of answers, likewise.",
)
@click.option(
    "--lengths",
    type=click.Choice(["known", "unknown"]),
    default="known",
    show_default=True,
    help="Whether requests say how long their answers will be (max_tokens).",
)
@click.option(
    "--tenants",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Tenants that the requests are of; the n-th has an n-th of the first one's.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Requests from a CSV or .jsonl file with at_s, num_prompt, num_answer, instead of drawn ones.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Names the drawn requests."
)
@click.option(
    "--skip",
    type=FiniteRange(0, 0.9),
    default=0.1,
    show_default=True,
    metavar="X",
    help="Share of the requests at first that are not measured: they meet an empty engine.",
)
@click.option(
    "--artifact",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take the limits of this artifact, and measure what its steps take here.",
)
@click.option("--target", metavar="NAME", help="Engine of the artifact.  [default: its first]")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads of the engine.")
@click.option(
    "--cost",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON object with the seconds of a step (step_s), of a token (token_s) and of a token attended to "
    "(context_s).",
)
@click.option(
    "--max-seq-len", type=click.IntRange(2, MAX_LENGTH), metavar="N", help="[default: 2048]"
)
@click.option("--max-num-seqs", type=click.IntRange(1, MAX_SEQS), metavar="N", help="[default: 16]")
@click.option(
    "--max-num-tokens", type=click.IntRange(1, MAX_LENGTH), metavar="N", help="[default: 256]"
)
@click.option(
    "--kv-tokens",
    type=click.IntRange(1, MAX_KV_TOKENS),
    metavar="N",
    help="Tokens in the KV pool.  [default: 32768]",
)
@click.option(
    "--max-waiting",
    type=COUNT,
    default=1024,
    show_default=True,
    metavar="N",
    help="Requests that may wait; more are refused.",
)
@click.option("--max-waiting-tokens", type=COUNT, metavar="N", help="The same in tokens.")
@click.option(
    "--max-chunk-tokens",
    type=COUNT,
    metavar="N",
    help="Prompt tokens in a step while others generate.",
)
@click.option(
    "--no-prefix-reuse",
    "prefix_reuse",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Compute shared prefixes anew.",
)
@click.option(
    "--deadline",
    type=DURATION,
    metavar="S",
    help="Seconds after which a request ends, done or not.",
)
@click.option(
    "--slo-ttft",
    type=DURATION,
    default=1.0,
    show_default=True,
    metavar="S",
    help="SLO: seconds to the first token.",
)
@click.option(
    "--slo-itl",
    type=DURATION,
    default=0.1,
    show_default=True,
    metavar="S",
    help="SLO: mean seconds between tokens of an answer.",
)
@click.option("--json", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw them (PNG, SVG or PDF)."
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
def command(**options: Any) -> None:
    """Play requests into the serving engine on a virtual clock, and compare scheduling policies.

    It is the engine that also serves; only its steps are replaced, by the time they would take. FCFS against shortest
    remaining work, as load grows:

    builder simulate --policy fcfs,srpt --load 0.5,0.8,1,1.2
    """
    simulate(Options(**options))


def simulate(options: Options) -> None:
    """Run the sweep, print the table, and write what was asked for.

    Raises:
        UserError: an option, the trace, the costs or the artifact can't be used; nothing was simulated then.
    """
    refuse_contradictions(options)
    display = display_for(quiet=options.quiet)
    configs = [options.config(policy) for policy in options.policy]
    machine = read_machine(options, configs[0], display)
    arrivals = read_arrivals(options, machine.limits)
    slo = Slo(options.slo_ttft, options.slo_itl)
    with display.progress() as progress:
        progress.stage("capacity", 0)
        capacity = find_capacity(arrivals, machine)
        loads = options.load or tuple(rate / capacity for rate in options.rate or ())
        loads = loads or ((mean_rate(arrivals) / capacity,) if options.trace else LOADS)
        grid = Grid(options.policy, loads, capacity, slo, options.skip)
        progress.stage("simulate", len(arrivals) * len(loads) * len(configs))
        cells = list(sweep(arrivals, machine, grid, on_over=progress.advance))
    show(options, machine, grid, cells)


def show(options: Options, machine: Machine, grid: Grid, cells: list[Cell]) -> None:
    """Print the table, and write the files."""
    lines = [machine_line(machine, grid), *comparison.table_lines(cells)]
    if len(grid.policies) > 1:
        lines += comparison.verdict_lines(cells)
    click.echo("\n".join(lines))
    if options.json is not None:
        options.json.write_text(comparison.as_json(settings_of(options, machine, grid), cells))
    if options.plot is not None:
        source = (
            options.trace.name
            if options.trace
            else f"prompts {options.prompt}, answers {options.answer}"
        )
        plot.draw(cells, options.plot, title=source)


def machine_line(machine: Machine, grid: Grid) -> str:
    """Describe what was simulated, and by what it is judged."""
    cost, slo = machine.cost, grid.slo
    return (
        f"capacity {grid.capacity_per_s:.4g} requests/s; a step takes {cost.step_s * 1000:.3g} ms"
        f" + {cost.token_s * 1e6:.3g} us a token + {cost.context_s * 1e9:.3g} ns a token attended to;"
        f" SLO: TTFT {slo.ttft_s:g} s, ITL {slo.itl_s:g} s"
    )


def settings_of(options: Options, machine: Machine, grid: Grid) -> dict[str, object]:
    """Give all that decides the figures."""
    return {
        "requests": str(options.trace) if options.trace else options.requests,
        "prompt": options.prompt,
        "answer": options.answer,
        "tenants": options.tenants,
        "seed": options.seed,
        "skip": options.skip,
        "machine": asdict(machine),
        "capacity_per_s": grid.capacity_per_s,
        "slo": asdict(grid.slo),
    }
