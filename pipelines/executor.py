"""Where chunk work runs: in this process, or on a pool of local worker processes.

Workers are spawned (Dagster's processes have threads, so a fork isn't safe) and kept for the
life of this process, since starting one costs a second. A worker ends itself when its parent is
gone: nothing goes on computing after a ``kill -9``.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

_PARENT_POLL_S = 1.0
_pool: tuple[int, ProcessPoolExecutor] | None = None


def run_tasks(
    function: Callable[..., Any], arguments: Sequence[tuple], workers: int
) -> Iterator[tuple[int, Any]]:
    """Yield ``(index, function(*arguments[index]))`` as each finishes.

    ``workers`` of 1 runs everything here, in order. The first error stops the rest: what waits is
    cancelled, the workers are ended, and the error is raised.
    """
    if workers <= 1 or len(arguments) <= 1:
        for index, args in enumerate(arguments):
            yield index, function(*args)
        return
    pool = _shared_pool(workers)
    waiting: dict[Future, int] = {}
    queue = iter(enumerate(arguments))
    try:
        while True:
            # Two tasks a worker at a time: arguments of a long queue needn't all be pickled.
            while len(waiting) < 2 * workers and (item := next(queue, None)) is not None:
                waiting[pool.submit(function, *item[1])] = item[0]
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
    except BaseException:
        close_pool(kill=True)
        raise


def available_workers(configured: int) -> int:
    """The configured number of workers; 0 means one for each core this process may use."""
    if configured:
        return configured
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def close_pool(kill: bool = False) -> None:
    """End the shared workers; with ``kill`` at once, whatever they are doing."""
    global _pool
    if _pool is None:
        return
    pool = _pool[1]
    _pool = None
    processes = list((pool._processes or {}).values())
    if kill:
        for process in processes:
            process.kill()
    pool.shutdown(wait=not kill, cancel_futures=True)


def _shared_pool(workers: int) -> ProcessPoolExecutor:
    global _pool
    if _pool is None or _pool[0] != workers:
        close_pool()
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(
            workers, context, initializer=_watch_parent, initargs=(os.getpid(),)
        )
        _pool = (workers, pool)
        atexit.register(close_pool)
    return _pool[1]


def _watch_parent(parent: int) -> None:
    """In a worker: leave when the parent is gone; let the parent alone answer Ctrl-C."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
