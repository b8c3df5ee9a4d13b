"""Models on the Hugging Face hub: `org/name` or `org/name@revision`, downloaded into huggingface_hub's cache.

Only safetensors and text files are fetched. Address, token and offline mode are huggingface_hub's own
settings; the commit is recorded, so that a branch name can be reproduced.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from builder.checkpoint.files import reason
from builder.checkpoint.sources.hf import CONVERT, open_hf_folder
from builder.checkpoint.tensors import Checkpoint
from builder.errors import CheckpointError, UnsupportedError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?", re.ASCII)
PATTERNS = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model"]
"""`*` also matches `/` in these; subfolders are not read."""


def is_hub_name(model: str) -> bool:
    """Say whether `model` is written like a model on the hub."""
    return NAME.fullmatch(model) is not None and not model.endswith(".gguf")


def open_hub(model: str, *, endpoint: str | None = None, shows_bars: bool = False) -> Checkpoint:
    """Download `org/name@revision` unless it is cached, and open it.

    Raises:
        CheckpointError: it does not exist, may not be read, or can't be reached; or its files are broken.
        UnsupportedError: its weights are pickles, or quantized.
    """
    repository, _, revision = model.partition("@")
    folder = _download(repository, revision or None, endpoint=endpoint, shows_bars=shows_bars)
    if not any(folder.glob("*.safetensors")):
        raise UnsupportedError(
            f"{repository} has no safetensors on the hub. A GGUF file is downloaded by hand and named by its "
            f"path; pickled weights run code from the file. {CONVERT}"
        )
    checkpoint = open_hf_folder(folder)
    source = replace(checkpoint.source, kind="hub", name=repository, commit=folder.name)
    return replace(checkpoint, source=source)


def _download(
    repository: str, revision: str | None, *, endpoint: str | None, shows_bars: bool
) -> Path:
    """Give the snapshot folder, which is named after the commit."""
    # Imported here because it takes 0.4 s, and most models are local.
    import httpx  # noqa: PLC0415
    from huggingface_hub import errors, snapshot_download  # noqa: PLC0415
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]  # noqa: PLC0415

    class Bars(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": not shows_bars})  # type: ignore[no-untyped-call]

    what = f"{repository}@{revision}" if revision else repository
    try:
        return Path(
            snapshot_download(
                repository,
                revision=revision,
                endpoint=endpoint,
                allow_patterns=PATTERNS,
                ignore_patterns=["*/*"],
                tqdm_class=Bars,
            )
        )
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{what} is gated: accept its terms on the hub, then log in with `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"{repository} has no revision {revision} on the hub") from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"no model {repository} on the hub or on disk; check the name, or log in with "
            "`hf auth login` if it is private"
        ) from error
    except (errors.HFValidationError, errors.HfHubHTTPError) as error:
        raise CheckpointError(f"the hub refused {what}: {_first_line(error)}") from error
    except (errors.LocalEntryNotFoundError, httpx.HTTPError) as error:
        if isinstance(error.__cause__, errors.HfHubHTTPError):
            answer = error.__cause__.response
            raise CheckpointError(
                f"the hub answered {answer.status_code} {answer.reason_phrase} for {what}, and it is not in the "
                "cache; try again later, or name a local folder"
            ) from error
        raise CheckpointError(
            f"can't reach the hub for {what}, and it is not in the cache; check the network and HF_HUB_OFFLINE, or "
            "name a local folder"
        ) from error
    except OSError as error:
        raise CheckpointError(f"can't download {what}: {reason(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
