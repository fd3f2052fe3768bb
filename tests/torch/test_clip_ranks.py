"""Ranks that ran different layers, or none: all scale alike, as one process that saw everything."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from limelight.errors import ArgumentError
from limelight.torch import QKClip, SelfAttention
from limelight.torch.clipping.followed import STEPS
from tests.torch.plans import DROPPED, PLANS, Plan, given, model
from tests.torch.ranks import MOST, on
from tests.torch.test_clip_figures import Normalised


def _steps(group: Any, plan: Plan) -> tuple[dict[str, Tensor], list[list[Any]], list[int]]:
    """The weights, what was done, and how many collectives each step took."""
    ranks = range(2) if group is None else [dist.get_rank(group)]
    layers, done, calls = model(), [], []
    real = dist.all_reduce, dist.all_gather_object
    counted: list[str] = []

    def count(name: str, function: Any) -> Any:
        return lambda *given, **named: (counted.append(name), function(*given, **named))[1]

    dist.all_reduce, dist.all_gather_object = count("reduce", real[0]), count("gather", real[1])
    try:
        with QKClip(layers, limit=0.5, group=group) as clip:
            for step, runs in enumerate(plan):
                for rank in ranks:
                    for layer in runs[rank]:
                        layers[layer](given(step, rank, layer))
                counted.clear()
                done.append(clip.step())
                calls.append(len(counted))
    finally:
        dist.all_reduce, dist.all_gather_object = real
    return {name: weight.detach() for name, weight in layers.named_parameters()}, done, calls


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_ranks_scale_what_any_of_them_ran(plan: Plan) -> None:
    weights, did, _ = _steps(None, plan)
    assert any(did)
    for found, done, _ in on(2, _steps, plan):
        assert [sorted(map(repr, one)) for one in done] == [sorted(map(repr, one)) for one in did]
        for name, weight in found.items():
            assert torch.equal(weight, weights[name]), name


def test_one_collective_a_step_once_all_is_known() -> None:
    for _, _, calls in on(2, _steps, DROPPED):
        assert calls == [3, 1, 1]  # the first tells what there is
    for _, _, calls in on(2, _steps, PLANS["one more"]):
        assert calls == [3, 1, 3]
    assert _steps(None, DROPPED)[2] == [0, 0, 0]


def _different(group: Any) -> str:
    layer = SelfAttention(16, 4 if dist.get_rank(group) else 2)
    with QKClip(nn.ModuleList([layer]), group=group) as clip:
        layer(torch.randn(1, 3, 16))
        try:
            clip.step()
        except ArgumentError as error:
            return str(error)
    return ""


def test_ranks_that_hold_different_models_are_refused_on_each() -> None:
    for told in on(2, _different):
        assert told.startswith("0 has 2 heads on one rank and 4 on another")
        assert "group=" in told


def _stages(group: Any) -> list[str]:
    """Each rank holds one layer of the model under its name in the whole."""
    rank = dist.get_rank(group)
    torch.manual_seed(0)
    part = nn.ModuleDict({f"layer{rank}": SelfAttention(16, 4)})
    with QKClip(part, limit=1e-3, group=group) as clip:
        part[f"layer{rank}"](torch.randn(1, 3, 16))
        return [one.site for one in clip.step()]


def test_a_site_of_another_rank_alone_is_its_own_business() -> None:
    for rank, sites in enumerate(on(MOST, _stages)):
        assert set(sites) == {f"layer{rank}"}


def _outside(group: Any) -> int:
    """A rank that is not in the group goes by itself."""
    inner = dist.new_group([0, 1])
    torch.manual_seed(dist.get_rank(group))
    layer = SelfAttention(16, 4)
    with QKClip(layer, limit=1e-3, group=inner) as clip:
        layer(torch.randn(1, 3, 16))
        return len(clip.step())


def test_a_rank_outside_the_group() -> None:
    assert on(MOST, _outside) == [4] * MOST


def _sharded(group: Any) -> list[str]:
    """What does not follow its projections, under FSDP2."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model, said = Normalised(), []
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(group),)))
    with warnings.catch_warnings(record=True) as found, QKClip(model, 5.0, group=group) as clip:
        warnings.filterwarnings("always", message=".*follow")
        for step in range(STEPS + 2):
            torch.manual_seed(step)
            model(torch.randn(2, 9, 16)).sum().backward()
            said.append(len(clip.step()))
    return [*map(str, said), *{str(one.message) for one in found}]


def test_shards_find_out_together() -> None:
    """Each rank has some of the weights, and looks at all."""
    for found in on(MOST, _sharded):
        *done, told = found
        assert done == ["4"] * STEPS + ["0"] * 2
        assert "Normalised does not follow its projections: head " in told


def _looked_at_between(group: Any) -> list[float]:
    """An evaluation after the backward pass, which leaves weights gathered under FSDP2."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layer, x = SelfAttention(16, 4), torch.randn(2, 9, 16)
    with torch.no_grad():
        layer.W_Q.weight.mul_(40)
    model = nn.Sequential(layer)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(group),)))
    with QKClip(model, 1.0, group=group) as clip:
        model(x).sum().backward()
        with torch.no_grad():
            model.eval()(x)
        model.train()
        assert clip.step()
        model(x)
        return [one.max_logit for one in clip.step()]


def test_shards_are_scaled_and_no_copy_that_is_lost() -> None:
    assert on(MOST, _looked_at_between) == [[]] * MOST


def _in_a_wrapper(group: Any) -> int:
    """The model inside was put into evaluation mode, its wrapper was not."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(SelfAttention(16, 4)), process_group=group
    )
    with QKClip(model, 1e-3, group=group) as clip:
        model.module.eval()
        model(torch.randn(2, 9, 16))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert clip.step() == []
        return len(found)


def test_a_wrapper_does_not_say_whether_the_model_trains() -> None:
    assert on(2, _in_a_wrapper) == [1, 1]


def _flattened(group: Any) -> str:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(
        nn.Sequential(SelfAttention(16, 4)), process_group=group, device_id=torch.device("cpu")
    )
    try:
        QKClip(model, group=group)
    except ArgumentError as error:
        return str(error)
    return ""


def test_weights_laid_end_to_end_are_refused() -> None:
    for told in on(MOST, _flattened):
        assert "is a FullyShardedDataParallel" in told
        assert "fully_shard" in told
