"""The portable GPU kernels on a CPU, under Triton's interpreter.

Triton decides when a kernel is defined whether it is interpreted, so the tests run in a process of
their own; seen from outside they are one test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines.gpu import absent
from limelight.engines.triton import OLDEST
from limelight.reference import State
from tests.cases import CASES, Case
from tests.marks import later, quick
from tests.nonfinite import SIZES, TABLE, Odd, judge

INSIDE = os.environ.get("TRITON_INTERPRET") == "1"
lacking = absent(OLDEST)
pytestmark = pytest.mark.skipif(lacking is not None, reason=str(lacking))
inside = pytest.mark.skipif(not INSIDE, reason="runs under the interpreter, by the test above")
QUICK = {"grouped", "causal", "causal-more-queries", "window", "lengths-zero", "documents-scattered",
         "array-thin", "bias-heads", "everything", "decode", "negative-scale", "even"}  # fmt: skip


@pytest.mark.skipif(INSIDE, reason="this is the outer test")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chosen", ["not slow", later("slow")])
def test_under_the_interpreter(chosen: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    path = os.pathsep.join([str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [*command, "-m", chosen], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


@pytest.fixture(scope="module", autouse=True)
def _patched_once() -> Iterator[None]:
    """Triton turns its language's words into the interpreter's at every call of a helper, which
    takes a third of the time: the launch has done so, and here it is done again only where not."""
    if not INSIDE:
        yield
        return
    from triton import language
    from triton.runtime import interpreter

    patch = interpreter._patch_lang

    @cache
    def words(fn: Any) -> list[Any]:
        both = (language, language.core)
        return [each for each in both if any(value is each for value in fn.__globals__.values())]

    def unless_patched(fn: Any) -> Any:
        return patch(fn) if any(language.core.is_builtin(w.load) for w in words(fn)) else None

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(interpreter, "_patch_lang", unless_patched)
        yield


def _pair(case: Case, dtype: str = "float32", drops: float | None = None) -> tuple[Any, Any]:
    from tests.gpu.judge import calls

    return calls(case, dtype, device="cpu", drops=drops)


def _judge_gradients(
    case: Case,
    dtype: str = "float32",
    *parts: str,
    rows: tuple[str, ...] = (),
    drops: float | None = None,
) -> None:
    """Gradients of a case against the float64 ones: those parts, or all that there are.

    `rows` are the statistics that have gradients too, `drops` the share of the weights that fall.
    """
    import torch

    from limelight.engines import triton
    from tests.gpu.judge import DTYPES, EPS, assert_close, plain_gradients

    call, exact = _pair(case, dtype, drops)
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=bool(rows))
        draw = torch.Generator().manual_seed(0)
        grad = torch.randn(state.output.shape, generator=draw).to(DTYPES[dtype])
        figures = {n: torch.randn(state.logsumexp.shape, generator=draw) for n in rows}
        got = triton.backward(call, state, grad, **figures)
    exactly = {name: figure.double().numpy() for name, figure in figures.items()}
    truth = reference.gradients(exact, grad.double().numpy(), **exactly)
    by_rows = (figures.get(name) for name in ("grad_logsumexp", "grad_entropy"))
    rough = plain_gradients(call, exact, grad, *by_rows)
    # A logit is rounded by as much as it is large, and its weight with it.
    highest = reference.forward(exact).max_logit
    slack = 4 * EPS[dtype] * float(np.abs(highest[np.isfinite(highest)]).max(initial=0.0))
    for part in parts or ("query", "key", "value", "bias", "sinks"):
        if getattr(truth, part) is not None:
            mine, plain = getattr(got, part), getattr(rough, part)
            assert_close(mine, getattr(truth, part), plain, EPS[dtype], part, 3.0, slack)


@inside
@pytest.mark.parametrize("case", [case for case in CASES if case.name in QUICK], ids=str)
def test_forward(case: Case) -> None:
    from limelight.engines import triton
    from tests.gpu.judge import judge_state

    call, exact = _pair(case)
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=True)
    judge_state(state, call, exact, "float32", health=True)


@inside
@pytest.mark.parametrize(
    "mask", [later(None), ll.Causal(), ll.Window(90, 30), later(ll.Causal(align="top-left"))]
)
def test_blocks_with_and_without_a_mask(mask: Any) -> None:
    """Long enough that some blocks are seen whole; what a masked key holds is never mixed in."""
    from limelight.engines import triton
    from tests.gpu.judge import judge_state

    case = Case("many-blocks", batch=(1,), heads=1, nq=211, nk=331, d=8, dv=8, mask=mask)
    call, exact = _pair(case)
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=True)
        judge_state(state, call, exact, "float32", health=True)
        call.value[0, 0, 150] = float("inf")
        spoilt = triton.forward(call, health=True).output[0, 0]
    sees = reference.steps(exact).allowed[0, 0, :, 150]
    assert not spoilt[sees].isfinite().any()
    assert (spoilt[~sees] - state.output[0, 0][~sees]).abs().sum() < 1e-4


@inside
def test_half() -> None:
    from limelight.engines import triton
    from tests.gpu.judge import judge_state

    case = next(case for case in CASES if case.name == "causal")
    call, exact = _pair(case, "float16")
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=True)
    judge_state(state, call, exact, "float16", health=True)


@inside
@pytest.mark.parametrize("name", ["grouped", "causal-more-queries", "window", "lengths-zero",
                                  "documents-scattered", "array-thin", "everything",
                                  "large-logits", "negative-scale"])  # fmt: skip
def test_backward(name: str) -> None:
    _judge_gradients(next(case for case in CASES if case.name == name))


@inside
@pytest.mark.parametrize(
    "name", ["causal-more-queries", later("everything"), later("lengths-zero")]
)
def test_gradients_of_health(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    _judge_gradients(case, rows=("grad_logsumexp", "grad_entropy"))
    _judge_gradients(case, rows=("grad_entropy",))


@inside
def test_the_lowest_bias_is_a_number() -> None:
    """A row whose keys all have the lowest bias, as padding does, attends to all alike."""
    import torch

    from limelight.engines import triton

    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(1, 1, 20, 16) for _ in range(4))
    bias = torch.zeros(20, 20)
    bias[3], grad[0, 0, 3] = torch.finfo(torch.float32).min, 0.0
    call = prepare(q, k, v, bias=bias)
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=True)
        found = triton.backward(call, state, grad)
    exact = prepare(*(x.double().numpy() for x in (q, k, v)), bias=bias.double().numpy())
    truth = reference.gradients(exact, grad.double().numpy())
    assert (state.output[0, 0, 3] - v[0, 0].mean(0)).abs().max() < 1e-5
    assert abs(float(state.entropy[0, 0, 3]) - np.log(20)) < 1e-5
    for name in ("query", "key", "value"):
        assert np.abs(getattr(found, name).numpy() - getattr(truth, name)).max() < 1e-5


NAN = float("nan")
MASKED: dict[str, tuple[int, int, dict[str, Any], tuple[str, int]]] = {
    "padded value": (70, 128, {"mask": ll.Lengths(70)}, ("value", 75)),
    "key under a softcap": (40, 64, {"mask": ll.Causal(), "softcap": 2.0}, ("key", 50)),
    "key behind a bias": (20, 30, {"bias": "column 7"}, ("key", 7)),
    "gradient of a row without keys": (40, 30, {"mask": ll.Causal()}, ("grad", 5)),
}


@inside
@pytest.mark.parametrize("what", MASKED)
def test_one_masked_row_reaches_no_gradient(what: str) -> None:
    """One that is not the first of 16: care must not depend on where it stands."""
    import torch

    from limelight.engines import triton

    nq, nk, options, (name, row) = MASKED[what]
    torch.manual_seed(0)
    given = {
        "query": torch.randn(1, 1, nq, 16), "key": torch.randn(1, 1, nk, 16),
        "value": torch.randn(1, 1, nk, 8), "grad": torch.randn(1, 1, nq, 8),
    }  # fmt: skip
    if "bias" in options:
        bias = torch.zeros(nq, nk)
        bias[:, 7] = float("-inf")
        options = {"bias": bias}
    given[name][0, 0, row] = NAN
    grad = given.pop("grad")
    call = prepare(*given.values(), **options)
    exact_options = {k: x.double().numpy() if k == "bias" else x for k, x in options.items()}
    exact = prepare(*(x.double().numpy() for x in given.values()), **exact_options)
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=True)
        found = triton.backward(call, state, grad)
        truth = reference.gradients(exact, grad.double().numpy())
    for part in ("query", "key", "value"):
        mine, right = getattr(found, part).numpy(), getattr(truth, part)
        assert np.allclose(mine, right, atol=1e-5, equal_nan=True), part


@inside
def test_gradients_of_half_types_at_large_logits() -> None:
    _judge_gradients(Case("steep", nq=90, nk=90, d=20, dv=8, scale=3e5), "float16", "value")


@inside
def test_entropy_past_a_block_of_the_lowest_bias() -> None:
    import torch

    from limelight.engines import triton

    torch.manual_seed(0)
    q, k, sinks = torch.randn(1, 1, 20, 16), torch.randn(1, 1, 100, 16), torch.zeros(1)
    bias = torch.zeros(20, 100)
    bias[:, :70] = torch.finfo(torch.float32).min
    bias[3] = torch.finfo(torch.float32).min  # and this row has the sink alone
    call = prepare(q, k, k, bias=bias, sinks=sinks)
    exact = prepare(*(x.double().numpy() for x in (q, k, k)), bias=bias.double().numpy(),
                    sinks=sinks.double().numpy())  # fmt: skip
    with np.errstate(all="ignore"):
        entropy = triton.forward(call, health=True).entropy.numpy()
    assert np.allclose(entropy, reference.forward(exact).entropy, atol=1e-5)


@inside
def test_nothing_masked_leaks() -> None:
    import torch

    from limelight.engines import triton

    torch.manual_seed(0)
    q, k, v = torch.randn(1, 1, 33, 16), torch.randn(1, 1, 40, 16), torch.randn(1, 1, 40, 8)
    k[0, 0, 35], v[0, 0, 36] = float("nan"), float("inf")
    call = prepare(q, k, v, mask=ll.Causal())
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=True)
        grads = triton.backward(call, state, torch.randn(1, 1, 33, 8))
    assert state.output[0, 0, :28].isfinite().all()
    assert state.output[0, 0, 28:].isnan().all()
    assert grads.query[0, 0, :28].isfinite().all()


@inside
@pytest.mark.parametrize(
    "mask",
    [
        later(None),
        ll.Causal(),
        later(ll.Window(90, 30)),
        later(ll.Causal(align="top-left")),
        ll.Documents([i // 50 for i in range(211)]),
    ],
)
def test_gradients_over_blocks_with_and_without_a_mask(mask: Any) -> None:
    keys = 211 if isinstance(mask, ll.Documents) else 331
    _judge_gradients(
        Case("many-blocks", batch=(1,), heads=2, key_heads=1, nq=211, nk=keys, d=8, dv=8, mask=mask)
    )


@inside
def test_no_gradient_leaks_past_the_mask() -> None:
    """Row 5 sees the keys up to 12 alone: what it holds reaches those, and no other."""
    import torch

    from limelight.engines import triton

    torch.manual_seed(0)
    q, k, v = torch.randn(1, 1, 33, 16), torch.randn(1, 1, 40, 16), torch.randn(1, 1, 40, 8)
    call = prepare(q, k, v, mask=ll.Causal())
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=False)
        grad = torch.randn(1, 1, 33, 8)
        clean = triton.backward(call, state, grad)
        grad[0, 0, 5] = float("inf")
        spoilt = triton.backward(call, state, grad)
        q[0, 0, 5] = float("nan")
        lost = triton.backward(call, triton.forward(call, health=False), torch.ones_like(grad))
    assert not spoilt.value[0, 0, :13].isfinite().any()
    assert torch.allclose(spoilt.value[0, 0, 13:], clean.value[0, 0, 13:], atol=1e-5)
    assert torch.allclose(spoilt.key[0, 0, 13:], clean.key[0, 0, 13:], atol=1e-5)
    assert lost.key[0, 0, :13].isnan().all()
    assert lost.key[0, 0, 13:].isfinite().all()
    assert lost.query[0, 0, 6:].isfinite().all()


DROPPING = {
    (32, 16): Case("small-tiles", heads=2, key_heads=1, batch=(1,), nq=19, nk=67, d=8, dv=8,
                   mask=ll.Causal()),
    (32, 128): Case("wide-tiles", heads=2, batch=(1,), nq=19, nk=131, d=8, dv=8),
    (64, 64): Case("all-kinds", batch=(2,), heads=2, key_heads=1, nq=19, nk=83, d=8, dv=8,
                   sinks=True, softcap=4.0, bias=(2, 1, 83), hidden_bias=0.2,
                   mask=ll.Lengths([83, 29])),
    (16, 32): Case("packed", batch=(1,), heads=4, key_heads=2, nq=2, nk=77, d=8, dv=8,
                   mask=ll.Causal()),
}  # fmt: skip


@inside
@pytest.mark.parametrize("tile", quick(DROPPING), ids=str)
def test_dropout(tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's cells in any tile; health is that of the weights before."""
    from limelight.engines import triton
    from limelight.engines.gpu import blocks, launch
    from tests.gpu.judge import judge_state

    monkeypatch.setattr(launch, "_plans", {})
    monkeypatch.setattr(blocks, "_first", lambda *_: blocks.Blocks(*tile, 4, 1))
    case = DROPPING[tile]
    call, exact = _pair(case, drops=0.3)
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=True)
    judge_state(state, call, exact, "float32", health=True)
    _judge_gradients(case, drops=0.3, rows=("grad_logsumexp", "grad_entropy"))


@inside
def test_dropout_cell_by_cell() -> None:
    """With unit vectors as values the output is the weights; the value's gradient, their sums."""
    import torch

    from limelight.dropout import Dropout, kept
    from limelight.engines import triton

    torch.manual_seed(0)
    nq, nk = 19, 70
    q, k = torch.randn(2, 2, nq, 8), torch.randn(2, 1, nk, 8)
    units = torch.eye(nk).expand(2, 1, nk, nk)
    seed = torch.tensor([(5 << 32) - 7, -2])
    call = prepare(q, k, units, dropout=Dropout(0.3, seed))
    stay = kept(call.dropout, np.arange(4).reshape(2, 2), np.arange(nq), np.arange(nk))
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=False)
        found = triton.backward(call, state, torch.ones_like(state.output))
    np.testing.assert_array_equal(state.output.numpy() != 0, stay)
    sums = state.output.sum((1, 2))[:, None, :, None].expand_as(found.value)
    assert torch.allclose(found.value, sums, atol=1e-5)


@inside
def test_dropout_of_nothing_and_of_everything() -> None:
    import torch

    from limelight.engines import triton

    case = Case("sunk", batch=(1,), heads=1, nq=9, nk=70, d=8, dv=8, sinks=True)
    plain, none, all_of_it = (_pair(case, drops=p)[0] for p in (None, 0.0, 1.0))
    with np.errstate(all="ignore"):
        want = triton.forward(plain, health=True)
        assert torch.equal(triton.forward(none, health=True).output, want.output)
        state = triton.forward(all_of_it, health=True)
        found = triton.backward(all_of_it, state, torch.ones_like(state.output))
    assert not state.output.any()
    assert torch.equal(state.entropy, want.entropy)
    for gradient in (found.query, found.key, found.value, found.sinks):
        assert not gradient.any()


@inside
def test_care_drops_the_same_cells() -> None:
    """A masked infinity has its tile computed again, key by key."""
    import torch

    from limelight.engines import triton

    case = Case("causal", batch=(1,), heads=1, nq=40, nk=40, d=8, dv=8, mask=ll.Causal())
    call, _ = _pair(case, drops=0.3)
    grad = torch.randn(1, 1, 40, 8)
    with np.errstate(all="ignore"):
        clean = triton.forward(call, health=False)
        by = triton.backward(call, clean, grad)
        call.value[0, 0, 30] = float("inf")
        state = triton.forward(call, health=False)
        by_spoilt = triton.backward(call, state, grad)
    assert torch.allclose(state.output[0, 0, :30], clean.output[0, 0, :30], atol=1e-6)
    assert torch.allclose(by_spoilt.query[0, 0, :30], by.query[0, 0, :30], atol=1e-5)


@inside
def test_pictures() -> None:
    import torch

    from limelight.engines import triton
    from limelight.engines.gpu import looking

    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 31, 16), torch.randn(1, 1, 37, 16)
    call = prepare(q, k, k, mask=ll.Causal())
    weights = reference.steps(
        prepare(*(x.double().numpy() for x in (q, k, k)), mask=ll.Causal())
    ).weights
    with np.errstate(all="ignore"):
        state = triton.forward(call, health=False)
        largest = looking.pool(call, state.logsumexp, [0, 9, 31], [0, 20, 37], "max")
        means = looking.pool(call, state.logsumexp, [0, 9, 31], [0, 20, 37], "mean")
        sums = looking.received(call, state.logsumexp)
    assert np.allclose(largest[..., 1, 0], weights[:, :, 9:, :20].max(axis=(-1, -2)), atol=1e-6)
    assert np.allclose(sums, weights.sum(axis=2), atol=1e-5)
    part = weights[:, :, 9:, 20:]
    mean = part.sum(axis=(-1, -2)) / (part > 0).sum(axis=(-1, -2))
    assert np.allclose(means[..., 1, 1], mean, atol=1e-6)
    assert means[..., 0, 1].isnan().all()  # no cell of it is allowed


@inside
def test_engine_says_what_it_cannot() -> None:
    import torch

    from limelight.engines import triton

    q = torch.zeros(1, 1, 2, 600)
    assert "up to 512" in str(triton.cannot(prepare(q, q, q)))
    half = torch.zeros(1, 1, 2, 8, dtype=torch.bfloat16)
    assert "bfloat16" in str(triton.cannot(prepare(half, half, half)))


def _odd() -> list[Any]:
    """The table of numbers that are not finite; what has its own way in the kernels by default."""
    kept = {"-inf in every key", "products of -1e+30, all of one sign", "sinks nan and 0",
            "-inf in a row of the bias", "logits of −inf and sinks"}  # fmt: skip
    assert kept <= {odd.name for odd in TABLE}
    return [odd if odd.name in kept else later(odd) for odd in TABLE]


@inside
@pytest.mark.parametrize("odd", _odd(), ids=str)
def test_numbers_that_are_not_finite(odd: Odd) -> None:
    import torch

    from limelight.engines import triton

    for rows in SIZES.values():
        with np.errstate(all="ignore"):
            call = odd.call(rows, np.float32)
            parts = (call.query, call.key, call.value, call.bias, call.sinks)
            query, key, value, bias, sinks = (
                None if part is None else torch.from_numpy(np.ascontiguousarray(part))
                for part in parts
            )
            given = prepare(
                query, key, value, mask=odd.mask, bias=bias, sinks=sinks, softcap=odd.softcap
            )
            found = triton.forward(given, health=True)
        figures = (found.output, found.logsumexp, found.max_logit, found.entropy)
        judge(odd, call, State(*(figure.numpy() for figure in figures)), np.float32)


@inside
@pytest.mark.parametrize(("page", "window", "softcap"), [(16, None, None), (1, 5, 9.0)])
def test_pages(page: int, window: int | None, softcap: float | None) -> None:
    """By their table, against keys that were brought together; past an end lies anything."""
    import torch

    from limelight.engines import triton
    from limelight.torch.paged import Plan, _together
    from tests.torch.test_paged import memory

    lengths, counts = [13, 4, 47, 150], [3, 1, 40, 1]  # of one token, of few, and of many
    _, key, value, table, _ = memory(page, torch.float32, lengths=lengths)
    query = torch.randn(sum(counts), 6, 16)
    sinks = None if softcap is None else torch.randn(6)
    for group in Plan.of(table, lengths, counts, page, len(query), window).groups:
        own = query[group.tokens].transpose(1, 2)
        rows = [x.flatten(0, 1).transpose(0, 1) for x in (key, value)]
        rest = (group.table, page, group.spans, sinks, -0.4, softcap, True)
        right = _together(own, *rows, *rest)
        rows = [x.clone() for x in rows]
        for pages, end in zip(group.table, group.spans[:, 0, -1, 0, 1].tolist(), strict=True):
            first = pages[min(end // page, len(pages) - 1)] * page
            rows[1][:, first + end % page : first + page if end % page else 0] = torch.nan
        with np.errstate(all="ignore"):
            got = triton.forward_paged(own, *rows, *rest)
        assert got is not None
        for figure in ("output", "logsumexp", "max_logit", "entropy"):
            mine, theirs = getattr(got, figure), getattr(right, figure)
            assert torch.allclose(mine, theirs, atol=1e-4, rtol=1e-4), figure
