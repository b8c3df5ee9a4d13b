"""Every architecture against transformers, on seeded tiny weights: the harness that a new one joins by a table row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from builder.archs import ARCHS
from builder.targets import open_executor
from builder.targets.executor import Executor
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-plain": ("llama", {}),
    "llama-untied": ("llama", {"tie_word_embeddings": False}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-nine-heads-three-kv": (
        "llama",
        {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 144},
    ),
    "llama-no-grouping": ("llama", {"num_key_value_heads": 4}),
    "llama-one-kv-head": ("llama", {"num_key_value_heads": 1}),
    "llama-head-20": ("llama", {"head_dim": 20}),
    "llama-head-100": ("llama", {"head_dim": 100}),
    "llama-odd-vocab": ("llama", {"vocab_size": 257, "hidden_size": 48, "head_dim": 12}),
    "llama-rope-linear": ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama-rope-llama3": ("llama", {"rope_scaling": LLAMA3}),
    "llama-rope-parameters": (
        "llama",
        {"rope_theta": None, "rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
    ),
    "llama-bfloat16": ("llama", {"dtype": "bfloat16"}),
    "llama-float16": ("llama", {"dtype": "float16"}),
}
LENGTHS = (1, 2, 15, 16, 17, 63, 65, 200)
TOLERANCE = 2e-4


@dataclass
class Pair:
    """One model, twice."""

    reference: PreTrainedModel
    executor: Executor
    runner: PagedRunner

    def logits(self, tokens: list[int]) -> Any:
        with torch.no_grad():
            return self.reference(torch.tensor([tokens])).logits[0].numpy()


@pytest.fixture(scope="module", params=VARIANTS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    _, overrides = VARIANTS[request.param]
    folder = tiny_llama(tmp_path_factory.mktemp("model"), **overrides)
    artifact = compile_model(
        folder, tmp_path_factory.mktemp("built") / "artifact", max_num_seqs=256, max_num_tokens=512
    )
    reference = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    executor = open_executor(artifact)
    yield Pair(reference.eval(), executor, PagedRunner(executor))
    executor.close()


def draw(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def test_every_architecture_has_a_variant_here() -> None:
    assert {arch for arch, _ in VARIANTS.values()} == set(ARCHS)


@pytest.mark.parametrize("length", LENGTHS)
def test_logits_of_all_positions_equal_the_reference(pair: Pair, length: int) -> None:
    tokens = draw(length, length)
    np.testing.assert_allclose(pair.runner.whole(tokens), pair.logits(tokens), atol=TOLERANCE)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
def test_chunks_give_the_same_bits_as_the_whole(pair: Pair, chunk: int) -> None:
    tokens = draw(90)
    np.testing.assert_array_equal(pair.runner.whole(tokens, chunk), pair.runner.whole(tokens))


def test_mixed_steps_give_the_same_bits_as_solo_runs(pair: Pair) -> None:
    prompts = {
        name: draw(length, seed=length) for name, length in zip("abcd", (5, 40, 90, 1), strict=True)
    }
    alone = {name: pair.runner.whole(tokens) for name, tokens in prompts.items()}
    places = dict.fromkeys(prompts, 0)
    got: dict[str, list[Any]] = {name: [] for name in prompts}
    for sizes in [(1, 30, 1, 0), (2, 1, 60, 1), (1, 8, 1, 0), (1, 1, 28, 0)]:
        chunks = []
        for name, size in zip(prompts, sizes, strict=True):
            if size:
                chunks.append((name, prompts[name][places[name] : places[name] + size]))
                places[name] += size
        for (name, _), rows in zip(chunks, pair.runner.step(*chunks), strict=True):
            got[name].append(rows)
    for name, rows in got.items():
        np.testing.assert_array_equal(np.concatenate(rows), alone[name])
        pair.runner.forget(name)


def test_64_greedy_tokens_equal_the_reference(pair: Pair) -> None:
    prompt = draw(12)
    with torch.no_grad():
        expected = pair.reference.generate(
            torch.tensor([prompt]),
            max_new_tokens=64,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )[0, 12:].tolist()
    token = int(pair.runner.step(("greedy", prompt))[0][-1].argmax())
    tokens = [token]
    while len(tokens) < 64:
        token = int(pair.runner.step(("greedy", [token]))[0][-1].argmax())
        tokens.append(token)
    pair.runner.forget("greedy")
    assert tokens == expected
