"""Serve a model repository, ask it as a client of Triton and as one of OpenAI, show the metrics, and stop.

Usage: demo_clients.py REPO. Both clients are the unmodified packages: tritonclient and openai.
"""

import json
import queue
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openai
from tritonclient.grpc import InferenceServerClient, InferInput

QUESTION = "What is the capital of France?"
MAX_TOKENS = 48
SHOWN_METRICS = (
    "nv_inference_request_success",
    "forerun_kv_blocks",
    "forerun_requests_submitted_total",
    "forerun_prompt_tokens_total",
    "forerun_generated_tokens_total",
    "forerun_time_to_first_token_seconds_sum",
    "forerun_time_to_first_token_seconds_count",
)
METRICS_LATE_S = 1.5
"""The engine tells its figures every second."""

Responses = queue.SimpleQueue[tuple[Any, Any]]
"""Results and errors, as tritonclient's callback gets them."""


@contextmanager
def served(repository: Path) -> Iterator[dict[str, str]]:
    """Run `builder serve` on free ports; give its URLs when it is ready, and stop it in the end."""
    builder = Path(sys.executable).with_name("builder")
    ports = [f"--{service}-port=0" for service in ("openai", "http", "grpc", "metrics")]
    command = [str(builder), "serve", str(repository), *ports]
    print("==>", *command, flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(5)]
            if not lines[-1]:
                raise SystemExit("builder serve ended before it was ready")
            print("".join(lines), flush=True)
            yield dict(line.split() for line in lines[1:])
        finally:
            started = time.perf_counter()
            process.terminate()
            code = process.wait()
            took = time.perf_counter() - started
            print(f"==> stopped with exit code {code} after {took:.1f} s", flush=True)


def ask_triton(address: str, model: str) -> None:
    """Stream an answer of the model with vLLM's face over gRPC, in the format of SmolLM2's chats."""
    print(f"==> tritonclient, model {model}: {QUESTION}", flush=True)
    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    sampling = json.dumps({"max_tokens": MAX_TOKENS, "temperature": 0})
    tensors = {
        "text_input": ("BYTES", np.array([prompt.encode()], np.object_)),
        "sampling_parameters": ("BYTES", np.array([sampling.encode()], np.object_)),
        "stream": ("BOOL", np.array([True])),
    }
    inputs = []
    for name, (data_type, array) in tensors.items():
        inputs.append(InferInput(name, [1], data_type))
        inputs[-1].set_data_from_numpy(array)
    responses: Responses = queue.SimpleQueue()
    with InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: responses.put((result, error)))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        print_responses(responses)


def print_responses(responses: Responses) -> None:
    """Print the text of a stream's responses until the final one."""
    while True:
        result, error = responses.get()
        if error is not None:
            raise SystemExit(f"the request failed: {error}")
        text = result.as_numpy("text_output")
        if text is not None:
            print(text[0].decode(), end="", flush=True)
        if result.get_response().parameters["triton_final_response"].bool_param:
            print()
            return


def ask_openai(url: str) -> None:
    """Stream an answer of the first model through the OpenAI API."""
    with openai.OpenAI(base_url=url, api_key="none is needed") as client:
        model = client.models.list().data[0].id
        print(f"==> openai, model {model}: {QUESTION}", flush=True)
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=MAX_TOKENS,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        usage = None
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
    print(f"\n{usage.model_dump_json(exclude_none=True) if usage else ''}")


def show_metrics(url: str) -> None:
    """Print some of what was counted of our requests."""
    time.sleep(METRICS_LATE_S)
    print(f"==> {url}, of which:", flush=True)
    with urllib.request.urlopen(url) as response:  # noqa: S310 (our own server's)
        lines = response.read().decode().splitlines()
    print("\n".join(line for line in lines if line.partition("{")[0] in SHOWN_METRICS))


def main(repository: Path) -> None:
    """Show the whole way of an answer."""
    with served(repository) as urls:
        ask_triton(urls["grpc"], "vllm_model")
        ask_openai(urls["openai"])
        show_metrics(urls["metrics"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
