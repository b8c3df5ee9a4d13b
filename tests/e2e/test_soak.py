"""Ten minutes of random load with cancels: memory stays, and every block comes back."""

import random
import time
from collections.abc import Iterator

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest

from builder.artifact.store import open_artifact
from tests.built import compile_model
from tests.models import tiny_llama
from triton_backend.loading import LoadedModel, load_model
from triton_backend.request import Request, SamplingParams

SOAK_S = 600
WARM_UP_S = 60
"""Time for arenas, caches of compiled code and the prefix index to reach their size."""
MAX_MB_PER_1000_REQUESTS = 1.0
MAX_OPEN = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    folder = tmp_path_factory.mktemp("soak")
    root = compile_model(tiny_llama(folder / "tiny"), folder / "artifact", max_seq_len=256).root
    loaded = load_model(open_artifact(root))
    yield loaded
    loaded.close()


class Load:
    """Random requests, some of them cancelled, at most `MAX_OPEN` at a time."""

    def __init__(self, model: LoadedModel) -> None:
        self.engine = model.engine
        self.random = random.Random(0)  # noqa: S311
        self.open: set[str] = set()
        self.num_requests = 0

    def step(self) -> None:
        while len(self.open) < MAX_OPEN:
            self.submit()
        if self.random.random() < 0.05:
            self.cancel(self.random.choice(sorted(self.open)))
        for delta in self.engine.step():
            if delta.is_last:
                self.open.remove(delta.request_id)

    def submit(self) -> None:
        rng = self.random
        start = [rng.randrange(20) for _ in range(rng.choice([0, 16, 40]))]
        prompt = (*start, *(rng.randrange(256) for _ in range(rng.randint(1, 80))))
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.9]),
            top_p=rng.choice([1.0, 0.9]),
            max_tokens=rng.randint(1, 60),
            stop=rng.choice([(), ("ab", "\n")]),
            logprobs=rng.choice([None, None, 3]),
            num_choices=rng.choice([1, 1, 1, 3]),
            repetition_penalty=rng.choice([1.0, 1.3]),
            speculation=rng.choice([None, True]),
        )
        name = f"r{self.num_requests}"
        domain = rng.choice([b"", b"one", None])
        self.engine.submit(Request(name, prompt, params, domain=domain))
        self.open.add(name)
        self.num_requests += 1

    def cancel(self, name: str) -> None:
        assert self.engine.cancel(name)[-1].is_last
        self.open.remove(name)

    def finish(self) -> None:
        for name in sorted(self.open):
            self.cancel(name)


def run(model: LoadedModel, soak_s: float, warm_up_s: float) -> tuple[list[int], list[float]]:
    """Load an engine; give requests so far and resident megabytes, second by second after the warm-up."""
    load, process = Load(model), psutil.Process()
    started = time.monotonic()
    requests, megabytes = list[int](), list[float]()
    while (passed := time.monotonic() - started) < soak_s:
        load.step()
        if passed > warm_up_s + len(requests):
            requests.append(load.num_requests)
            megabytes.append(process.memory_info().rss / 1e6)
    load.finish()
    assert not model.engine.has_work
    return requests, megabytes


def check_idle(model: LoadedModel) -> None:
    """Nobody holds a block: all are free, or cached and free to take."""
    cache = model.engine.scheduler.cache
    cache.check_integrity([])
    assert cache.num_available == model.executor.limits.num_blocks - 1
    cache.clear()
    assert cache.pool.num_used == 0


def test_a_short_load_gives_every_block_back(model: LoadedModel) -> None:
    requests, _ = run(model, 5, 1)
    assert requests[-1] > 10
    check_idle(model)


@pytest.mark.slow
def test_ten_minutes_of_load_leave_memory_as_it_was(model: LoadedModel) -> None:
    requests, megabytes = run(model, SOAK_S, WARM_UP_S)
    check_idle(model)
    slope, _ = np.polyfit(np.array(requests) / 1000, megabytes, 1)
    print(f"{requests[-1]} requests, {slope:.3f} MB per 1,000")  # noqa: T201 - shown with -s
    assert slope < MAX_MB_PER_1000_REQUESTS
