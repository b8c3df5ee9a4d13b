"""The real model's answers do not depend on how they are served: equal text, bit-equal logprobs (P3).

Every way of `builder verify --determinism`, sampled here; the slow ones serve 32 prompts, greedy and drawn.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from builder.artifact.store import open_artifact
from builder.cli.determinism.cases import TEXT, make_cases
from builder.cli.determinism.permutations import PERMUTATIONS, Outcome, Proof
from builder.cli.main import main
from tests.models import smollm2_gguf
from triton_backend.loading import LoadedModel, load_model
from triton_backend.request import Request

pytestmark = pytest.mark.model

PRECISIONS = {"float32": "--dtype=float32", "int8": "--int8"}


@pytest.fixture(scope="module", params=PRECISIONS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedModel]:
    root: Path = tmp_path_factory.mktemp("built") / "smollm2"
    options = [PRECISIONS[request.param], "--max-num-tokens", "128", "--max-seq-len", "512"]
    result = CliRunner().invoke(
        main, ["compile", str(smollm2_gguf()), "-o", str(root), "--quiet", *options]
    )
    assert result.exit_code == 0, result.stderr
    loaded = load_model(open_artifact(root))
    yield loaded
    loaded.close()


def proof_of(model: LoadedModel, count: int, max_tokens: int, temperature: float | None) -> Proof:
    """Serve `count` prompts alone; all at one temperature, or half greedy and half drawn if None."""
    cases = make_cases(
        model.encode_text(TEXT),
        model.executor.limits,
        count=count,
        max_tokens=max_tokens,
        block_size=model.executor.kv.block_size,
    )
    if temperature is not None:
        cases = [at(case, temperature) for case in cases]
    ends = model.artifact.manifest.tokenizer.end_token_ids
    proof = Proof(model.executor, model.tokenizer, ends, cases)
    proof.serve_alone()
    return proof


def at(case: Request, temperature: float) -> Request:
    seed = int(case.request_id)
    params = dataclasses.replace(case.params, temperature=temperature, seed=seed)
    return dataclasses.replace(case, params=params)


@pytest.fixture(scope="module")
def sample(model: LoadedModel) -> Proof:
    return proof_of(model, 5, 12, None)


@pytest.mark.parametrize("way", PERMUTATIONS, ids=lambda way: way.__name__)
def test_answers_are_the_same_in_every_way(sample: Proof, way: Callable[[Proof], Outcome]) -> None:
    assert way(sample).differences == ()


@pytest.fixture(scope="module", params=[0.0, 0.9], ids=["greedy", "drawn"])
def whole(model: LoadedModel, request: pytest.FixtureRequest) -> Proof:
    return proof_of(model, 32, 24, request.param)


@pytest.mark.slow
@pytest.mark.parametrize("way", PERMUTATIONS, ids=lambda way: way.__name__)
def test_32_answers_are_the_same_in_every_way(
    whole: Proof, way: Callable[[Proof], Outcome]
) -> None:
    outcome = way(whole)
    assert outcome.differences == ()
    assert outcome.is_exercised, outcome.evidence
    assert outcome.num_answers >= 32
