"""What engines say of each token of a text when they are given all before it: its log-likelihood, and their own choice."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peer_engines.llama_context import Context
from rich.console import Console
from rich.progress import track
from transformers import AutoModelForCausalLM

from builder.artifact.store import Artifact, read_manifest
from builder.gate.figures import judge
from builder.gate.reading import read_rows, rows_per_step
from builder.targets import open_executor
from likelihood.text import Tokens

Float32 = NDArray[np.float32]
Reader = Callable[[Tokens], Iterable[Float32]]
"""Gives the logits `[rows, V]` of all tokens of a chunk, in order, in pieces."""


@dataclass(frozen=True, slots=True)
class Reading:
    """For each chunk and each of its tokens but the first."""

    log_likelihoods: Float32
    """`[chunks, chunk - 1]` natural logarithms of the probability of the token that comes."""
    choices: Tokens
    """`[chunks, chunk - 1]` likeliest tokens."""


def read_all(name: str, chunks: Tokens, read: Reader) -> Reading:
    """Have an engine read every chunk."""
    found: list[tuple[Float32, Tokens]] = []
    for chunk in track(chunks, name, console=Console(stderr=True)):
        place = 0
        for logits in read(chunk):
            coming = chunk[1 + place : 1 + place + len(logits)]
            found.append(judge(logits[: len(coming)], coming))
            place += len(logits)
    likelihoods, choices = (np.concatenate(part) for part in zip(*found, strict=True))
    shape = (len(chunks), chunks.shape[1] - 1)
    return Reading(likelihoods.reshape(shape), choices.reshape(shape))


def read_reference(checkpoint: Path, chunks: Tokens) -> Reading:
    """Read with transformers in float32."""
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    return read_all("reference", chunks, torch_reader(model.eval()))


def read_artifact(root: Path, chunks: Tokens, threads: int) -> Reading:
    """Read with the executor of an artifact."""
    with artifact_reader(root, threads) as read:
        return read_all(root.resolve().name, chunks, read)


def read_llama_cpp(library: Path, gguf: Path, chunks: Tokens, threads: int) -> Reading:
    """Read with llama.cpp."""
    read = llama_cpp_reader(library, gguf, length=chunks.shape[1], threads=threads)
    return read_all(gguf.parent.name, chunks, read)


def torch_reader(model: Any) -> Reader:
    """Read with a torch model, a chunk at once."""

    def read(chunk: Tokens) -> Iterable[Float32]:
        with torch.inference_mode():
            yield model(torch.from_numpy(chunk[None].astype(np.int64))).logits[0].numpy()

    return read


@contextlib.contextmanager
def artifact_reader(root: Path, threads: int) -> Iterator[Reader]:
    """Read with the executor of an artifact, as many rows a step as may have logits."""
    with contextlib.closing(
        open_executor(Artifact(root, read_manifest(root)), threads=threads)
    ) as executor:
        yield lambda chunk: read_rows(executor, chunk, rows_per_step(executor))


def llama_cpp_reader(library: Path, gguf: Path, *, length: int, threads: int) -> Reader:
    """Read with llama.cpp chunks of at most `length` tokens, a chunk a step."""
    context = Context(
        library, gguf, threads=threads, num_sequences=1, num_tokens=length, max_outputs=length
    )
    shape = (context.vocab_size,)

    def read(chunk: Tokens) -> Iterable[Float32]:
        context.forget(0)
        context.step([(token, place, 0, True) for place, token in enumerate(chunk.tolist())])
        rows = (np.ctypeslib.as_array(context.logits(row), shape) for row in range(len(chunk)))
        yield np.stack(list(rows))

    return read
