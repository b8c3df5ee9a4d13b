"""vLLM's CPU build: its offline engine in this process, with its cache of prefixes.

What it takes from environment variables only is set by `catalogue`.
"""

from collections.abc import Sequence

from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

from peer_engines.measuring import MAX_SEQ_LEN, MAX_SEQS, Prompt, Task, run

BLOCK_SIZE = 32
"""Its default of 128 would reuse 384 of 448 tokens."""


class VLlm:
    """An engine fed with token ids."""

    def __init__(self, task: Task) -> None:
        self._engine = LLM(
            model=str(task.model),
            dtype="bfloat16",
            max_model_len=MAX_SEQ_LEN,
            max_num_seqs=MAX_SEQS,
            max_num_batched_tokens=4096,
            block_size=BLOCK_SIZE,
            enable_prefix_caching=True,
            disable_log_stats=True,
        )

    def answer(self, prompts: Sequence[Prompt], num_tokens: int) -> int:
        params = SamplingParams(
            temperature=0,
            max_tokens=num_tokens,
            min_tokens=num_tokens,
            ignore_eos=True,
            detokenize=False,
        )
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        results = self._engine.generate(inputs, params, use_tqdm=False)
        return sum(len(result.outputs[0].token_ids) for result in results)

    def remember(self, shared: Prompt) -> None:
        self.answer([[*shared, 300]], 1)

    def first_token(self, prompt: Prompt) -> None:
        self.answer([prompt], 1)


if __name__ == "__main__":
    run(VLlm)
