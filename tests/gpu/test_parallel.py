"""Context parallel on GPUs: NCCL over the GPUs there are, and Gloo with two ranks on one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import limelight as ll
from limelight.capture import Capture, Site
from limelight.torch import ContextParallel, gather_capture, gather_health, shard
from tests.torch.ranks import Pool, good
from tests.torch.sharded import CASES, Case, many, one_device

SMALL = [
    case
    for case in CASES
    if case.name
    in ("causal", "lengths zero", "documents causal", "array", "bias", "sinks", "softcap")
]
LONG = [
    Case("long", length=1031, batch=1, size=64, value_size=64, mask=ll.Causal()),
    Case(
        "long window",
        length=773,
        batch=1,
        size=128,
        value_size=128,
        mask=ll.Causal() & ll.Window(200, None),
    ),
]


@pytest.fixture(scope="module", params=["nccl", "gloo"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """One rank a GPU with NCCL, which takes no two on one; with Gloo two ranks that share."""
    if request.param == "nccl" and not dist.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    ranks = torch.cuda.device_count() if request.param == "nccl" else 2
    pool = Pool(ranks, timeout=120.0, backend=request.param, gpus=True)
    yield pool
    pool.close()


@pytest.mark.parametrize(("layout", "exchange"), [("zigzag", "ring"), ("zigzag", "gather")])
@pytest.mark.parametrize(("case", "dtype"), [*((case, torch.float32) for case in SMALL), *((case, torch.bfloat16) for case in LONG)],
                         ids=lambda x: x.name if isinstance(x, Case) else str(x))  # fmt: skip
def test_the_same_as_one_gpu(
    case: Case, dtype: torch.dtype, layout: str, exchange: str, pool: Pool
) -> None:
    """Output, health and gradients: at most twice one GPU's distance from float64."""
    exact = one_device(case, dtype, to=torch.float64)
    alone = one_device(case, dtype, to="cuda")
    found = good(pool.run(many, case, dtype, layout, exchange, "cuda"))[0]
    assert found.keys() == exact.keys()
    for name, right in exact.items():
        mine, theirs = (x[name].cpu().double() for x in (found, alone))
        finite = right.isfinite()
        assert torch.equal(mine[~finite], right[~finite].double()), f"{name}: infinities differ"
        if not finite.any():
            continue
        error, floor = (float((x - right)[finite].abs().max()) for x in (mine, theirs))
        eps = torch.finfo(
            found[name].dtype if found[name].is_floating_point() else torch.float32
        ).eps
        limit = 2 * floor + 8 * eps * float(right[finite].abs().max())
        assert error <= limit, (
            f"{name}: error {error:.3g}, allowed {limit:.3g}, one GPU {floor:.3g}"
        )


def put_together(group: object) -> tuple[float, bool]:
    """Health of all rows, and a capture that was brought to the host before it is gathered."""
    rng = torch.Generator().manual_seed(1)
    query, key = (torch.randn(1, 2, 29, 64, generator=rng).cuda() for _ in range(2))
    own = [shard(x, 2, group=group) for x in (query, key, key)]
    health = gather_health(
        ContextParallel(group).inspect(*own, mask=ll.Causal()).health, group=group
    )
    want = ll.inspect(query, key, key, mask=ll.Causal()).health
    site = Site("a", 0, *(x.cpu().numpy() for x in own[:2]))
    whole = gather_capture(Capture((site,)), group=group, mask=ll.Causal())
    same = whole is None or bool(torch.equal(torch.from_numpy(whole["a"].query), query.cpu()))
    return float((health.entropy - want.entropy).abs().max()), same


def test_health_and_captures_gather(pool: Pool) -> None:
    for error, same in good(pool.run(put_together)):
        assert error < 1e-5
        assert same
