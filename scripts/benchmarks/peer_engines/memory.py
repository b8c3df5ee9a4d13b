"""Peak memory of this process, with and without clean pages of files.

The kernel keeps a peak of all resident pages, but none of those that are not backed by files: these are sampled.
"""

import threading
from pathlib import Path
from types import TracebackType

STATUS = Path("/proc/self/status")
INTERVAL_S = 0.05


def status_mb(*names: str) -> float:
    """Add up numbers of the kernel's account of this process, in MB of 2**20 bytes."""
    lines = (line.partition(":") for line in STATUS.read_text().splitlines())
    found = {name: text for name, _, text in lines}
    return round(sum(int(found[name].split()[0]) for name in names) / 1024, 1)


class PeakMemory:
    """Watches this process while its block runs."""

    def __init__(self) -> None:
        self.own_mb = 0.0
        """Anonymous and shared pages: what stays if all clean pages of files are dropped."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def peak_mb(self) -> float:
        """Resident pages of all kinds."""
        return status_mb("VmHWM")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._look()

    def _look(self) -> None:
        self.own_mb = max(self.own_mb, status_mb("RssAnon", "RssShmem"))
