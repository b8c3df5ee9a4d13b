"""OpenVINO GenAI: its pipeline with continuous batching and a cache of prefixes."""

from collections.abc import Sequence

import numpy as np
import openvino as ov  # type: ignore[import-not-found]
import openvino_genai as genai  # type: ignore[import-not-found]

from peer_engines.measuring import MAX_SEQS, Prompt, Task, run


class OpenVino:
    """A continuous-batching pipeline fed with token ids."""

    def __init__(self, task: Task) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1  # GB, the least it takes; pages are touched as they are used
        scheduler.max_num_seqs = MAX_SEQS
        scheduler.max_num_batched_tokens = 2048
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        properties = {"INFERENCE_NUM_THREADS": task.threads}
        self._pipeline = genai.ContinuousBatchingPipeline(
            str(task.model), scheduler, "CPU", properties
        )

    def answer(self, prompts: Sequence[Prompt], num_tokens: int) -> int:
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = num_tokens
        config.ignore_eos = True
        config.do_sample = False
        inputs = [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        results = self._pipeline.generate(inputs, [config] * len(prompts))
        return sum(len(result.m_generation_ids[0]) for result in results)

    def remember(self, shared: Prompt) -> None:
        self.answer([[*shared, 300]], 1)

    def first_token(self, prompt: Prompt) -> None:
        self.answer([prompt], 1)


if __name__ == "__main__":
    run(OpenVino)
