"""Decides what a model argument names: a folder, a GGUF file, or a model on the hub."""

from pathlib import Path

from builder.checkpoint.files import reason
from builder.checkpoint.sources.gguf import open_gguf
from builder.checkpoint.sources.hf import open_hf_folder
from builder.checkpoint.sources.hub import is_hub_name, open_hub
from builder.checkpoint.tensors import Checkpoint
from builder.errors import CheckpointError, UnsupportedError

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def open_checkpoint(
    model: str, *, endpoint: str | None = None, shows_bars: bool = False
) -> Checkpoint:
    """Open the checkpoint that `model` names; headers and small files are read, weights are not.

    An existing path wins over a hub name. `endpoint` is the hub's address, by default huggingface_hub's own;
    bars on stderr show how a download goes if that is asked for.

    Raises:
        CheckpointError: there is no such model, or its files are missing or broken.
        UnsupportedError: it is of a kind that is not implemented.
    """
    path = Path(model)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise CheckpointError(f"cannot look at {model}: {reason(error)}") from error
    if is_folder and model:  # an empty path is the current folder
        return _open_folder(path)
    if exists and model:
        return _open_file(path)
    if is_hub_name(model):
        return open_hub(model, endpoint=endpoint, shows_bars=shows_bars)
    raise CheckpointError(
        f"no such file or folder: {model}; a model is a Hugging Face folder, a GGUF file, or org/name@revision"
    )


def _open_folder(folder: Path) -> Checkpoint:
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        if files:
            raise CheckpointError(
                f"{folder} holds GGUF files: name the one to use, such as {folder / files[0]}"
                + (f" (others: {', '.join(files[1:5])})" if files[1:] else "")
            )
    return open_hf_folder(folder)


def _open_file(path: Path) -> Checkpoint:
    if path.suffix == ".gguf":
        return open_gguf(path)
    if path.suffix in PICKLE_SUFFIXES:
        raise UnsupportedError(
            f"{path} is a pickle, and unpickling runs code from the file; "
            "convert the model to safetensors and name its folder"
        )
    if path.name.endswith((".safetensors", ".json")):
        raise CheckpointError(f"{path} is a part of a model; name its folder: {path.parent}")
    raise CheckpointError(
        f"{path} is not a GGUF file (its name must end in .gguf) and not a folder"
    )
