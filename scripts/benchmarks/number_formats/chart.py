"""A picture of formats: what each loses against its size, one panel per text, llama.cpp's in grey."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

OURS, OTHERS = "tab:orange", "tab:gray"


def draw_chart(path: Path, engines: Sequence[dict[str, Any]]) -> None:
    """Write a PNG of the engines that have a size."""
    mpl.rcParams["font.size"] = 8
    sized = [engine for engine in engines if "artifact_bytes" in engine]
    texts = list(sized[0]["figures"])
    figure = Figure(figsize=(6 * len(texts), 4.5), layout="constrained")
    for text, panel in zip(texts, figure.subplots(1, len(texts), squeeze=False)[0], strict=True):
        by_loss = sorted(sized, key=lambda engine: engine["figures"][text]["kl_mean"])
        for side, engine in zip(cycle(("left", "right")), by_loss, strict=False):
            place = (engine["artifact_bytes"] / 2**20, engine["figures"][text]["kl_mean"])
            is_ours = "bits_per_weight" in engine
            panel.scatter(*place, color=OURS if is_ours else OTHERS)
            away = (5 if side == "left" else -5, -3)
            panel.annotate(engine["name"], place, away, textcoords="offset points", ha=side)
        panel.set_yscale("log")
        panel.margins(x=0.2)
        panel.set_xlabel("MiB on disk")
        panel.set_ylabel("KL divergence from float32, nats a token (less is better)")
        panel.set_title(text)
    figure.savefig(path, dpi=120)
