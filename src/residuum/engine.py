"""Where work runs: on the cores of this machine, one BLAS thread a worker.

Every task computes with a single BLAS thread whatever the number of workers, and results come back in the order of
the tasks, so that the number of workers never changes a result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from residuum.errors import SettingError

Result = TypeVar("Result")


def run_tasks(task: Callable[..., Result], arguments: Iterable[tuple[Any, ...]], workers: int = 1) -> Iterator[Result]:
    """Give `task(*a)` for each a of `arguments`, in order, computed by `workers` processes."""
    if workers == 1:
        for a in arguments:
            with threadpool_limits(1):
                result = task(*a)
            yield result
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
        # No task is begun ahead of its turn: results that wait to be taken are as large as those being made.
        results: Any = Parallel(return_as="generator", pre_dispatch="n_jobs")(delayed(task)(*a) for a in arguments)
        yield from results


def worker_count(workers: int | None) -> int:
    """The number of workers asked for; all cores by default."""
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise SettingError(f"workers is {workers}; expected at least 1.")
    return workers
