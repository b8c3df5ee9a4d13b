"""Checkpoints that llm-compressor makes, in an environment of its own: its pins and those of our extra `quant` exclude each other."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from scripts.benchmarks.peer_engines.installing import TORCH, Recipe, call, install

RECIPE = Recipe(steps=(TORCH, ("llmcompressor==0.14.0.1", "transformers==5.17.0")))
FOLDER = Path(__file__).resolve().parent.parent / "out" / "llm-compressor"
WORKER = Path(__file__).with_name("llm_compressor_worker.py")
Float32 = NDArray[np.float32]


def quantize_with_llm_compressor(
    source: Path,
    cases: Mapping[str, Mapping[str, Any]],
    out: Path,
    *,
    calibrating: NDArray[Any],
    asked: NDArray[Any],
) -> dict[str, Float32]:
    """Write a checkpoint `out/NAME` of each case, and give logits `[rows, length, V]` of `asked` by name, as the worker says.

    Calibrates by tokens `[n, length]`. The environment is made at first use, which takes minutes, and is kept.

    Raises:
        PeerError: it can't be made, or the worker failed.
    """
    python = install(FOLDER, RECIPE)
    rows = {"calibrating": calibrating.tolist(), "asked": asked.tolist()}
    told = out / "asked.json"
    told.write_text(json.dumps({"cases": cases, **rows}))
    # -P: the folder of the worker has a `triton` of ours, which torch must not import.
    call([python, "-P", WORKER, source, told, out], cwd=out)
    for name in cases:
        for file in source.glob("tokenizer*.json"):
            shutil.copy(file, out / name)
    return load_file(out / "logits.safetensors")
