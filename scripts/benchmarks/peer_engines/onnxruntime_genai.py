"""ONNX Runtime GenAI: fixed batches of equal prompts. It has no cache of prefixes, so a live generator is continued."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime_genai as genai  # type: ignore[import-not-found]

from peer_engines.measuring import MAX_SEQ_LEN, NUM_SHARED, Prompt, Task, run


class OnnxRuntimeGenai:
    """A model and the generator that holds what is remembered."""

    def __init__(self, task: Task) -> None:
        config = genai.Config(str(task.model))
        threads = {"intra_op_num_threads": task.threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self._model = genai.Model(config)
        self._live: Any = None

    def answer(self, prompts: Sequence[Prompt], num_tokens: int) -> int:
        generator = self._generator(len(prompts), len(prompts[0]) + num_tokens)
        generator.append_tokens(np.array(prompts, np.int32))
        for _ in range(num_tokens):
            generator.generate_next_token()
        lengths = (len(generator.get_sequence(i)) for i in range(len(prompts)))
        return sum(lengths) - sum(map(len, prompts))

    def remember(self, shared: Prompt) -> None:
        self._live = self._generator(1, MAX_SEQ_LEN)
        self._live.append_tokens(np.array([shared], np.int32))

    def first_token(self, prompt: Prompt) -> None:
        generator, begin = self._live, NUM_SHARED
        if generator is None:
            generator, begin = self._generator(1, len(prompt) + 1), 0
        self._live = None
        generator.append_tokens(np.array([prompt[begin:]], np.int32))
        generator.generate_next_token()
        generator.get_next_tokens()

    def _generator(self, size: int, num_tokens: int) -> Any:
        params = genai.GeneratorParams(self._model)
        params.set_search_options(
            max_length=num_tokens,
            min_length=num_tokens,
            do_sample=False,
            batch_size=size,
            past_present_share_buffer=True,
        )
        return genai.Generator(self._model, params)


if __name__ == "__main__":
    run(OnnxRuntimeGenai)
