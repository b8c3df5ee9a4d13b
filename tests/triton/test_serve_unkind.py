"""`builder serve` in unkind surroundings: fronts that die and can't be loaded, hostile folders, other users, odd hosts."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.triton.clients import WAIT_S, call
from tests.triton.serve_process import ServeProcess, serve_process
from tests.triton.serving import FORERUN, VLLM, deployed
from triton_backend.launcher import family

POLL_S = 0.05
SHORT = {"text": "Hello", "max_tokens": 2, "ignore_eos": True}
HOSTILE = ("psutil", "numpy", "model", "logging", "msgspec", "triton_backend", "builder")
"""Modules that a front or a guard imports."""


@pytest.fixture
def artifact(tiny_artifact: Path, tmp_path: Path) -> Path:
    """Copy the tiny model, for a test to move away."""
    return shutil.copytree(tiny_artifact, tmp_path / "artifact", copy_function=shutil.copyfile)


@pytest.fixture
def serve(artifact: Path, tmp_path: Path) -> Iterator[ServeProcess]:
    """Serve it from a path that a shell would misread, in a folder with modules of others' names, on a host's name."""
    folder = tmp_path / 'it\'s "$HOME" `x`\n\udcff'
    folder.mkdir()
    here = tmp_path / "here"
    here.mkdir()
    for name in HOSTILE:
        (here / f"{name}.py").write_text(f"open({str(here / 'ran')!r}, 'a').close()")
    repository = deployed(artifact, folder / "repository")
    with serve_process(repository, "--host=localhost", cwd=here) as process:
        yield process
    assert not (here / "ran").exists()


def answers(serve: ServeProcess) -> bool:
    """Ask the model with the `forerun` face for two tokens."""
    content = {"model": FORERUN, "prompt": "Hello", "max_tokens": 2}
    return call(serve.address("openai"), "POST", "/v1/completions", content)[0] == 200


def vllm_answers(serve: ServeProcess) -> bool:
    """Ask the model with the `vllm` face."""
    content = {"text_input": "Hello", "sampling_parameters": json.dumps({"max_tokens": 2})}
    return call(serve.address("http"), "POST", f"/v2/models/{VLLM}/generate", content)[0] == 200


def wait_said(serve: ServeProcess, text: str) -> float:
    """Wait until stderr has a text; give the seconds that it took."""
    started = time.monotonic()
    while text not in serve.errors.read_text():
        assert serve.process.poll() is None
        assert time.monotonic() - started < WAIT_S, serve.errors.read_text()
        time.sleep(POLL_S)
    return time.monotonic() - started


def test_it_serves_on_one_ipv4_address(serve: ServeProcess) -> None:
    assert answers(serve)
    assert vllm_answers(serve)
    assert {serve.address(service).partition(":")[0] for service in serve.urls} == {"127.0.0.1"}


def test_other_users_can_read_neither_prompts_nor_models(serve: ServeProcess) -> None:
    assert answers(serve)
    regions = family.regions(serve.mark)
    assert len(regions) >= 2, "one a front, at least"
    assert {region.stat().st_mode & 0o777 for region in regions} == {0o600}
    (root,) = [
        Path(each.partition("=")[2])
        for each in serve.triton.cmdline()
        if each.startswith("--model-repository=")
    ]
    assert root.parent.stat().st_mode & 0o777 == 0o700


def test_a_front_that_dies_is_loaded_again(serve: ServeProcess) -> None:
    front = family.stubs_among(serve.family)[FORERUN]
    front.kill()
    took = wait_said(serve, f"the front of {FORERUN} died; it was loaded again\n")
    print(f"a killed front was loaded again after {took:.2f} s")  # noqa: T201
    assert answers(serve)
    assert family.stubs_among(serve.family)[FORERUN].pid != front.pid


def test_a_front_that_can_t_be_loaded_again_leaves_the_others_alone(
    serve: ServeProcess, artifact: Path
) -> None:
    away = artifact.rename(artifact.with_name("away"))
    family.stubs_among(serve.family)[FORERUN].kill()
    wait_said(serve, f"the front of {FORERUN} died and can't be loaded again; next try in 2 s\n")
    assert f"there is no artifact at {artifact}" in serve.errors.read_text()
    assert vllm_answers(serve)
    away.rename(artifact)
    wait_said(serve, f"the front of {FORERUN} died; it was loaded again\n")
    assert answers(serve)
