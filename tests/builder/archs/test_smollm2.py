"""The real SmolLM2-135M-Instruct against transformers, in float32 on the same weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from builder.artifact.store import Artifact
from builder.checkpoint.open import open_checkpoint
from builder.targets import open_executor
from tests.built import compile_model
from tests.models import smollm2_gguf
from tests.paged_runner import PagedRunner

pytestmark = pytest.mark.model

TOLERANCE = 2e-3
LENGTHS = (1, 2, 9, 16, 31, 64, 150, 300)
TEXT = (
    "A block table maps the positions of a sequence to places in memory. When a prompt is longer than the step's "
    "budget it is computed in chunks, while other sequences get one token each. Water boils at 100 degrees "
    "Celsius at sea level; at 3,000 metres it boils near 90. Tokyo is the capital of Japan, and 東京 means "
    "eastern capital. def area(width, height): return width * height. "
) * 6


@dataclass
class Pair:
    """The model, twice, and prompts of the lengths that the tests name."""

    artifact: Artifact
    reference: LlamaForCausalLM
    runner: PagedRunner
    prompts: dict[int, list[int]]

    def logits(self, tokens: list[int]) -> Any:
        with torch.no_grad():
            return self.reference(torch.tensor([tokens])).logits[0].numpy()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    artifact = compile_model(
        smollm2_gguf(),
        tmp_path_factory.mktemp("built") / "smollm2",
        max_num_seqs=512,
        max_seq_len=512,
    )
    executor = open_executor(artifact)
    tokenizer = Tokenizer.from_file(str(artifact.path("tokenizer/tokenizer.json")))
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    prompts = {length: ids[7 * place : 7 * place + length] for place, length in enumerate(LENGTHS)}
    yield Pair(artifact, load_reference(), PagedRunner(executor), prompts)
    executor.close()


def load_reference() -> LlamaForCausalLM:
    checkpoint = open_checkpoint(str(smollm2_gguf()))
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**checkpoint.config, attn_implementation="eager"))
    weights = {
        name: torch.from_numpy(tensor.read().copy()) for name, tensor in checkpoint.tensors.items()
    }
    missing, unexpected = model.load_state_dict(weights, assign=True, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    config = LlamaConfig(**checkpoint.config)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


@pytest.mark.parametrize("length", LENGTHS)
def test_logits_of_all_positions_equal_the_reference(pair: Pair, length: int) -> None:
    tokens = pair.prompts[length]
    assert len(tokens) == length
    error = np.abs(pair.runner.whole(tokens) - pair.logits(tokens)).max()
    assert error < TOLERANCE


def test_64_greedy_tokens_of_8_prompts_computed_together_equal_the_reference(pair: Pair) -> None:
    chunks = [(str(length), tokens) for length, tokens in pair.prompts.items() if length < 300]
    chunks.append(("300", pair.prompts[300][:200]))
    rows = dict(zip((name for name, _ in chunks), pair.runner.step(*chunks), strict=True))
    rows["300"] = pair.runner.step(("300", pair.prompts[300][200:]))[0]
    answers = {name: [int(row[-1].argmax())] for name, row in rows.items()}
    for _ in range(63):
        steps = [(name, answer[-1:]) for name, answer in answers.items()]
        for (name, _), row in zip(steps, pair.runner.step(*steps), strict=True):
            answers[name].append(int(row[-1].argmax()))
    for length, tokens in pair.prompts.items():
        pair.runner.forget(str(length))
        with torch.no_grad():
            ids = torch.tensor([tokens])
            out = pair.reference.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=64,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert answers[str(length)] == out[0, length:].tolist()


@pytest.mark.parametrize("chunk", [1, 16, 100])
def test_chunks_give_the_same_bits_as_the_whole(pair: Pair, chunk: int) -> None:
    tokens = pair.prompts[150]
    np.testing.assert_array_equal(pair.runner.whole(tokens, chunk), pair.runner.whole(tokens))


def test_the_same_input_gives_the_same_bytes(pair: Pair, tmp_path: Any) -> None:
    again = compile_model(smollm2_gguf(), tmp_path / "again", max_num_seqs=512, max_seq_len=512)
    assert again.manifest == pair.artifact.manifest
