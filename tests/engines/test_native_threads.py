"""Threads: same bits for any number, many callers at once, and life after a fork."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.call import Call, prepare
from limelight.engines import native
from limelight.engines.threads import set_threads
from limelight.errors import ArgumentError
from limelight.reference import State

pytestmark = pytest.mark.skipif(native.missing() is not None, reason=str(native.missing()))


@pytest.fixture(autouse=True)
def default_threads() -> Iterator[None]:
    yield
    set_threads(None)


def _call(nq: int, nk: int, heads: int = 3, **options: Any) -> Call:
    rng = np.random.default_rng(nq)
    return prepare(
        *(rng.normal(size=(2, heads, n, 40)).astype(np.float32) for n in (nq, nk, nk)), **options
    )


def _everything(call: Call) -> list[Any]:
    state = native.forward(call, health=True)
    grads = native.backward(call, state, np.ones_like(state.output))
    picture = native.pool(
        call,
        state.logsumexp,
        np.arange(0, call.queries + 1, max(1, call.queries // 9)),
        np.arange(0, call.keys, 7),
        "mean",
    )
    arrays = [
        *vars(state).values(),
        *vars(grads).values(),
        picture,
        native.received(call, state.logsumexp),
    ]
    return [array for array in arrays if array is not None]


def _same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


CALLS = {
    "rows": lambda: _call(701, 701, mask=ll.Causal()),
    "few rows": lambda: _call(60, 2500, heads=1),
    "decode": lambda: _call(1, 5000, heads=2),
    "bias": lambda: _call(
        300, 200, bias=np.random.default_rng(0).normal(size=(3, 1, 200)), sinks=[0.1, 0.2, 0.3]
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_same_bits_for_any_number_of_threads(name: str) -> None:
    call = CALLS[name]()
    set_threads(1)
    alone = _everything(call)
    for count in (2, 3, 7):
        set_threads(count)
        for one, many in zip(alone, _everything(call), strict=True):
            np.testing.assert_array_equal(one, many)


def test_many_callers_at_once() -> None:
    calls = [_call(150 + 7 * n, 300, mask=ll.Causal()) for n in range(6)]
    expected = [_everything(call) for call in calls]
    wrong: list[int] = []

    def run(n: int) -> None:
        for _ in range(5):
            if not _same(expected[n], _everything(calls[n])):
                wrong.append(n)

    workers = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_works_in_the_child_of_a_fork() -> None:
    call = _call(400, 400)
    set_threads(2)
    expected = _everything(call)  # the parent's pool is warm
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs must not hang the tests
        same = _same(expected, _everything(call))
        os._exit(0 if same and native._native.thread_runtime() == "threads" else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_set_threads() -> None:
    set_threads(3)
    assert native.threads() == 3
    set_threads(None)
    assert native.threads() >= 1
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert native.threads() == 1
    torch.set_num_threads(before)
    beyond = max(64, 8 * (os.cpu_count() or 1)) + 1  # no machine does more with more
    for wrong in (0, -1, beyond, 5000, 1.5, "two"):
        with pytest.raises(ArgumentError, match="threads="):
            set_threads(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["forward", "backward", "pool"])
@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_is_heard_within_a_tenth_of_a_second(
    request: pytest.FixtureRequest, what: str, count: int
) -> None:
    """In calls that would take seconds; the best of a few tries, since other programs run too."""
    length, heads = 16_384, 4
    draw = np.random.default_rng(1).standard_normal((1, heads, length, 64)).astype(np.float32)
    call = prepare(draw, draw, draw)
    zeros = np.zeros((1, heads, length), np.float32)
    edges = np.arange(0, length + 1, length // 16)
    run = {
        "forward": lambda: native.forward(call, health=True),
        "backward": lambda: native.backward(call, State(draw, zeros), draw),
        "pool": lambda: native.pool(call, zeros, edges, edges, "max"),
    }[what]
    set_threads(count)
    # As in a program of its own: a test before this one may have left another handler.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    waits = []
    for _ in range(5):
        sent: list[float] = []

        def interrupt(sent: list[float] = sent) -> None:
            time.sleep(0.15)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run()
        waits.append(time.monotonic() - sent[0])
        thread.join()
        if waits[-1] < 0.1:
            break
    assert min(waits) < 0.1, waits
    small = prepare(*(draw[:, :, :64] for _ in range(3)))  # and afterwards all is as before
    assert np.isfinite(native.forward(small, health=True).entropy).all()
