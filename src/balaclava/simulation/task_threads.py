"""Tasks on threads of their own, for work that is done elsewhere: on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Answer = TypeVar("Answer")
Task = Callable[[Callable[[], None]], Answer]  # is given a function to call often


class StoppedError(Exception):
    """Raised in a task when another one failed, or on Ctrl-C."""


def run_tasks(tasks: Sequence[Task[Answer]], at_once: int) -> Iterator[tuple[int, Answer]]:
    """The number and the answer of each task, as they come; one at a time, in this thread.

    The first error, Ctrl-C, or an end of the loop over the answers stops all of them: each calls
    the function that it is given, several times a second, and that raises `StoppedError` then.

    >>> sorted(side_by_side([lambda go_on: 1, lambda go_on: 2], 2))
    [(0, 1), (1, 2)]
    """
    if min(at_once, len(tasks)) <= 1:
        for number, task in enumerate(tasks):
            yield number, task(lambda: None)
        return
    end = threading.Event()

    def go_on() -> None:
        if end.is_set():
            raise StoppedError

    executor = ThreadPoolExecutor(max_workers=min(at_once, len(tasks)))
    numbers = {executor.submit(task, go_on): number for number, task in enumerate(tasks)}
    try:
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    finally:
        end.set()
        executor.shutdown(wait=True, cancel_futures=True)
