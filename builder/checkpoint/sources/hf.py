"""Hugging Face folders: config.json, safetensors (one file, or shards and an index), tokenizer files.

Python files in the folder are never imported and pickles are never opened; the config alone decides.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from builder.checkpoint.files import read_json
from builder.checkpoint.provenance import Source, note_files
from builder.checkpoint.quantized import read_quantized
from builder.checkpoint.quantized.modelopt import agree
from builder.checkpoint.sources.hf_tokenizer import read_hf_tokenizer
from builder.checkpoint.sources.safetensors_file import read_safetensors
from builder.checkpoint.tensors import Checkpoint, Tensor
from builder.errors import CheckpointError, UnsupportedError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONVERT = (
    'Convert once with: python -c "from transformers import AutoModelForCausalLM as M; '
    "M.from_pretrained('MODEL', dtype='auto').save_pretrained('NEW_FOLDER')\""
)
QUANTIZATION = "quantization_config"
MODELOPT = "hf_quant_config.json"
"""Where modelopt says how it quantized; newer versions say it in config.json too."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def open_hf_folder(folder: Path) -> Checkpoint:
    """Open a Hugging Face folder; only headers and tokenizer files are read.

    Raises:
        CheckpointError: a file is missing, broken, or contradicts another.
        UnsupportedError: the weights are pickles, or quantized in a way that is not implemented.
    """
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise CheckpointError(
            f"{folder} has no config.json, so it is not a Hugging Face model folder"
        )
    config = read_json(config_path)
    section, own_files = _quantization(config, folder)
    tensors, weight_files = _read_weights(folder)
    tokenizer, tokenizer_files = read_hf_tokenizer(folder, config)
    files = note_files([config_path, *own_files, *weight_files, *tokenizer_files])
    source = Source("hf", folder.resolve().name, files)
    if section is None:
        return Checkpoint(config, tensors, tokenizer, source)
    where = f"{QUANTIZATION} of {folder / 'config.json'}"
    weights, quantized, kv = read_quantized(section, where, tensors)
    plain = {name: value for name, value in config.items() if name != QUANTIZATION}
    return Checkpoint(plain, weights, tokenizer, source, quantized, section["quant_method"], kv)


def with_weights_of(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """Give a checkpoint with the weights of a folder in place of its own: the same model, quantized there.

    Raises:
        CheckpointError: a file is missing, broken, or contradicts another.
        UnsupportedError: it is quantized in a way that is not implemented.
    """
    config_path = folder / "config.json"
    section, _ = _quantization(read_json(config_path), folder)
    tensors, _ = _read_weights(folder)
    weights, quantized, kv = read_quantized(section, f"{QUANTIZATION} of {config_path}", tensors)
    return replace(
        checkpoint, tensors=weights, quantized=quantized, method=section["quant_method"], kv=kv
    )


def _quantization(config: dict[str, Any], folder: Path) -> tuple[Any, list[Path]]:
    """Give what the config says about quantization, or modelopt's own file does, and that file if it was read.

    Raises:
        CheckpointError: both say something, and not the same.
    """
    own, section = folder / MODELOPT, config.get(QUANTIZATION)
    if not own.is_file():
        return section, []
    content = read_json(own)
    if section is None:
        return {"quant_method": "modelopt", **content}, [own]
    inner = content.get("quantization")
    if not agree(section, inner):
        raise CheckpointError(
            f"{folder / 'config.json'} and {own} name different quantizations; remove the one that is not meant"
        )
    return section, [own]


def _read_weights(folder: Path) -> tuple[dict[str, Tensor], list[Path]]:
    """Give all tensors, and the files that hold or name them."""
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file() and index.is_file():
        raise CheckpointError(
            f"{folder} has both {SINGLE} and {INDEX}; remove the one that is not meant"
        )
    if index.is_file():
        return _read_shards(folder, index)
    if single.is_file():
        _refuse_strays(folder, {SINGLE})
        return read_safetensors(single), [single]
    raise _no_weights(folder)


def _read_shards(folder: Path, index: Path) -> tuple[dict[str, Tensor], list[Path]]:
    """Open the shards that the index names, and check that both tell the same story."""
    places = _read_places(index)
    names = sorted(set(places.values()))
    _refuse_strays(folder, set(names))
    tensors: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise CheckpointError(
                f"{index} names {name}, which is missing; download it into {folder}"
            )
        for tensor_name, tensor in read_safetensors(folder / name).items():
            if tensor_name not in places:
                raise CheckpointError(f"{name} holds {tensor_name!r}, which {index} does not list")
            if places[tensor_name] != name:
                raise CheckpointError(
                    f"{name} holds {tensor_name!r}, which {index} places in {places[tensor_name]}"
                )
            tensors[tensor_name] = tensor
    for tensor_name, name in places.items():
        if tensor_name not in tensors:
            raise CheckpointError(
                f"{index} places {tensor_name!r} in {name}, which does not hold it"
            )
    return {name: tensors[name] for name in places}, [index, *(folder / name for name in names)]


def _read_places(index: Path) -> dict[str, str]:
    """Give the shard of each tensor. A shard is a file name: an index must not reach outside its folder."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index} has no weight_map that names a shard for each tensor")
    for tensor_name, shard in places.items():
        is_name = isinstance(shard, str) and shard == Path(shard).name and "\0" not in shard
        if not is_name or not shard.endswith(".safetensors"):
            raise CheckpointError(
                f"{index} places {tensor_name!r} in {shard!r}, not a safetensors file name"
            )
    return places


def _refuse_strays(folder: Path, known: set[str]) -> None:
    """Refuse a shard that nothing names: it is weights that would be left out unnoticed."""
    strays = sorted(path.name for path in folder.glob("model-*-of-*.safetensors"))
    strays = [name for name in strays if name not in known]
    if strays:
        raise CheckpointError(
            f"{folder} has weights that nothing names: {', '.join(strays[:5])}; "
            f"add the missing {INDEX}, or remove them"
        )


def _no_weights(folder: Path) -> CheckpointError | UnsupportedError:
    """Say what was looked for, what is there instead, and what to do about it."""
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        return UnsupportedError(
            f"{folder} has only pickled weights ({', '.join(pickles[:3])}), and unpickling runs code from the "
            f"file. {CONVERT}"
        )
    there = sorted(path.name for path in folder.glob("*.safetensors"))
    found = f"; it has {', '.join(there[:5])}" if there else ""
    return CheckpointError(f"{folder} has no {SINGLE} and no {INDEX}{found}")
