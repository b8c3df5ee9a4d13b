"""Round a checkpoint's linear weights to int8 per channel, in the form that vLLM computes with int8 activations."""

import json
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

LINEAR = "_proj.weight"
WEIGHTS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
ACTIVATIONS = WEIGHTS | {"strategy": "token", "dynamic": True}
QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": WEIGHTS,
            "input_activations": ACTIVATIONS,
        }
    },
}

Arrays = dict[str, NDArray[np.generic]]


def rounded(name: str, weight: NDArray[np.float32]) -> Arrays:
    """Give a weight `[out, in]` as integers and one scale per row."""
    scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True), 1e-12) / 127
    values = np.clip(np.rint(weight / scale), -127, 127).astype(np.int8)
    return {name: values, name + "_scale": scale.astype(np.float32)}


def write_w8a8(checkpoint: Path, folder: Path) -> None:
    """Write the rounded checkpoint as a Hugging Face folder."""
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors: Arrays = {}
    for name, weight in load_file(checkpoint / "model.safetensors").items():
        tensors |= rounded(name, weight) if name.endswith(LINEAR) else {name: weight}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_text())
    text = json.dumps(config | {"quantization_config": QUANTIZATION}, indent=1)
    (folder / "config.json").write_text(text)
