"""`builder export`: a whole folder or nothing, what other programs read of it, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from builder import archs
from builder.artifact.config import RopeConfig
from builder.artifact.store import Artifact
from builder.cli.main import main
from builder.errors import UnsupportedError
from builder.export import folder as folders
from builder.export.folder import FILES, plan_export
from tests.builder.export.exporting import TOKENS, export, logits
from tests.built import compile_model
from tests.compiling import compile_, leftovers
from tests.models import CHAT_TEMPLATE, tiny_llama


def export_(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("shared")
    return compile_model(tiny_llama(folder / "m"), folder / "a", quant="int4")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("untied", [False, True])
def test_transformers_gives_the_logits_of_the_engine(untied: bool, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m", tie_word_embeddings=not untied, attention_bias=True)
    built = compile_model(model, tmp_path / "a")
    folder = export(built, tmp_path / "out")
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    assert reference.dtype == torch.float32
    with torch.no_grad():
        theirs = reference(torch.tensor([TOKENS])).logits[0].numpy()
    np.testing.assert_allclose(logits(built), theirs, rtol=1e-5, atol=1e-5)


def test_transformers_loads_bfloat16_as_such(tmp_path: Path) -> None:
    built = compile_model(tiny_llama(tmp_path / "m"), tmp_path / "a", dtype="bfloat16")
    reference = AutoModelForCausalLM.from_pretrained(export(built, tmp_path / "out"), dtype="auto")
    assert reference.dtype == torch.bfloat16


def test_transformers_takes_tokenizer_template_and_end_tokens(
    artifact: Artifact, tmp_path: Path
) -> None:
    folder = export(artifact, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("hi").input_ids == [104, 105]
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.eos_token_id == 258
    assert GenerationConfig.from_pretrained(folder).eos_token_id == [256, 258]
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == [256, 258]


def test_the_command_says_what_it_wrote(artifact: Artifact, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = export_(artifact.root, "--hf", out)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{out}: compressed-tensors pack-quantized, 51 tensors, ")
    assert set(content(out)) <= set(FILES)


def test_an_export_is_the_same_bytes_twice(artifact: Artifact, tmp_path: Path) -> None:
    first, second = (export(artifact, tmp_path / name) for name in ("one", "two"))
    assert content(first) == content(second)


def test_an_export_is_replaced_only_with_force(artifact: Artifact, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(artifact, out)
    (out / "config.json").write_text("{}")
    refused = export_(artifact.root, "--hf", out)
    assert refused.exit_code == 2
    assert "already holds an exported checkpoint; add --force" in refused.stderr
    assert (out / "config.json").read_text() == "{}"
    assert export_(artifact.root, "--hf", out, "--force").exit_code == 0
    assert content(out) == content(export(artifact, tmp_path / "again"))


@pytest.mark.parametrize("stray", ["notes.txt", "folder"])
def test_a_folder_with_anything_else_is_never_replaced(
    artifact: Artifact, tmp_path: Path, stray: str
) -> None:
    out = export(artifact, tmp_path / "out")
    if stray == "folder":
        (out / stray).mkdir()
    else:
        (out / stray).write_text("mine")
    refused = export_(artifact.root, "--hf", out, "--force")
    assert refused.exit_code == 2
    assert "holds other files too; choose another --hf" in refused.stderr
    assert (out / stray).exists()


def test_a_checkpoint_of_several_files_is_no_export(artifact: Artifact, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m", shards=2)
    assert export_(artifact.root, "--hf", model, "--force").exit_code == 2


def test_nothing_is_written_into_an_artifact(artifact: Artifact) -> None:
    before = leftovers(artifact.root)
    for place in (artifact.root, artifact.root / "out", artifact.root / "reports" / ".." / "out"):
        refused = export_(artifact.root, "--hf", place, "--force")
        assert refused.exit_code == 2
        assert "lies in the artifact" in refused.stderr
    assert leftovers(artifact.root) == before


def test_a_damaged_artifact_is_refused_and_leaves_nothing(
    artifact: Artifact, tmp_path: Path
) -> None:
    copy = shutil.copytree(artifact.root, tmp_path / "copy", copy_function=shutil.copyfile)
    path = copy / "weights" / "cpu.rank0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refused = export_(copy, "--hf", tmp_path / "out")
    assert refused.exit_code == 2
    assert "was altered" in refused.stderr
    assert leftovers(tmp_path) == ["copy"]


def test_a_full_disk_leaves_nothing(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders.tokenizer, "write_tokenizer", full)
    result = export_(artifact.root, "--hf", tmp_path / "out")
    assert result.exit_code == 1
    assert "No space left on device; nothing was left behind" in result.stderr
    assert leftovers(tmp_path) == []


def test_too_little_room_is_refused_before_a_number_is_read(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    result = export_(artifact.root, "--hf", tmp_path / "out")
    assert result.exit_code == 2
    assert "MiB free, the export needs" in result.stderr


def test_of_several_engines_one_must_be_named(tmp_path: Path) -> None:
    model, built = tiny_llama(tmp_path / "m"), tmp_path / "a"
    options = ("--target", "cpu", "--target", "portable", "--kv", "float32", "--int8")
    assert compile_(model, "-o", built, *options).exit_code == 0
    refused = export_(built, "--hf", tmp_path / "out")
    assert refused.exit_code == 2
    assert "has engines for cpu and portable, which may hold different numbers" in refused.stderr
    assert export_(built, "--hf", tmp_path / "out", "--target", "portable").exit_code == 0
    missing = export_(built, "--hf", tmp_path / "other", "--target", "cuda")
    assert missing.exit_code == 2
    assert "no engine for cuda" in missing.stderr


def test_a_format_that_no_layout_holds_is_refused_by_name(tmp_path: Path) -> None:
    built = compile_model(tiny_llama(tmp_path / "m"), tmp_path / "a", quant="mxfp4")
    refused = export_(built.root, "--hf", tmp_path / "out")
    assert refused.exit_code == 2
    assert "holds weights in mxfp4, which no layout" in refused.stderr


def test_rotary_factors_of_a_gguf_file_have_no_field(artifact: Artifact) -> None:
    rope = RopeConfig(1e4, "factors", factors=(1.0,) * 8)
    config = replace(artifact.manifest.model, rope=rope)
    with pytest.raises(UnsupportedError, match="a rotary factor per frequency"):
        archs.write_config(config)


@pytest.mark.parametrize(
    ("quant", "layout"), [("none", "Hugging Face"), ("fp8-block", "fp8 in blocks of 128 x 128")]
)
def test_scales_of_keys_and_values_are_not_dropped(quant: str, layout: str, tmp_path: Path) -> None:
    built = compile_model(tiny_llama(tmp_path / "m"), tmp_path / "a", quant=quant)
    kv = built.manifest.kv
    static = replace(kv, groups=(replace(kv.groups[0], dtype="fp8"),))
    other = replace(built, manifest=replace(built.manifest, kv=static))
    with pytest.raises(
        UnsupportedError, match=f"in fp8 with scales of its own, .* {layout} has no"
    ):
        plan_export(other, None)


def test_int8_weight_only_is_refused_since_it_comes_back_as_int8(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    built = compile_model(model, tmp_path / "a", quant="int8-weight-only")
    refused = export_(built.root, "--hf", tmp_path / "out")
    assert refused.exit_code == 2
    assert "holds weights in int8-weight-only, which no layout" in refused.stderr
