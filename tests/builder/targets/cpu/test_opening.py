"""Why the native engine can't be opened: each kind of reason is an error of its own, in words that help."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from builder.artifact.store import Artifact
from builder.errors import ArtifactError, EngineError, UnsupportedError
from builder.targets.cpu import native, opening
from builder.targets.cpu.execute import CpuExecutor
from tests.built import compile_model
from tests.models import tiny_llama


def opened(artifact: Artifact, *, num_threads: int = 1, build: str = "", **limits: int) -> None:
    changed = replace(artifact.manifest, limits=replace(artifact.manifest.limits, **limits))
    CpuExecutor(
        Artifact(artifact.root, changed),
        artifact.manifest.engines[0],
        num_threads=num_threads,
        build=build,
    ).close()


@pytest.mark.parametrize("build", ["sse9", "AVX512", "x" * 1000])
def test_instructions_that_the_machine_lacks_are_refused_by_those_that_it_has(
    plain: Artifact, build: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"'{build[:64]}'; it runs .*generic$") as error:
        opened(plain, build=build)
    assert all(name in str(error.value) for name in native.builds())


@pytest.mark.parametrize("value", [-(1 << 31), -1, 0, (1 << 31) - 1])
@pytest.mark.parametrize(
    "name", ["max_num_tokens", "max_num_seqs", "max_logit_rows", "max_seq_len", "num_blocks"]
)
def test_a_limit_that_nothing_could_run_with_is_refused_by_its_name(
    plain: Artifact, name: str, value: int
) -> None:
    with pytest.raises(ArtifactError, match=f"refuses its limits: {name} is {value}"):
        opened(plain, **{name: value})


@pytest.mark.parametrize("num_threads", [0, -1, 100_000])
def test_a_number_of_threads_that_no_team_has_is_refused(plain: Artifact, num_threads: int) -> None:
    with pytest.raises(ArtifactError, match=f"num_threads is {num_threads}"):
        opened(plain, num_threads=num_threads)


def test_sequences_beyond_the_rotary_tables_are_refused_before_the_first_request(
    plain: Artifact,
) -> None:
    longest = plain.manifest.limits.max_seq_len
    with pytest.raises(
        ArtifactError, match=rf"max_seq_len is {longest + 16}, .* {longest} positions"
    ):
        opened(plain, max_seq_len=longest + 16)


def test_a_pool_that_does_not_fit_in_memory_is_refused_before_anything_runs(
    plain: Artifact,
) -> None:
    with pytest.raises(EngineError, match=r"KV pool 262144 MiB.*--kv-cache-bytes"):
        opened(plain, num_blocks=1 << 26)


@pytest.mark.parametrize("more", [{"max_num_tokens": 1 << 17}, {"num_threads": 200}])
def test_what_a_step_and_its_threads_take_counts_as_much_as_the_pool(
    plain: Artifact, more: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "available_memory_bytes", lambda: 100 << 20)
    opened(plain)
    with pytest.raises(EngineError, match=r"100 MiB are free.*--max-num-tokens.*--threads"):
        opened(plain, **more)


@pytest.mark.parametrize("kv", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("head_dim", [16, 20, 100])
def test_the_pool_is_as_large_as_the_manifest_says_whatever_the_head_size(
    head_dim: int, kv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_llama(tmp_path / "model", head_dim=head_dim)
    built = compile_model(model, tmp_path / "built", quant="int8", kv=kv, kv_cache_bytes=64 << 20)
    pool = built.manifest.limits.num_blocks * built.manifest.kv.bytes_per_block
    assert 63 << 20 < pool < 65 << 20
    monkeypatch.setattr(opening, "available_memory_bytes", lambda: 0)
    with pytest.raises(EngineError, match=f"KV pool {-(-pool // (1 << 20))} MiB"):
        opened(built)


UNDER_A_LIMIT = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from builder.artifact.store import Artifact, read_manifest
from builder.errors import EngineError
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor

root, extra = Path(sys.argv[1]), int(sys.argv[2])
whole = read_manifest(root)
manifest = replace(whole, limits=replace(whole.limits, num_blocks=8))
native.library()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + extra, used + extra))
try:
    CpuExecutor(Artifact(root, manifest), manifest.engines[0], num_threads=64)
except EngineError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("extra_mib", "words"),
    [(20, "which the system refuses"), (150, "could not start 64 threads")],
)
def test_what_the_system_refuses_ends_in_one_line_and_not_the_process(
    plain: Artifact, extra_mib: int, words: str
) -> None:
    """The stacks of threads are memory too: with 150 MiB the engine is there and not all of its threads."""
    child = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, plain.root, str(extra_mib << 20)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    assert words in child.stdout
    assert "--threads" in child.stdout
