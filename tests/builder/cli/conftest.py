"""Artifacts for the commands: one written without compiling anything, one of a tiny Llama."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from builder.artifact import store
from builder.artifact.config import KVGeometry, KVGroup, Limits, ModelConfig, RopeConfig
from builder.artifact.manifest import (
    SCHEMA,
    Binding,
    EndToken,
    EngineRecord,
    FileRecord,
    Manifest,
    Source,
    TokenizerRecord,
)
from builder.artifact.staging import staged
from builder.artifact.store import Artifact
from builder.cli.main import main
from tests.builder.cli.scripted_engine import Watched
from tests.models import tiny_llama

LIMITS = Limits(max_seq_len=64, max_num_seqs=4, max_num_tokens=32, max_logit_rows=4, num_blocks=33)
KV = KVGeometry(
    block_size=16,
    groups=(KVGroup(layers=(0, 1), num_kv_heads=2, head_dim=16, dtype="float32"),),
)
MODEL = ModelConfig(
    arch="llama",
    vocab_size=259,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    norm_eps=1e-5,
    activation="silu",
    rope=RopeConfig(theta=10000.0),
    max_positions=512,
    tied_head=True,
)
MANIFEST = Manifest(
    schema=SCHEMA,
    version="0.1.0",
    source=Source(
        kind="hub",
        name="org/tiny",
        revision="0123abcd",
        files={"config.json": FileRecord(size_bytes=10, sha256="00")},
    ),
    model=MODEL,
    limits=LIMITS,
    kv=KV,
    engines=(
        EngineRecord(
            target="portable",
            rank=0,
            path="engines/portable/rank0.onnx",
            weights="weights/rank0.safetensors",
            inputs=(Binding("token_ids", "int32", ("T",)),),
            outputs=(Binding("logits", "float32", ("J", 259)),),
            requested="int8",
            realized={"a.weight": "int8", "b.weight": "int8", "norm.weight": "float32"},
            compute="int8 weights are widened to float32 in blocks",
            emulated=(),
            fallbacks={},
        ),
    ),
    tokenizer=TokenizerRecord(
        vocab_size=259,
        bos_token_id=1,
        prefix_ids=(1,),
        suffix_ids=(),
        named_tokens={},
        end_tokens=(
            EndToken(256, "<|endoftext|>", ("generation_config.json",)),
            EndToken(258, "<|im_end|>", ("config.json", "tokenizer_config.json")),
        ),
        has_chat_template=True,
    ),
    tools={"onnx": "1.21.0", "numpy": "1.26.4"},
    files={},
)


@pytest.fixture
def artifact_folder(tmp_path: Path) -> Path:
    """Write an artifact of three files and give its folder."""
    destination = tmp_path / "artifact"
    with staged(destination) as folder:
        for name, content in {
            "engines/portable/rank0.onnx": b"engine",
            "weights/rank0.safetensors": b"w" * 5000,
            "tokenizer/tokenizer.json": b"{}",
        }.items():
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_bytes(content)
        store.publish(folder, destination, MANIFEST, replace_existing=False)
    return destination


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the checkpoint of a tiny Llama; tests must not change it."""
    return tiny_llama(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture(scope="session")
def tiny_artifact(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the tiny Llama by the command; tests must not change it."""
    destination = tmp_path_factory.mktemp("artifact") / "tiny"
    arguments = ["compile", str(tiny_folder), "-o", str(destination), "--max-seq-len", "128"]
    result = CliRunner().invoke(main, [*arguments, "--quiet"])
    assert result.exit_code == 0, result.output
    return destination


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """Put the scripted engine in place of every artifact's; gives those that were opened."""
    opened: list[Watched] = []

    def open_executor(artifact: Artifact, *, target: str | None, threads: int | None) -> Watched:
        opened.append(Watched(artifact, target=target, threads=threads))
        return opened[-1]

    monkeypatch.setattr("triton_backend.loading.open_executor", open_executor)
    return opened
