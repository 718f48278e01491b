"""Peak memory of a piece of work: this process and its workers, sampled."""

from __future__ import annotations

import threading

import psutil

_SAMPLE_S = 0.1
_MB = 1 << 20


class PeakMemory:
    """Context manager; ``peak_mb`` is the largest resident set seen, in MiB.

    The largest of single processes, since the limit that matters is that of one worker.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._end.wait(_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        process = psutil.Process()
        for each in (process, *process.children(recursive=True)):
            try:
                self.peak_mb = max(self.peak_mb, each.memory_info().rss / _MB)
            except psutil.NoSuchProcess:
                continue
