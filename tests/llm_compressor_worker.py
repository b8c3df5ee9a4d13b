"""Quantizes a model in several ways with llm-compressor, in whose own environment this runs, and asks its library about the result.

Usage: python -P llm_compressor_worker.py MODEL ASKED OUT. ASKED is a JSON file: `cases`, what QuantizationModifier is told by the
name of each, and rows of tokens, `calibrating` and `asked`. A case becomes a folder OUT/NAME, a checkpoint; OUT/NAME.safetensors, its
weights in float32 by compressed-tensors; and `NAME` in OUT/logits.safetensors, `[rows, length, V]` by that library's fake-quantized
model in float32. There `float` are the logits of the model before.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

Tensors = dict[str, torch.Tensor]


def main(source: Path, asked: Path, out: Path) -> None:
    """Make all checkpoints, and what is known of them."""
    told = json.loads(asked.read_text())
    rows = torch.tensor(told["asked"])
    logits = {"float": logits_of(source, {}, rows)}
    for name, recipe in told["cases"].items():
        quantize(source, recipe, told["calibrating"], out / name)
        weights = floats(out / name)
        save_file(weights, out / f"{name}.safetensors")
        logits[name] = logits_of(out / name, weights, rows)
    save_file(logits, out / "logits.safetensors")


def quantize(
    source: Path, recipe: Mapping[str, Any], calibrating: list[list[int]], folder: Path
) -> None:
    """Write a checkpoint of all linear layers but the head, as users of llm-compressor do."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    rows = DataLoader([{"input_ids": torch.tensor(row)} for row in calibrating], batch_size=1)
    modifier = QuantizationModifier(targets="Linear", ignore=["lm_head"], **recipe)
    oneshot(model=model, recipe=modifier, dataset=rows, pipeline="basic")
    model.save_pretrained(folder, save_compressed=True)


def floats(folder: Path) -> Tensors:
    """Give the weights `[out, in]` of quantized layers in float32, whatever type their scales have."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    parsed = QuantizationConfig.model_validate(config)
    (scheme,) = parsed.config_groups.values()
    modules: dict[str, Tensors] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        module, _, part = name.rpartition(".")
        modules.setdefault(module, {})[part] = tensor
    return {
        f"{name}.weight": _decompressed(parts, scheme, scheme.format or parsed.format).contiguous()
        for name, parts in modules.items()
        if "weight_scale" in parts
    }


def _decompressed(parts: Tensors, scheme: QuantizationScheme, form: str) -> torch.Tensor:
    """Decompress a layer. The library's own entry for NVFP4 knows bfloat16 alone, so the two steps of it are taken here."""
    scale = parts["weight_scale"].float()
    whole = parts.get("weight_global_scale")
    if whole is None:
        compressor = BaseCompressor.get_value_from_registry(form)
        return compressor.decompress(parts | {"weight_scale": scale}, scheme)["weight"]
    packed = parts["weight_packed"]
    numbers = unpack_fp4_from_uint8(packed, packed.shape[0], 2 * packed.shape[1], torch.float32)
    return dequantize(numbers, scale, args=scheme.weights, dtype=torch.float32, global_scale=whole)


def logits_of(folder: Path, weights: Tensors, rows: torch.Tensor) -> torch.Tensor:
    """Run a model in float32, with these weights in the place of quantized ones."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        model(rows[:1])  # which unpacks what is packed
        torch.nn.Module.float(model)  # the model's own `float` refuses to once it is quantized
        for name, weight in weights.items():
            model.get_parameter(name).data = weight
        return model(rows).logits.clone()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
