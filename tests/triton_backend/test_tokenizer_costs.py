"""What long prompts cost, and whom they keep waiting."""

import threading
import time

from tests.triton_backend.vocabularies import added, byte_level, loaded
from triton_backend.segments import Segment, SegmentKind

END = byte_level(added(256, "<|end|>"))


def test_many_segments_are_joined_as_fast_as_one() -> None:
    """One after the other, each copying what was there, took 40 s for 600,000 of them."""
    segments = [Segment(SegmentKind.TEXT, "ab")] * 400_000
    started_s = time.monotonic()
    (joined,) = loaded(END)._joined(segments)
    assert time.monotonic() - started_s < 10
    assert joined == Segment(SegmentKind.TEXT, "ab" * 400_000)


def test_other_threads_run_while_a_long_prompt_is_encoded() -> None:
    tokenizer = loaded(END)
    encoding = threading.Thread(target=tokenizer.encode, args=("lorem ipsum " * 20_000,))
    started_s = last_s = time.monotonic()
    longest_s = 0.0
    encoding.start()
    while encoding.is_alive():
        threading.Event().wait(0.001)
        now_s = time.monotonic()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    assert longest_s < (last_s - started_s) / 2
