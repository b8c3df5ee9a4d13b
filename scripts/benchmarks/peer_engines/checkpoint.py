"""The one checkpoint that every engine is given: the GGUF file's weights as float32, in a Hugging Face folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors.numpy import save_file

from builder.checkpoint.open import open_checkpoint


def write_checkpoint(gguf: Path, folder: Path) -> None:
    """Write config, weights and tokenizer of a GGUF file; the weights are exactly what its blocks stand for."""
    checkpoint = open_checkpoint(str(gguf))
    folder.mkdir()
    tensors = {name: tensor.read().copy() for name, tensor in checkpoint.tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = checkpoint.tokenizer
    (folder / "tokenizer.json").write_bytes(tokenizer.tokenizer_json)
    ends = [token.id for token in tokenizer.end_tokens]
    texts = {
        "config.json": checkpoint.config | {"torch_dtype": "float32"},
        "generation_config.json": {"eos_token_id": ends},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}
        | tokenizer.named_tokens
        | {"chat_template": tokenizer.chat_template},
    }
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content, indent=1))


def once(folder: Path, write: Callable[[Path], None]) -> Path:
    """Have a folder written unless it is there; a half-written one never takes its name."""
    if not folder.exists():
        unfinished = folder.with_name(folder.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        write(unfinished)
        unfinished.rename(folder)
    return folder
