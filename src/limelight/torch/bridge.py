"""From a call on tensors to an engine and back, and the place where a monitor looks in.

Engines that take tensors get them as they are. The others get NumPy views of them (bfloat16, which
NumPy lacks, goes as float32) and their arrays come back as tensors of the call's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor

from limelight.arrays import as_numpy, output_like
from limelight.call import Call
from limelight.engines import choose
from limelight.reference import Gradients, State

SITE = "limelight_site"  # the attribute of a module's Place, while someone listens
MARK = "limelight@"  # what keys begin with, and names do not
running: list[Any] = []  # modules whose forward is under way, innermost last, while someone listens
# Whether modules have places; a graph that was compiled when they had none is not run then.
listening = False


class Place:
    """What a module's calls are known by: a key, which no other module has.

    It goes through operators and compiled graphs as text. A copy, and what is loaded from a file,
    is another module, and has none: an empty one, which a process without limelight can read.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def __reduce__(self) -> tuple[partial[SimpleNamespace], tuple[()]]:
        return partial(SimpleNamespace, key=""), ()


Pass = tuple[Call, State]  # what was asked, and what came out


class Observer(Protocol):
    """Whoever wants to see the health of every pass, such as a Monitor while it records."""

    def observe(self, site: str, passes: Sequence[Pass]) -> None: ...


observers: list[Observer] = []


def forward(call: Call, engine: str, *, health: bool, site: str = "") -> State:
    """One pass on the engine asked for; observers get its health, whether asked for or not."""
    seen = watched()
    state = compute(call, engine, health=health or seen)
    if seen:
        report(site, [(call, state)])
    return state


def set_on(module: Any, name: str) -> Any:
    """What was set on a module as this attribute, or None.

    A module takes microseconds to say that it has none; what is set on one lies in its dict.
    """
    if torch.compiler.is_compiling():
        return getattr(module, name, None)
    return module.__dict__.get(name)


def key_of(module: Any) -> str:
    """The key of a module that someone listens to; of any other, an empty one."""
    place = set_on(module, SITE)
    return "" if place is None else str(place.key)


def site(given: str = "") -> str:
    """Where a call is made: the key of its module, and its name after a space, if it has one.

    `given` is what the call says of itself: its module's key, or a name. Of others the module is
    the one whose forward is under way.
    """
    if torch.compiler.is_exporting():  # a program is a model of its own
        return "" if given.startswith(MARK) else given
    if given.startswith(MARK) or not listening:
        return given
    return f"{key_of(running[-1]) if running else ''} {given}".strip()


def watched() -> bool:
    """Whether someone wants the health of this pass.

    A pass inside a backward pass is the second run of a checkpointed part: it is not observed, so
    that each row counts once.
    """
    return bool(observers) and torch._C._current_graph_task_id() == -1


def report(given: str, passes: Sequence[Pass]) -> None:
    """Tell the observers what one attention did, in one pass or in several over different rows."""
    where = site(given)
    for observer in tuple(observers):
        observer.observe(where, passes)


def compute(call: Call, engine: str, *, health: bool) -> State:
    """One pass on the engine asked for, unobserved."""
    row = choose(call, engine)
    if row.takes_tensors:
        state: State = row.module.forward(call, health=health)
        return state
    return _tensors(row.module.forward(call.numpy(), health=health), call)


def backward(
    call: Call,
    engine: str,
    state: State,
    by_output: Tensor | None,
    by_logsumexp: Tensor | None = None,
    by_entropy: Tensor | None = None,
    with_bias: bool = True,
) -> Gradients:
    """The gradients by every input of the call, in the inputs' own dtypes."""
    row = choose(call, engine)
    if by_output is None:  # one number for all: no memory, and engines read strides
        by_output = state.output.new_zeros(()).expand(state.output.shape)
    rows = {"grad_logsumexp": by_logsumexp, "grad_entropy": by_entropy}
    if row.takes_tensors:
        grads: Gradients = row.module.backward(call, state, by_output, **rows, with_bias=with_bias)
        return grads
    figures = (state.output, state.logsumexp, None, state.entropy)
    arrays = State(*(as_numpy(figure) for figure in figures))
    given = {name: as_numpy(figure) for name, figure in rows.items()}
    grads = row.module.backward(
        call.numpy(), arrays, as_numpy(by_output), **given, with_bias=with_bias
    )
    return Gradients(*(
        None if gradient is None else torch.from_numpy(gradient).to(given.dtype)
        for gradient, given in (
            (grads.query, call.query), (grads.key, call.key), (grads.value, call.value),
            (grads.bias, call.bias), (grads.sinks, call.sinks),
        )
    ))  # fmt: skip


def _tensors(state: State, call: Call) -> State:
    output = torch.from_numpy(state.output).to(call.query.dtype)
    place = output_like(call.query, call.value_size)
    if place.stride() != output.stride():
        output = place.copy_(output)
    statistics = (state.logsumexp, state.max_logit, state.entropy)
    return State(output, *(None if x is None else torch.from_numpy(x) for x in statistics))
