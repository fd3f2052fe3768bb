"""Tensors for a case of the table, and how an error is judged on a GPU.

Inputs are rounded to the dtype first; the oracle is the float64 reference on the CPU; the error
allowed is twice that of the same formula with every step in that dtype (three times for
gradients), plus the rounding floor of tests/cases.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

import limelight as ll
from limelight import reference
from limelight.call import Call, prepare
from limelight.dropout import Dropout, kept
from limelight.reference import Gradients, State
from tests.cases import CASES, Case

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _sparse(rng: np.random.Generator) -> Any:
    """Whole blocks masked, others full, some ragged."""
    blocks = np.kron(rng.random((8, 8)) < 0.4, np.ones((71, 101), bool))[:517, :773]
    ragged = rng.random((517, 773)) < 0.9
    return np.where(np.arange(517)[:, None] % 128 < 64, blocks, blocks & ragged)


LARGE = [
    Case("large-plain", batch=(1,), heads=2, nq=517, nk=773, d=64, dv=64),
    Case("large-causal", batch=(1,), heads=2, nq=517, nk=773, d=64, dv=64, mask=ll.Causal()),
    Case("large-causal-128", batch=(1,), heads=2, nq=517, nk=517, d=128, dv=128, mask=ll.Causal()),
    Case("large-more-queries", batch=(1,), heads=2, nq=773, nk=517, d=64, dv=64, mask=ll.Causal()),
    Case("large-top-left", batch=(1,), heads=1, nq=517, nk=773, d=128, dv=128,
         mask=ll.Causal(align="top-left")),
    Case("large-window", batch=(1,), heads=2, nq=773, nk=773, d=64, dv=64, mask=ll.Window(130, 7)),
    Case("large-window-causal", batch=(1,), heads=1, nq=1031, nk=1031, d=128, dv=128,
         mask=ll.Causal() & ll.Window(200, None)),
    Case("large-lengths", batch=(3,), heads=2, nq=301, nk=517, d=64, dv=64,
         mask=ll.Lengths([517, 0, 129])),
    Case("large-documents", batch=(1,), heads=2, nq=773, nk=773, d=64, dv=64,
         mask=ll.Documents([0] * 200 + [1] * 3 + [2] * 570) & ll.Causal()),
    Case("large-scattered", batch=(1,), heads=1, nq=301, nk=301, d=64, dv=64,
         mask=lambda rng: ll.Documents(rng.integers(0, 3, 301))),
    Case("large-inverse", batch=(1,), heads=1, nq=517, nk=517, d=64, dv=64,
         mask=~ll.Window(100, 100)),
    Case("large-sparse", batch=(1,), heads=2, nq=517, nk=773, d=64, dv=64, mask=_sparse),
    Case("large-bias", batch=(2,), heads=2, nq=301, nk=389, d=64, dv=64, bias=(1, 2, 301, 389),
         hidden_bias=0.3),
    Case("large-bias-causal", batch=(2,), heads=2, nq=517, nk=648, d=128, dv=128,
         bias=(1, 2, 517, 648), hidden_bias=0.3, mask=ll.Causal()),
    Case("large-bias-tiles", batch=(2,), heads=2, nq=517, nk=648, d=128, dv=128,
         bias=(1, 2, 517, 648), hidden_bias=0.3, mask=ll.Causal()),
    Case("large-bias-softcap", batch=(2,), heads=2, nq=517, nk=520, d=64, dv=64, softcap=5.0,
         bias=(2, 1, 517, 520)),
    Case("large-bias-256", batch=(1,), heads=2, nq=389, nk=520, d=256, dv=256,
         bias=(1, 1, 389, 520), hidden_bias=0.3),
    Case("large-softcap", batch=(1,), heads=2, nq=517, nk=648, d=128, dv=128, softcap=30.0),
    Case("large-grouped", batch=(1,), heads=8, key_heads=2, nq=389, nk=389, d=128, dv=128,
         mask=ll.Causal()),
    Case("large-softcap-sinks", batch=(1,), heads=2, nq=389, nk=389, d=128, dv=128, softcap=5.0,
         sinks=True, spread=5.0, mask=ll.Causal()),
    Case("large-256", batch=(1,), heads=2, nq=389, nk=517, d=256, dv=256, mask=ll.Causal()),
    Case("large-96", batch=(1,), heads=2, nq=389, nk=517, d=96, dv=96, mask=ll.Causal()),
    Case("large-192-128", batch=(1,), heads=2, nq=389, nk=517, d=192, dv=128, mask=ll.Causal()),
    Case("large-64-128", batch=(1,), heads=2, nq=389, nk=517, d=64, dv=128),
    Case("large-steep", batch=(1,), heads=2, nq=389, nk=517, d=64, dv=64, spread=1e4),
    Case("large-decode", batch=(3,), heads=16, key_heads=4, nq=1, nk=4099, d=128, dv=128),
    Case("large-decode-sinks", batch=(2,), heads=8, key_heads=2, nq=3, nk=2053, d=64, dv=64,
         mask=ll.Causal(), sinks=True),
]  # fmt: skip
ALL = [*CASES, *LARGE]
WIDE = [*CASES, *(replace(case, name=f"{case.name}-64", d=64, dv=64) for case in CASES)]


def calls(
    case: Case, dtype: str, device: str = "cuda", drops: float | None = None
) -> tuple[Call, Call]:
    """The case as a call on tensors, and the same numbers as a float64 call for the oracle.

    `drops` is the share of the weights that fall, in both the same cells.
    """
    arrays, options = case.arrays()
    torch_options, exact_options = dict(options), dict(options)
    tensors = [torch.tensor(x).to(DTYPES[dtype]) for x in arrays]
    for name in ("bias", "sinks"):
        if options.get(name) is not None:
            rounded = torch.tensor(options[name]).to(DTYPES[dtype])
            torch_options[name] = rounded.to(device)
            exact_options[name] = rounded.double().numpy()
    if drops is not None:
        seed = torch.tensor([-3, 11])
        torch_options["dropout"] = Dropout(drops, seed.to(device))
        exact_options["dropout"] = Dropout(drops, seed.numpy())
    exact = prepare(*(x.double().numpy() for x in tensors), **exact_options)
    return prepare(*(x.to(device) for x in tensors), **torch_options), exact


def plain_formula(call: Call, exact: Call, wide: torch.dtype) -> State:
    """The same formula, every step rounded to one precision."""
    q, k, v = (x.detach().to(wide) for x in (call.query, call.key, call.value))
    k, v = (x.repeat_interleave(call.group, dim=1) for x in (k, v))
    s = (q @ k.transpose(-1, -2)) * call.scale
    if call.softcap is not None:
        s = call.softcap * torch.tanh(s / call.softcap)
    if call.bias is not None:
        s = s + call.bias.to(wide)
    allowed = torch.tensor(reference.steps(exact).allowed, device=q.device)
    s = torch.where(allowed, s, float("-inf"))
    top = s.amax(-1, keepdim=True) if s.shape[-1] else torch.full_like(s[..., :1], float("-inf"))
    highest = top.squeeze(-1)
    sinks = torch.full((call.query_heads,), float("-inf"), device=q.device, dtype=wide)
    sinks = sinks if call.sinks is None else call.sinks.to(wide)
    sinks = sinks[:, None, None]
    top = torch.maximum(top, sinks)
    top = torch.where(top == float("-inf"), 0.0, top)
    p = torch.exp(s - top)
    extra = torch.exp(sinks - top)
    total = p.sum(-1, keepdim=True) + extra
    weights = p / torch.where(total == 0, 1.0, total)
    logsumexp = (top + torch.log(total)).squeeze(-1)
    log = torch.where(weights > 0, torch.log(weights), 0.0)
    sink = extra / torch.where(total == 0, 1.0, total)
    entropy = -(weights * log).sum(-1) - torch.where(sink > 0, sink * sink.log(), 0.0).squeeze(-1)
    return State(weights * dropping(exact, weights) @ v, logsumexp, highest, entropy)


def dropping(exact: Call, weights: torch.Tensor) -> Any:
    """What dropout multiplies weights [B, Hq, Nq, Nk] with."""
    if exact.dropout is None:
        return 1.0
    heads = np.arange(exact.batch * exact.query_heads).reshape(exact.batch, exact.query_heads)
    stay = kept(exact.dropout, heads, np.arange(exact.queries), np.arange(exact.keys))
    return torch.tensor(stay * exact.dropout.scale).to(weights)


def assert_close(
    got: Any, exact: Any, plain: Any, eps: float, what: str, factor: float = 2.0, slack: Any = 0.0
) -> None:
    got, plain = (x.detach().double().cpu().numpy() for x in (got, plain))
    exact = np.asarray(exact, np.float64)
    assert got.shape == exact.shape, f"{what}: shape {got.shape}, not {exact.shape}"
    assert np.array_equal(np.isnan(got), np.isnan(exact)), f"{what}: NaN in other places"
    infinite = np.isinf(exact)
    assert np.array_equal(got[infinite], exact[infinite]), f"{what}: infinities differ"
    seen = np.isfinite(exact)
    if not seen.any():
        return
    error = np.abs(got[seen] - exact[seen])
    rough = np.nan_to_num(np.abs(plain[seen] - exact[seen]))
    floor = 4 * eps * max(1.0, float(np.abs(exact[seen]).max()))
    slack = np.broadcast_to(slack, exact.shape)[seen]
    for name in ("mean", "max"):
        mine, theirs, more = (float(getattr(x, name)()) for x in (error, rough, slack))
        limit = factor * theirs + floor + more
        assert mine <= limit, f"{what}: {name} error {mine:.3g}, allowed {limit:.3g}"


def judge_state(
    state: State, call: Call, exact: Call, dtype: str, health: bool, tanh: float = 0.0
) -> None:
    """`tanh`: what the engine's is off by, by its documentation."""
    truth = reference.forward(exact)
    plain = plain_formula(call, exact, DTYPES[dtype])
    assert state.output.dtype == DTYPES[dtype]
    assert_close(state.output, truth.output, plain.output, EPS[dtype], "output")
    rows = plain_formula(call, exact, torch.float32)
    for name in ("logsumexp", "max_logit", "entropy") if health else ("logsumexp",):
        figure = getattr(state, name)
        assert figure.dtype == torch.float32
        slack = 0.0 if name != "entropy" else entropy_slack(exact, truth, tanh)
        assert_close(
            figure, getattr(truth, name), getattr(rows, name), EPS["float32"], name, slack=slack
        )


def entropy_slack(exact: Call, truth: State, tanh: float = 0.0) -> Any:
    """What one rounding of each logit does to a row's entropy H: ε·|s|·Σ p·|ln p + H|.

    Tensor cores add in their own order and width, so that a near tie between logits of 10⁴ comes
    out a rounding away from the plain formula, which may by luck have none. Under a softcap, also
    what a tanh does to it that is off by so much.
    """
    p = np.asarray(reference.steps(exact).weights)
    bent = p * np.abs(np.log(np.where(p > 0, p, 1.0)) + truth.entropy[..., None])
    top = np.where(np.isfinite(truth.max_logit), np.abs(truth.max_logit), 0.0)
    off = EPS["float32"] * top + tanh * (exact.softcap or 0.0)
    return np.nan_to_num(off * bent.sum(-1))


def plain_gradients(
    call: Call, exact: Call, grad: Any, by_logsumexp: Any = None, by_entropy: Any = None
) -> Gradients:
    """autograd through the plain formula, every step in the call's own precision."""
    names = [n for n in ("query", "key", "value", "bias", "sinks") if getattr(call, n) is not None]
    leaves = {n: getattr(call, n).detach().clone().requires_grad_() for n in names}
    q, k, v = leaves["query"], leaves["key"], leaves["value"]
    k, v = (x.repeat_interleave(call.group, dim=1) for x in (k, v))
    s = (q @ k.transpose(-1, -2)) * call.scale
    if call.softcap is not None:
        s = call.softcap * torch.tanh(s / call.softcap)
    if call.bias is not None:
        s = s + leaves["bias"]
    allowed = torch.tensor(reference.steps(exact).allowed, device=q.device)
    s = torch.where(allowed & (s > float("-inf")), s, -3e4)
    if call.sinks is not None:
        extra = leaves["sinks"][None, :, None, None].expand(*s.shape[:3], 1)
        s = torch.cat([s, extra], -1)
    weights = torch.softmax(s, -1)
    some = torch.ones_like(allowed[..., :1]) if call.sinks is not None else allowed.any(-1, True)
    rows = [torch.zeros((), device=q.device)]
    if by_logsumexp is not None:
        rows.append((torch.logsumexp(s, -1) * by_logsumexp * some[..., 0]).sum())
    if by_entropy is not None:
        surprise = weights * torch.log(torch.where(weights > 0, weights, 1.0))
        rows.append(-(surprise.sum(-1) * by_entropy * some[..., 0]).sum())
    weights = torch.where(allowed, weights[..., : call.keys], 0.0)
    output = weights * dropping(exact, weights) @ v
    ((output * grad).sum() + sum(rows)).backward()
    return Gradients(**{n: leaves[n].grad for n in names})
