"""When a host is deserted: nobody came, the last was lost and is not back in time, or the last took its leave."""

import threading

from tests.triton_backend.host_stage import PATIENCE_S, Stage, await_true
from triton_backend.messages import Leave, Ping, Pong


class Deserted(threading.Thread):
    """Waits until a stage is deserted."""

    def __init__(self, stage: Stage, *, first_s: float, grace_s: float) -> None:
        super().__init__(
            target=stage.fronts.wait_until_deserted, kwargs={"first_s": first_s, "grace_s": grace_s}
        )
        self.start()


def test_a_host_is_deserted_when_nobody_comes(stage: Stage) -> None:
    waiting = Deserted(stage, first_s=0.05, grace_s=PATIENCE_S)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_a_host_is_deserted_some_time_after_the_last_front_was_lost(served: Stage) -> None:
    waiting = Deserted(served, first_s=PATIENCE_S, grace_s=0.2)
    first, second = served.join(), served.join()
    first.close()
    await_true(lambda: len(served.fronts._joined) == 1)
    second.send(Ping())
    assert isinstance(second.receive(), Pong)
    assert waiting.is_alive()
    second.close()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_a_front_that_is_back_in_time_finds_its_host(served: Stage) -> None:
    waiting = Deserted(served, first_s=PATIENCE_S, grace_s=PATIENCE_S)
    served.join().close()
    await_true(lambda: not served.fronts._joined)
    link = served.join()
    assert waiting.is_alive()
    link.send(Leave())
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


def test_after_an_orderly_leave_a_host_is_deserted_at_once(served: Stage) -> None:
    waiting = Deserted(served, first_s=PATIENCE_S, grace_s=PATIENCE_S)
    served.join().send(Leave())
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
