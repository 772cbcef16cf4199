"""Where work runs: processes of this machine, or the workers of a Dask cluster.

Every task computes with a single BLAS thread wherever it runs, results come back in the order of the tasks, and sums
are merged along a tree that the tasks alone decide. So neither the number of workers, nor their order, nor the loss of
one changes a result.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from itertools import chain, pairwise
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from residuum.errors import ResiduumError, SettingError
from residuum.settings import whole_number

if TYPE_CHECKING:
    from distributed import Client, Future

Result = TypeVar("Result")

FAN = 8
"""Parts that are merged one after another before their sum goes up a level of the tree."""
TASK_ROWS = 8_192
"""The fewest rows that are worth a task of their own."""
MOST_TASKS = FAN**2
"""The most tasks that one sum is cut into, so that merging stays small beside them."""
AHEAD = 2
"""Tasks given to a cluster for each of its threads, so that none waits for the next."""
MAPPED, HELD = 32 << 20, 64 << 20
"""Bytes from which on a tensor has pages of its own, and freed bytes that a worker keeps for the next ones."""
WATCH = 1.0
"""Seconds after which a worker looks again whether the process that it works for is there."""
SECONDS = 30
"""How long a scheduler, or the first worker, may take to answer."""


@dataclass(frozen=True, eq=False)
class Engine:
    """Where tasks run: in `workers` processes of this machine or, with a `client`, on that Dask cluster.

    The workers of a cluster read and write the folders that they are told, so these lie where all can see them.
    `threads` are those of a task in this process; None leaves it those that the process has.
    """

    workers: int = 1
    client: Client | None = None
    threads: int | None = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", whole_number("workers", self.workers, at_least=1))

    @property
    def alone(self) -> bool:
        """Whether everything runs in this process."""
        return self.client is None and self.workers == 1

    @property
    def width(self) -> int:
        """How many tasks run at once."""
        if self.client is None:
            return self.workers
        try:
            threads: Any = self.client.nthreads()  # a coroutine only where the client is asynchronous
        except OSError as error:  # the scheduler is asked, and may have ended since the last task
            raise _lost_scheduler() from error
        return max(1, sum(threads.values()))


HERE = Engine(threads=None)
"""This process with all of its threads: quickest where there is little to do, and least memory."""
Workers = int | Engine | None
"""What commands take: a number of processes, an engine, or None for what is usual there."""


@contextmanager
def opened_engine(
    kind: str = "local", workers: int | None = None, scheduler: str | None = None
) -> Iterator[Engine | None]:
    """The engine that options ask for, as long as it is needed; None where they ask for nothing.

    `kind` is `local` or `dask`. A Dask engine without the address of a `scheduler` is a cluster of `workers` processes
    on this machine, for this run alone.
    """
    if kind not in ("local", "dask"):
        raise SettingError(f"There is no engine {kind!r}; choose local or dask.")
    if kind == "local":
        if scheduler is not None:
            raise SettingError(f"The scheduler {scheduler} is one of Dask; add --engine dask.")
        yield None if workers is None else Engine(workers)
        return
    if scheduler is not None and workers is not None:
        raise SettingError("A cluster has the workers that it has; give --workers or --scheduler, not both.")
    with _connected(worker_count(workers), scheduler) as client:
        yield Engine(client=client)


def as_engine(workers: Workers, usual: Engine = HERE) -> Engine:
    """An engine from what a command was given, and what is usual there."""
    if workers is None:
        return usual
    return workers if isinstance(workers, Engine) else Engine(workers)


def worker_count(workers: int | None) -> int:
    """The number of workers asked for; all cores by default."""
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Engine(workers).workers


def run_tasks(
    task: Callable[..., Result], arguments: Iterable[tuple[Any, ...]], workers: Workers = 1
) -> Iterator[Result]:
    """Give `task(*a)` for each a of `arguments`, in order."""
    engine = as_engine(workers)
    if engine.client is not None:
        submit = _submitter(engine.client)
        yield from _in_order(engine.client, ((submit(task, *a), 1) for a in arguments))
    elif engine.workers == 1:
        yield from (_limited(engine.threads, task, *a) for a in arguments)
    else:
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky.process_executor import BrokenProcessPool

        # Processes that have grown or waited long are replaced, which is meant. Where warnings are errors, the thread
        # that gives notice of it would die and leave all others waiting.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        start: dict[str, Any] = {"initializer": _become_worker, "initargs": (os.getpid(),)}
        with parallel_config("loky", n_jobs=engine.workers, inner_max_num_threads=1, **start):
            # No task is begun ahead of its turn: results that wait to be taken are as large as those being made.
            results: Any = Parallel(return_as="generator", pre_dispatch="n_jobs")(delayed(task)(*a) for a in arguments)
            try:
                yield from results
            except BrokenProcessPool as error:
                raise ResiduumError(
                    "A worker process was killed, perhaps for want of memory. Run the same command again, with fewer "
                    "--workers or less --max-memory; what was finished is kept."
                ) from error


def reduce_tasks(
    task: Callable[..., Result],
    groups: Sequence[Sequence[tuple[Any, ...]]],
    merge: Callable[[Result, Result], Result],
    workers: Workers = 1,
    finished: Callable[..., object] = lambda *a: None,
) -> Iterator[Result]:
    """For each group of arguments, in order, the results of its tasks merged to one.

    The merging, too, is done by a cluster's workers: of each group only the sum travels. `finished(*a)` is called
    after each task (on a cluster: for all tasks of a group once its sum is there).
    """
    engine = as_engine(workers)
    if engine.client is None:
        results = run_tasks(task, chain.from_iterable(groups), engine)
        for group in groups:
            yield merge_tree(_told(group, results, finished), partial(_limited, engine.threads, merge))
        return
    submit = _submitter(engine.client)
    roots = ((merge_tree([submit(task, *a) for a in group], partial(submit, merge)), len(group)) for group in groups)
    for group, total in zip(groups, _in_order(engine.client, roots), strict=True):
        for a in group:
            finished(*a)
        yield total


def merge_tree(parts: Iterable[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge parts along a tree that their number alone decides: runs of `FAN`, then runs of these, and so on.

    Of each level only one unfinished run is held, so that n parts never need more than `tree_height(n)` sums.
    """
    levels: list[tuple[Any, int]] = []  # the run of each level, and how many it has merged
    for part in parts:
        carried, level = part, 0
        while level < len(levels) and levels[level][1]:
            held, size = levels[level]
            carried, size = merge(held, carried), size + 1
            if size < FAN:
                levels[level] = (carried, size)
                break
            levels[level] = (None, 0)
            level += 1
        else:
            levels[level : level + 1] = [(carried, 1)]
    runs = [run for run, size in levels if size]
    assert runs, "a tree has at least one part"
    total = runs[0]
    for run in runs[1:]:
        total = merge(run, total)
    return total


def tree_height(n: int) -> int:
    """How many unfinished runs `merge_tree` holds at most beside the part that comes: 0 for a single part."""
    height = 0
    while n > 1:
        n, height = -(-n // FAN), height + 1
    return height


def cut_into_tasks(rows: Sequence[int]) -> list[range]:
    """Cut things with so many rows each into runs that are worth a task: a function of the rows alone."""
    ends = np.cumsum(rows)
    pieces = max(1, min(MOST_TASKS, int(ends[-1]) // TASK_ROWS))
    targets = ends[-1] * np.arange(1, pieces) / pieces
    cuts = sorted({0, len(ends), *(np.searchsorted(ends, targets) + 1).tolist()})
    return [range(a, b) for a, b in pairwise(cuts)]


def _limited(threads: int | None, task: Callable[..., Result], *arguments: Any) -> Result:
    with threadpool_limits(threads):
        return task(*arguments)


def _told(
    group: Sequence[tuple[Any, ...]], results: Iterator[Result], finished: Callable[..., object]
) -> Iterator[Result]:
    for a in group:
        yield next(results)
        finished(*a)


def _become_worker(owner: int) -> None:
    """Let this worker use freed memory again, and end soon after its owner: one that was killed cannot tell it to."""
    _keep_freed_memory()

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(WATCH)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@cache
def _keep_freed_memory() -> None:
    """Let this process use freed memory again; the sizes are those to which glibc grows by itself.

    Dask has its workers, and all that are begun beside them, give back at once whatever is freed
    (MALLOC_TRIM_THRESHOLD_). Each tensor's pages would be new ones, which makes reading a text half as long again.
    """
    with suppress(AttributeError, OSError, TypeError):  # another libc has other ways
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, MAPPED)  # M_MMAP_THRESHOLD
        mallopt(-1, HELD)  # M_TRIM_THRESHOLD


def _submitter(client: Client) -> Callable[..., Future]:
    return partial(client.submit, _on_worker, pure=False)


def _on_worker(task: Callable[..., Result], *arguments: Any) -> Result:
    # Not taken back afterwards: another thread of this worker may be in the middle of a task.
    threadpool_limits(1)
    _keep_freed_memory()
    return task(*arguments)


def _in_order(client: Client, submitted: Iterable[tuple[Future, int]]) -> Iterator[Any]:
    """The results of futures (of so many tasks each) in order; as many are under way as keep the cluster busy."""
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    waiting: deque[tuple[Future, int]] = deque()
    try:
        for future, size in submitted:
            waiting.append((future, size))
            while sum(n for _, n in waiting) > AHEAD * Engine(client=client).width:
                yield waiting.popleft()[0].result()
        while waiting:
            yield waiting.popleft()[0].result()
    except KilledWorker as error:
        raise ResiduumError(
            f"Several workers of the cluster died of the same task ({error}), perhaps for want of memory. Give them "
            "more; what was finished is kept."
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise _lost_scheduler() from error
    finally:
        if client.status == "running":
            client.cancel([future for future, _ in waiting])


def _lost_scheduler() -> ResiduumError:
    """The one line of a run whose scheduler is gone; Dask's threads say no more."""
    _quiet_cluster()
    return ResiduumError(
        "The Dask scheduler ended, or cannot be reached any more. Start it and its workers, and run the same "
        "command again; what was finished is kept."
    )


def _quiet_cluster() -> None:
    """Keep what Dask's threads say of a connection that is lost off the screen: it is hundreds of lines."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextmanager
def _connected(workers: int, scheduler: str | None) -> Iterator[Client]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise SettingError("The engine dask needs Dask; install it with: pip install 'residuum[dask]'.") from None
    if scheduler is None:
        settings: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1}
        settings["dashboard_address"] = "127.0.0.1:0"  # any free port: another cluster may have the usual one
        # What a worker may hold is for --max-memory to say; Dask would kill it half-way.
        with LocalCluster(processes=True, memory_limit=None, **settings) as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(scheduler, timeout=SECONDS)
    except (OSError, ValueError, TypeError) as error:  # the last for tls:// without certificates
        raise SettingError(
            f"No Dask scheduler answers at {scheduler} ({error}); start one, or give the address that it printed."
        ) from None
    _quiet_cluster()  # what goes wrong is said by an error
    with client:
        try:
            client.wait_for_workers(1, timeout=SECONDS)
            found: Any = client.run(_version, on_error="return")
        except TimeoutError:
            raise SettingError(
                f"The scheduler {scheduler} has no workers; start some with: dask worker ADDRESS."
            ) from None
        own = _version()
        for worker, said in found.items():
            if said != own:
                raise SettingError(
                    f"Worker {worker} answers {said!r} for its version of residuum, and this one is {own}; install "
                    "the same everywhere."
                )
        yield client


def _version() -> str:
    return version("residuum")
