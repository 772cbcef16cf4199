"""The engine: the same results in the same order wherever tasks run, and whatever becomes of a worker."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from residuum.engine import (
    FAN,
    MOST_TASKS,
    TASK_ROWS,
    Engine,
    as_engine,
    cut_into_tasks,
    merge_tree,
    opened_engine,
    reduce_tasks,
    run_tasks,
    tree_height,
)
from residuum.errors import ResiduumError, SettingError


def blas_threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info())


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@given(st.integers(1, 3 * FAN**2))
def test_a_tree_keeps_the_order_of_its_parts(n):
    assert merge_tree(((i,) for i in range(n)), lambda a, b: a + b) == tuple(range(n))


@given(st.integers(1, 3 * FAN**2))
def test_a_tree_holds_no_more_than_it_says(n):
    alive, most = set(), 0

    def parts():
        nonlocal most
        for i in range(n):
            most = max(most, len(alive))
            alive.add((i,))
            yield (i,)

    def merge(a, b):
        alive.difference_update({a, b})
        alive.add(a + b)
        return a + b

    merge_tree(parts(), merge)
    assert most <= tree_height(n)


def test_a_tree_is_no_chain():
    depth = merge_tree((0 for _ in range(FAN**2)), lambda a, b: max(a, b) + 1)
    assert depth == 2 * (FAN - 1) < FAN**2 - 1


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=400))
def test_tasks_hold_everything_once_and_are_neither_small_nor_many(rows):
    tasks = cut_into_tasks(rows)
    assert [i for task in tasks for i in task] == list(range(len(rows)))
    assert len(tasks) <= min(MOST_TASKS, max(1, sum(rows) // TASK_ROWS))


def test_many_rows_make_many_tasks_of_about_the_same_size():
    tasks = cut_into_tasks([TASK_ROWS // 4] * 100)
    sizes = [len(task) for task in tasks]
    assert len(tasks) == 25
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_their_tasks(workers):
    assert list(run_tasks(pow, [(2, n) for n in range(9)], workers)) == [2**n for n in range(9)]


@pytest.mark.parametrize("workers", [1, 2])
def test_groups_are_merged_each_by_itself(workers):
    told = []
    groups = [[(2, n) for n in range(stop)] for stop in (3, 1, 12)]
    assert list(reduce_tasks(pow, groups, int.__add__, workers, lambda *a: told.append(a))) == [7, 1, 2**12 - 1]
    assert told == [a for group in groups for a in group]


def test_a_task_has_one_thread_unless_this_process_does_the_work_alone():
    threads = partial(run_tasks, blas_threads, [()])
    before = blas_threads()
    assert next(threads(workers=1)) == 1
    assert next(threads(workers=None)) == before == blas_threads()


GROWING = """
import time
from residuum.engine import run_tasks
def grow(number, held=[]):
    time.sleep(1.05)  # loky looks at a process' memory once a second
    held.append(bytearray(b"x" * 320_000_000))
    return number
print(list(run_tasks(grow, [(n,) for n in range(8)], 2)))
"""


def test_processes_that_grow_are_replaced_even_where_warnings_are_errors():
    command = [sys.executable, "-W", "error::UserWarning", "-c", GROWING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout == f"{list(range(8))}\n", done.stderr


WORKING = """
import os, sys, time
from pathlib import Path
from residuum.engine import run_tasks

def work(folder, number):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)

list(run_tasks(work, [(sys.argv[1], number) for number in range(2)], 2))
"""


def test_workers_end_soon_after_the_process_that_was_killed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WORKING, str(tmp_path)])
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    process.kill()
    process.wait()
    wait_until(lambda: not any(is_running(int(path.name)) for path in tmp_path.iterdir()))


def wait_until(true, seconds=600):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_process_is_said_in_one_line():
    with pytest.raises(ResiduumError, match="A worker process was killed, perhaps for want of memory"):
        list(run_tasks(die, [(i,) for i in range(4)], 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "spark"}, "There is no engine 'spark'; choose local or dask."),
        ({"scheduler": "tcp://a:1"}, "The scheduler tcp://a:1 is one of Dask; add --engine dask."),
        ({"kind": "dask", "scheduler": "tcp://a:1", "workers": 2}, "give --workers or --scheduler, not both"),
        ({"workers": 0}, "workers is 0; expected a whole number of at least 1."),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(SettingError, match=message), opened_engine(**options):
        pass


def test_without_options_every_command_does_what_is_usual_there():
    with opened_engine() as engine:
        assert engine is None
    assert as_engine(None).alone
    assert as_engine(None, Engine(3)).workers == 3


@pytest.mark.parametrize("workers", [0, -1, 1.5, float("nan"), True, None, "x"])
def test_an_engine_has_a_whole_number_of_workers(workers):
    with pytest.raises(SettingError, match=r"^workers is .+; expected a whole number of at least 1\.$"):
        Engine(workers)


def test_numbers_of_numpy_are_numbers_of_workers():
    assert type(Engine(np.int64(2)).workers) is int
