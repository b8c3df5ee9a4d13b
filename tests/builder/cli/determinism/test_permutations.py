"""The ways of the proof at the sizes of a real artifact: each comes about, over the scripted engine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.artifact.store import open_artifact
from builder.cli.determinism.cases import make_cases
from builder.cli.determinism.permutations import PERMUTATIONS, Outcome, Proof, preempted
from builder.cli.verify import MAX_TOKENS, NUM_PROMPTS
from builder.targets.scripted.execute import ScriptedExecutor
from tests.builder.cli.scripted_engine import ENDS, VOCAB
from tests.triton_backend.making import make_limits
from triton_backend.loading import load_model

BLOCK_SIZE = 16
IDS = tuple(range(90))


def make_proof(artifact: Path, count: int) -> Proof:
    limits = make_limits(max_seq_len=512, max_num_seqs=32, max_num_tokens=128, max_logit_rows=32)
    cases = make_cases(IDS, limits, count=count, max_tokens=MAX_TOKENS, block_size=BLOCK_SIZE)
    model = load_model(open_artifact(artifact))
    model.close()
    executor = ScriptedExecutor(limits, block_size=BLOCK_SIZE, vocab_size=VOCAB)
    return Proof(executor, model.tokenizer, ENDS, cases)


@pytest.fixture(scope="module")
def proof(tiny_artifact: Path) -> Proof:
    made = make_proof(tiny_artifact, NUM_PROMPTS)
    made.serve_alone()
    return made


@pytest.mark.parametrize("way", PERMUTATIONS, ids=lambda way: way.__name__)
def test_a_way_comes_about_with_the_commands_defaults(
    proof: Proof, way: Callable[[Proof], Outcome]
) -> None:
    outcome = way(proof)
    assert outcome.differences == ()
    # The scripted engine's text never repeats itself, so nothing is drafted.
    assert outcome.is_exercised or outcome.name == "speculated", outcome.evidence


def test_choices_alone_begin_with_the_answer_without_choices(proof: Proof) -> None:
    assert len(proof.choices_alone) == 3 * len(proof.alone)
    for key, answer in proof.alone.items():
        assert proof.choices_alone[key] is answer
    assert proof.each_alone(proof.cases_with_choices) == proof.choices_alone


@pytest.mark.parametrize("count", [2, 12, 32])
def test_some_are_preempted_however_many_there_are(tiny_artifact: Path, count: int) -> None:
    assert preempted(make_proof(tiny_artifact, count)).is_exercised
