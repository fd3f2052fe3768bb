"""Context parallel on 2, 3 and 4 Gloo ranks: output, health and gradients of one device."""

from __future__ import annotations

import json
import os
import re
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from bench.ranks import Job
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import limelight as ll
import limelight.torch
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError, LimelightError, ShapeError
from limelight.torch import (
    ContextParallel,
    Monitor,
    RankError,
    bridge,
    gather_capture,
    gather_health,
    positions,
    shard,
    unshard,
)
from limelight.torch.parallel import exchange
from limelight.torch.parallel.sharding import LAYOUTS, Layout
from tests.torch.ranks import Pool, good, on
from tests.torch.sharded import CASES, Case, many, one_device


@pytest.mark.parametrize(
    ("layout", "exchange"), [("zigzag", "ring"), ("contiguous", "ring"), ("zigzag", "gather")]
)
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_as_one_device(case: Case, ranks: int, layout: str, exchange: str) -> None:
    want = one_device(case, torch.float64)
    found = on(ranks, many, case, torch.float64, layout, exchange)[0]
    assert found.keys() == want.keys()
    for name, right in want.items():
        assert torch.allclose(found[name], right, rtol=1e-12, atol=1e-12), name


@pytest.mark.parametrize(
    ("dtype", "shift"), [(torch.float32, 0.0), (torch.bfloat16, 0.0), (torch.float32, 64.0)]
)
def test_low_precision_costs_no_more_than_on_one_device(dtype: torch.dtype, shift: float) -> None:
    """Parts are rounded once more before they merge: at most twice the error of one pass.

    With a shift of 64 the logits are around 1,400, where a logsumexp has few digits left.
    """
    case = Case("causal", length=101, mask=ll.Causal(), shift=shift)
    exact = one_device(case, dtype, to=torch.float64)
    alone, found = one_device(case, dtype), on(3, many, case, dtype, "zigzag", "ring")[0]
    # a logit's rounding is a weight's error, and gradients multiply it by the size of the keys
    eps = torch.finfo(dtype).eps * max(1.0, shift**2 / 8**0.5) * max(1.0, shift / 8**0.5)
    for name in ("output", "grad query", "grad key", "grad value"):
        right = exact[name]
        error, floor = ((x[name].double() - right).abs().max() for x in (found, alone))
        assert error <= 2 * floor + 4 * eps * right.abs().max(), name


def count_messages(group: Any, length: int, layout: str, mask: Any) -> dict[str, tuple[int, int]]:
    sent: list[int] = []
    original = dist.batch_isend_irecv

    def counting(ops: Any) -> Any:
        sent.extend(op.tensor.nbytes for op in ops if op.op is dist.isend)
        return original(ops)

    dist.batch_isend_irecv = counting
    try:
        query, key, value = (
            shard(torch.randn(2, h, length, 8), 2, group=group, layout=layout).requires_grad_()
            for h in (4, 2, 2)
        )
        output = ContextParallel(group, layout, "ring").attention(query, key, value, mask=mask)
        forward = len(sent), sum(sent)
        sent.clear()
        output.sum().backward()
        return {"forward": forward, "backward": (len(sent), sum(sent))}
    finally:
        dist.batch_isend_irecv = original


def ring_traffic(
    sizes: Sequence[int], rank: int, hops: int, row: int
) -> dict[str, tuple[int, int]]:
    """Messages and bytes of one rank; a position's keys and values take `row` bytes, as do their gradients."""
    held = [sizes[(rank - hop) % len(sizes)] for hop in range(hops + 1)]
    forward = sum(n > 0 for n in held[:hops]), sum(held[:hops]) * row
    follow = (
        held if hops else []
    )  # sums of gradients, one hop behind, which go home from where they end
    return {
        "forward": forward,
        "backward": (forward[0] + sum(n > 0 for n in follow), forward[1] + sum(follow) * row),
    }


@pytest.mark.parametrize(("layout", "mask", "hops"), [
    ("zigzag", None, {2: 1, 3: 2, 4: 3}),
    ("zigzag", ll.Causal(), {2: 1, 3: 2, 4: 3}),
    ("contiguous", ll.Causal() & ll.Window(4, None), {2: 1, 3: 1, 4: 1}),  # only the shard before has near keys
    ("contiguous", ll.Documents(np.arange(48) // 12) & ll.Causal(), {2: 0, 4: 0}),
])  # fmt: skip
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("length", [48, 37])
def test_messages_and_bytes_are_those_of_the_formulas(
    length: int, ranks: int, layout: str, mask: Any, hops: Any
) -> None:
    if ranks not in hops or (hops[ranks] == 0 and length != 48):
        pytest.skip("this cut goes through a document")
    counted = on(ranks, count_messages, length, layout, mask)
    row = (
        2 * 2 * (8 + 8) * 4
    )  # batch × key heads × sizes × bytes of float32; gradients travel as float32 too
    sizes = Layout(ranks, layout).sizes(length)
    for rank, found in enumerate(counted):
        assert found == ring_traffic(sizes, rank, hops[ranks], row)
    if length == 48 and mask is None:  # equal shards: the formulas as the docs print them
        job = Job(length, ranks, heads=4, key_heads=2, head_size=8, batch=2, itemsize=4)
        assert counted[0]["forward"] == (ranks - 1, (ranks - 1) * job.shard_bytes)
        assert counted[0]["backward"] == (
            2 * ranks - 1,
            (ranks - 1) * job.shard_bytes + ranks * job.gradient_bytes,
        )


def count_collectives(group: Any, length: int) -> dict[str, Any]:
    """What leaves this rank in collectives: its own part goes to every other rank."""
    sent: list[int] = []
    others = dist.get_world_size(group) - 1
    all_gather, reduce_scatter = dist.all_gather, exchange._reduce_scatter

    def counting_gather(parts: Any, own: torch.Tensor, **options: Any) -> Any:
        sent.append(others * own.nbytes)
        return all_gather(parts, own, **options)

    def counting_reduce(own: torch.Tensor, rows: torch.Tensor, **options: Any) -> Any:
        sent.append(rows.nbytes - own.nbytes)  # all rows but this rank's own
        return reduce_scatter(own, rows, **options)

    dist.all_gather, exchange._reduce_scatter = counting_gather, counting_reduce
    try:
        query, key, value = (
            shard(torch.randn(2, h, length, 8), 2, group=group).requires_grad_() for h in (4, 2, 2)
        )
        output = ContextParallel(group, exchange="gather").attention(
            query, key, value, mask=ll.Causal()
        )
        notes, *forward = sent
        sent.clear()
        output.sum().backward()
        return {
            "notes": notes,
            "forward": (len(forward), sum(forward)),
            "backward": (len(sent), sum(sent)),
        }
    finally:
        dist.all_gather, exchange._reduce_scatter = all_gather, reduce_scatter


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("length", [48, 37])
def test_collectives_and_bytes_are_those_of_the_formulas(length: int, ranks: int) -> None:
    row = 2 * 2 * (8 + 8) * 4  # batch × key heads × sizes × bytes of float32
    sent = (
        (ranks - 1) * max(Layout(ranks).sizes(length)) * row
    )  # the keys and values, and later their gradients
    forward, backward = (1, sent), (2, 2 * sent)
    notes = (ranks - 1) * 20 * 8  # the 20 integers in which the ranks compare shapes and options
    for found in on(ranks, count_collectives, length):
        assert found == {"notes": notes, "forward": forward, "backward": backward}
    if length == 48:  # equal shards: the formulas as the docs print them
        job = Job(length, ranks, heads=4, key_heads=2, head_size=8, batch=2, itemsize=4)
        assert forward == (1, (ranks - 1) * job.shard_bytes)
        assert backward == (2, (ranks - 1) * (job.shard_bytes + job.gradient_bytes))


def carriers(group: Any) -> list[str]:
    place, original = exchange.Ring.of(group), dist.get_backend_config
    found = [str(place.carrier(torch.device(name))) for name in ("cpu", "cuda:1", "meta")]
    dist.get_backend_config, now = lambda _: "cpu:gloo,cuda:nccl", exchange._current
    try:
        found += [str(place.carrier(torch.device(name))) for name in ("cpu", "cuda:1")]
        dist.get_backend_config = lambda _: "cuda:nccl"
        exchange._current = lambda kind: torch.device(kind, 3)
        found += [str(place.carrier(torch.device(name))) for name in ("cpu", "cuda:1")]
    finally:
        dist.get_backend_config, exchange._current = original, now
    return found


def test_messages_lie_where_the_group_can_take_them() -> None:
    gloo, both, nccl = ["cpu", "cpu", "cpu"], ["cpu", "cuda:1"], ["cuda:3", "cuda:1"]
    assert on(2, carriers) == [[*gloo, *both, *nccl]] * 2


class Live(TorchDispatchMode):
    """The most bytes that tensors made inside hold at a time, and the largest of them."""

    def __init__(self, *given: torch.Tensor) -> None:
        super().__init__()
        self.now = self.most = self.largest = 0
        self.known = {tensor.untyped_storage()._cdata for tensor in given}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.known:
                    self.known.add(storage._cdata)
                    size = storage.nbytes()
                    self.now, self.largest = self.now + size, max(self.largest, size)
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self.free, storage._cdata, size)
        return result

    def free(self, at: int, size: int) -> None:
        self.known.discard(at)
        self.now -= size


def peak_memory(group: Any, exchange: str) -> dict[str, int]:
    query = torch.randn(1, 1, 16, 64, requires_grad=True)  # few queries: what counts is the keys
    key, value = (torch.randn(1, 1, 1024, 64, requires_grad=True) for _ in range(2))
    cp = ContextParallel(group, exchange=exchange)
    with Live(query, key, value) as forward:
        output = cp.attention(query, key, value)
    direction = torch.ones_like(output)
    with Live(query, key, value, output, direction) as backward:
        output.backward(direction)
    return {
        "forward": forward.most,
        "backward": backward.most,
        "largest": max(forward.largest, backward.largest),
    }


def test_no_rank_holds_all_keys_unless_it_gathers() -> None:
    job = Job(4096, 4, heads=1, key_heads=1, head_size=64, itemsize=4, causal=False)
    whole = 4 * job.shard_bytes
    slack = 0.5 * job.shard_bytes  # rows of 16 queries, and an engine's gradients of one chunk
    for found in on(4, peak_memory, "ring"):
        forward, backward = job.memory("ring")
        assert found["forward"] <= forward + slack
        assert found["backward"] <= backward + 2 * slack
        assert found["largest"] <= job.shard_bytes  # no tensor is longer than one rank's share
        assert found["forward"] < whole
    for found in on(4, peak_memory, "gather"):
        assert whole <= found["forward"] <= job.memory("gather")[0] + slack
        # Gloo's own thread may hold what was gathered for a moment longer.
        assert found["backward"] <= job.memory("gather")[1] + whole + 2 * slack


def wrong_shards(group: Any, what: str) -> str:
    rank = dist.get_rank(group)
    query, key = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    cp = ContextParallel(group)
    if what == "length" and rank == 1:
        query = query[:, :, :3]
    if what == "heads" and rank == 1:
        query, key = (x.repeat(1, 2, 1, 1) for x in (query, key))
    if what == "dtype" and rank == 1:
        query, key = query.double(), key.double()
    if what == "own" and rank == 1:
        query = query[0]
    if what == "layout" and rank == 1:
        cp = ContextParallel(group, layout="contiguous")
    if what == "exchange" and rank == 1:
        cp = ContextParallel(group, exchange="ring")
    options: dict[str, Any] = {}
    if what == "bias" and rank == 1:
        options["bias"] = torch.zeros(12, 12)
    if what == "mask":
        options["mask"] = ll.Causal() if rank == 1 else ll.Window(2, 0)
    if what == "option" and rank == 1:
        options["softcap"] = -1.0
    if what == "strange" and rank == 1:
        options["sinks"] = ["x"]
    if what == "list" and rank == 1:
        query = query.tolist()
    if what == "empty bias":
        options["bias"] = torch.zeros(1, 1, 0 if rank == 1 else 4, 12)
    try:
        cp.attention(query, key, key, **options)
    except (LimelightError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize(("what", "message"), [
    ("length", "ShapeError: the ranks hold 4, 3, 4 queries, but a zigzag layout of 11 over 3 ranks has"),
    ("heads", "ShapeError: the shards do not fit together: rank 0 has query \\(1, 2, 4, 8\\).*rank 1 has query \\(1, 4, 4, 8\\)"),
    ("dtype", "ShapeError: the shards do not fit together: .*float32.*float64"),
    ("layout", "ShapeError: the shards do not fit together: .*zigzag.*contiguous"),
    ("exchange", "ShapeError: the shards do not fit together: .*exchange auto.*exchange ring"),
    ("bias", "ShapeError: the shards do not fit together: .*no bias.*a bias \\(1, 1, 12, 12\\)"),
    ("empty bias", "ShapeError: the bias of rank 1 has shape \\(1, 1, 0, 12\\)"),
    ("mask", "ArgumentError: rank 0 and rank 1 were given different options.*this one has mask=(Window|Causal)"),
    ("own", "RankError: rank 1 could not start"),
    ("option", "RankError: rank 1 could not start"),
    ("strange", "RankError: rank 1 could not start"),
    ("list", "RankError: rank 1 could not start"),
])  # fmt: skip
def test_shards_that_do_not_fit_are_one_error_on_every_rank(what: str, message: str) -> None:
    answers = on(3, wrong_shards, what)
    for rank, answer in enumerate(answers):
        if what == "own" and rank == 1:
            assert answer.startswith(
                "ShapeError: query has shape (2, 4, 8): context_parallel takes four axes"
            )
        elif what == "option" and rank == 1:
            assert answer.startswith("ArgumentError: softcap=-1.0: it bounds the logits")
        elif what == "strange" and rank == 1:
            assert answer.startswith("DtypeError: sinks has dtype <U1")
        elif what == "list" and rank == 1:
            assert answer.startswith(
                "DtypeError: query is a list: context_parallel takes torch tensors"
            )
        else:
            assert re.match(message, answer), answer


def wrong_parts(group: Any) -> None:
    rank, outside = dist.get_rank(group), dist.new_group([0])
    with pytest.raises(
        ShapeError, match=r"parts do not fit together: this one has positions of shape \((3|4|5),\)"
    ):
        unshard(torch.ones(2, 3 + rank), 0, group=group)
    with pytest.raises(
        ShapeError, match="the ranks hold 2, 5, 8 positions, but a zigzag layout of 15"
    ):
        unshard(torch.ones(2 + 3 * rank), 0, group=group)
    site = Site("a", 0, *np.ones((2, 1, 1, 4, 8), np.float32))
    with pytest.raises(ArgumentError, match=r"rank 0 has 1 \(a\), and rank 1 has 2 \(a, a\)"):
        gather_capture(Capture((site,) * (1 + rank)), group=group)
    if rank:
        with pytest.raises(ArgumentError, match=f"rank {rank} is not one of this group's"):
            shard(torch.ones(3), 0, group=outside)
    for mistake, message in (
        (lambda: shard(np.ones(3), 0, group=group), "only torch tensors are cut over ranks"),  # type: ignore[arg-type]
        (lambda: shard(torch.ones(3), 1, group=group), "dim=1: a tensor of shape"),
        (lambda: positions(-1, group=group), "length=-1: give the whole sequence's"),
        (lambda: shard(torch.ones(3), 0, group="world"), "group='world': give a process group"),
        (lambda: shard(torch.ones(3), 0, mesh="world"), "mesh='world': give one dimension"),
    ):
        with pytest.raises(LimelightError, match=message):
            mistake()


def test_parts_that_do_not_fit_are_told_on_every_rank() -> None:
    pool = Pool(3)
    try:
        good(pool.run(wrong_parts))
    finally:
        pool.close()


TIMEOUT = 3.0  # seconds: more than a busy machine keeps a rank waiting


def fail_in_the_middle(group: Any, how: str, folder: Path) -> str:
    """Rank 1 fails once all have compared what they hold and begun to exchange it."""
    rank, original = dist.get_rank(group), exchange.Ring.start
    key = torch.randn(1, 1, 400, 64)
    parallel = ContextParallel(group, exchange="ring")
    parallel.attention(key, key, key)  # all are here, and have loaded what they need

    def begin(self: Any, *arguments: Any, **options: Any) -> Any:
        (folder / str(rank)).touch()
        if rank == 1:
            while len(list(folder.iterdir())) < 3:
                time.sleep(0.01)
            if how == "dies":
                os._exit(1)
            time.sleep(TIMEOUT + 3)
        return original(self, *arguments, **options)

    exchange.Ring.start = begin  # type: ignore[method-assign]
    start = time.monotonic()
    try:
        parallel.attention(key, key, key)
    except RankError as error:
        return f"{time.monotonic() - start:.1f} {error}"
    return "no error"


@pytest.mark.parametrize("how", ["dies", "lags"])
def test_a_rank_that_dies_or_lags_is_an_error_on_the_others(how: str, tmp_path: Path) -> None:
    pool = Pool(3, timeout=TIMEOUT)
    try:
        answers = pool.run(fail_in_the_middle, how, tmp_path)
    finally:
        pool.close()
    for rank in (0, 2):
        seconds, _, message = str(answers[rank]).partition(" ")
        assert float(seconds) < TIMEOUT + 6.0
        assert re.match(rf"rank {rank} of 3 .*rank \d.* has died, lags", message), answers[rank]


def inside_ddp(group: Any, sharded: bool) -> dict[str, torch.Tensor]:
    """A model under DDP or FSDP2 whose sequences are cut over the same ranks."""
    model = Small()
    x = torch.randn(2, 23, 16, generator=torch.Generator().manual_seed(0))
    wrapped: Any
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(group),))
        wrapped = fully_shard(model, mesh=mesh)
    else:
        wrapped = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    model.cp = ContextParallel(group, exchange="ring")
    wrapped(shard(x, 1, group=group)).square().sum().backward()
    ranks = dist.get_world_size(group)  # both average over ranks; the loss is a sum over them
    return {
        name: ranks * (p.grad.full_tensor() if sharded else p.grad).clone()
        for name, p in model.named_parameters()
    }


class Small(torch.nn.Module):
    cp: ContextParallel | None = None

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = ll.torch.SelfAttention(16, heads=4, key_heads=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.cp is None:
            return self.layer(x)
        query, key, value = self.layer.project(x)
        mixed = self.cp.attention(query, key, value, mask=ll.Causal())
        return self.layer.W_O(mixed.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("sharded", [False, True], ids=["DDP", "FSDP2"])
def test_inside_ddp_and_fsdp(sharded: bool) -> None:
    model = Small()
    x = torch.randn(2, 23, 16, generator=torch.Generator().manual_seed(0))
    model(x).square().sum().backward()
    for found in on(4, inside_ddp, sharded):
        for name, parameter in model.named_parameters():
            assert torch.allclose(found[name], parameter.grad, atol=1e-5, rtol=1e-4), name


def on_a_mesh(group: Any) -> bool:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "context"))
    query, key = torch.randn(1, 2, 13, 8), torch.randn(1, 2, 13, 8)
    dist.broadcast(query, 0)
    dist.broadcast(key, 0)
    mine = [shard(x, 2, mesh=mesh["context"]) for x in (query, key, key)]
    output = ll.torch.context_parallel(*mine, mesh=mesh["context"], mask=ll.Causal())
    same = torch.allclose(
        unshard(output, 2, mesh=mesh["context"]),
        ll.attention(query, key, key, mask=ll.Causal()),
        atol=1e-6,
    )
    places = positions(13, mesh=mesh["context"])
    with pytest.raises(ArgumentError, match=r"mesh\['context'\]"):
        ll.torch.context_parallel(*mine, mesh=mesh)
    with pytest.raises(ArgumentError, match="give one"):
        ll.torch.context_parallel(*mine, mesh=mesh["context"], group=group)
    return same and torch.equal(query[:, :, places], mine[0])


def test_one_dimension_of_a_mesh() -> None:
    assert all(on(4, on_a_mesh))


def derived_twice(group: Any) -> list[str]:
    """Whether what is handed down needs a gradient or not."""
    said = []
    for health in (False, True):
        layer, x = ContextParallel(group), torch.randn(1, 2, 5, 4, requires_grad=True)
        seen = layer.inspect(x, x, x) if health else None
        found = layer.attention(x, x, x) if seen is None else seen.health.entropy
        for loss in (found.sum(), found.square().sum()):
            (first,) = torch.autograd.grad(loss, x, create_graph=True, retain_graph=True)
            try:
                (loss + first.square().sum()).backward(retain_graph=True)
            except NotImplementedError as error:
                said.append(str(error))
    return said


def test_a_second_derivative_is_an_error_here_too() -> None:
    for said in on(2, derived_twice):
        assert len(said) == 4
        assert all("second derivative of attention was asked for" in one for one in said)


def monitored(group: Any) -> list[Any]:
    model = Small()
    model.cp = ContextParallel(group)
    x = torch.randn(2, 23, 16, generator=torch.Generator().manual_seed(0))
    with Monitor(model, every=1, group=group) as monitor:
        model(shard(x, 1, group=group)).sum().backward()
        record = monitor.step()
    assert record is not None
    return record["sites"]


def test_a_monitor_sums_up_the_ranks() -> None:
    model = Small()
    with Monitor(model, every=1) as monitor:
        model(torch.randn(2, 23, 16, generator=torch.Generator().manual_seed(0)))
        record = monitor.step()
    assert record is not None
    (want,) = record["sites"]
    for (found,) in on(3, monitored):
        for figure, right in want.items():
            if figure != "name":
                assert found[figure] == pytest.approx(right, rel=1e-4), figure


def recorded_by_one(group: Any, folder: str) -> int:
    model = Small()
    with Monitor(model, Path(folder) / "run.jsonl", every=1) as monitor:
        model(torch.randn(1, 3, 16))
        watched = len(bridge.observers)
        monitor.step()
    return watched


def test_without_a_group_the_first_rank_records_alone(tmp_path: Path) -> None:
    assert on(4, recorded_by_one, str(tmp_path)) == [1, 0, 0, 0]
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert kinds == ["run", "record", "end"]


def captured(group: Any, path: str) -> bool:
    rng = np.random.default_rng(0)
    query, key = (
        torch.from_numpy(rng.normal(size=(1, h, 29, 8)).astype(np.float32)) for h in (4, 2)
    )
    words = tuple(f"w{i}" for i in positions(29, group=group).tolist())
    own = [shard(x, 2, group=group).numpy() for x in (query, key)]
    whole = gather_capture(
        Capture((Site("a", 0, *own), Site("b", 1, *own)), (words,), source={"model": "x"}),
        group=group,
        mask=ll.Causal(),
    )
    if whole is None:
        return True
    whole.save(path)
    back = Capture.open(path)
    want = ll.inspect(query, key, key, mask=ll.Causal()).health.summary()
    return (np.array_equal(back["b"].query, query.numpy()) and back.tokens == (tuple(f"w{i}" for i in range(29)),)
            and np.allclose(back["a"].health().summary().entropy, want.entropy, atol=1e-5))  # fmt: skip


def test_captures_gather_into_one_file(tmp_path: Path) -> None:
    assert all(on(3, captured, str(tmp_path / "run.safetensors")))


def gathered_health(group: Any) -> Any:
    rng = torch.Generator().manual_seed(1)
    query, key = torch.randn(1, 2, 29, 8, generator=rng), torch.randn(1, 2, 29, 8, generator=rng)
    own = [shard(x, 2, group=group) for x in (query, key, key)]
    seen = ContextParallel(group).inspect(*own, mask=ll.Causal())
    return gather_health(seen.health, group=group), ll.inspect(
        query, key, key, mask=ll.Causal()
    ).health


def test_health_gathers() -> None:
    for found, want in on(3, gathered_health):
        assert torch.equal(found.keys, want.keys)
        assert torch.allclose(found.entropy, want.entropy, atol=1e-5)
        assert repr(found) == repr(want)


def test_bad_arguments() -> None:
    x = torch.randn(1, 1, 4, 8)
    with pytest.raises(ArgumentError, match="no process group"):
        ll.torch.context_parallel(x, x, x)
    with pytest.raises(ArgumentError, match="no layout 'spiral'"):
        ContextParallel(layout="spiral")
    with pytest.raises(ArgumentError, match="choose auto, ring, gather"):
        ContextParallel(exchange="pigeon")
    with pytest.raises(ArgumentError, match="whole matrices"):
        ContextParallel(engine="reference")
    with pytest.raises(ArgumentError, match="drop some of the output instead"):
        ContextParallel().attention(*torch.ones(3, 1, 1, 2, 2), dropout=0.1)


def bad_bias(group: Any) -> str:
    x = shard(torch.randn(1, 1, 12, 8), 2, group=group)
    with pytest.raises(LimelightError, match="against all 12 keys"):
        ContextParallel(group).attention(x, x, x, bias=torch.randn(12, 12))
    return "refused"


def test_a_bias_of_the_wrong_rows() -> None:
    assert on(3, bad_bias) == ["refused"] * 3


def lazily_negated(group: Any) -> bool:
    x = shard(torch.randn(1, 2, 12, 8), 2, group=group).requires_grad_()
    output = ContextParallel(group).attention(x, x, x)
    lazy = torch.randn(output.shape, dtype=torch.complex64).conj().imag
    (got,) = torch.autograd.grad(output, x, lazy, retain_graph=True)
    (want,) = torch.autograd.grad(output, x, lazy.clone())
    return lazy.is_neg() and torch.equal(got, want)


def test_a_gradient_that_is_lazily_negated() -> None:
    assert all(on(2, lazily_negated))


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 60), st.sampled_from(LAYOUTS))
def test_a_layout_deals_out_every_position_once(ranks: int, length: int, name: str) -> None:
    layout = Layout(ranks, name)
    dealt = torch.cat([layout.positions(length, rank) for rank in range(ranks)])
    assert sorted(dealt.tolist()) == list(range(length))
    assert max(layout.sizes(length)) - min(layout.sizes(length)) <= 2
    owners = [layout.owner(piece) for piece in range(layout.pieces)]
    for rank in range(ranks):
        edges = layout.edges(length)
        mine = [(edges[p], edges[p + 1]) for p in range(layout.pieces) if owners[p] == rank]
        assert sorted(layout.chunks(length, rank)) == sorted(mine)
