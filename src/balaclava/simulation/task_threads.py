"""Run tasks that wait on a GPU, each on its own thread."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Answer = TypeVar("Answer")
Task = Callable[[Callable[[], None]], Answer]  # takes `raise_if_stopped`


class StoppedError(Exception):
    """Raised inside a task when another task failed, or on Ctrl-C."""


def run_tasks(tasks: Sequence[Task[Answer]], threads: int) -> Iterator[tuple[int, Answer]]:
    """Run the tasks and yield each one's index and answer as it finishes.

    The first error, Ctrl-C, or leaving the loop over the answers stops all tasks. Each task must
    call its argument several times a second, which raises `StoppedError` to stop it.

    >>> sorted(run_tasks([lambda raise_if_stopped: 1, lambda raise_if_stopped: 2], 2))
    [(0, 1), (1, 2)]
    """
    if min(threads, len(tasks)) <= 1:
        for number, task in enumerate(tasks):
            yield number, task(lambda: None)
        return
    stopped = threading.Event()

    def raise_if_stopped() -> None:
        if stopped.is_set():
            raise StoppedError

    executor = ThreadPoolExecutor(max_workers=min(threads, len(tasks)))
    numbers = {executor.submit(task, raise_if_stopped): n for n, task in enumerate(tasks)}
    try:
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    finally:
        stopped.set()
        executor.shutdown(wait=True, cancel_futures=True)
