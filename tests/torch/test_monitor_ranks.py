"""Ranks that ran different layers, or none: one record of all, as of one process that ran all."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

import pytest
import torch.distributed as dist

from limelight.torch import Monitor, QKClip, SelfAttention
from limelight.torch.monitor.monitor import MonitorWarning
from tests.torch.plans import PLANS, Plan, given, model
from tests.torch.ranks import on

ANOTHER_ORDER: Plan = [[[0, 1, 2], [2, 1, 0]], [[1, 0], [0, 1]]]


def _records(group: Any, plan: Plan) -> list[dict[str, Any]]:
    """The sites of each step's record, by name."""
    ranks = range(2) if group is None else [dist.get_rank(group)]
    layers, records = model(), []
    with warnings.catch_warnings(), Monitor(layers, every=1, group=group) as monitor:
        warnings.simplefilter("ignore", MonitorWarning)  # of steps in which nobody ran anything
        for step, runs in enumerate(plan):
            for rank in ranks:
                for layer in runs[rank]:
                    layers[layer](given(step, rank, layer))
            record = monitor.step()
            assert record is not None
            records.append({site["name"]: site for site in record["sites"]})
    return records


@pytest.mark.parametrize("plan", [*PLANS.values(), ANOTHER_ORDER], ids=[*PLANS, "another order"])
def test_ranks_are_summed_up_by_name(plan: Plan) -> None:
    alone = _records(None, plan)
    assert any(alone)
    together = on(2, _records, plan)
    assert together[0] == together[1]
    for found, wanted in zip(together[0], alone, strict=True):
        assert found.keys() == wanted.keys()
        for name, site in wanted.items():
            for figure, right in site.items():
                if figure != "layer":  # the order in which the ranks tell of them
                    assert found[name][figure] == (
                        right if isinstance(right, str) else pytest.approx(right, rel=1e-5)
                    ), figure


def _different(group: Any) -> list[str]:
    layer = SelfAttention(16, 4 if dist.get_rank(group) else 2)
    with warnings.catch_warnings(record=True) as told, Monitor(layer, every=1, group=group) as one:
        warnings.simplefilter("always")
        layer(given(0, 0, 0))
        assert one.step() is None
    return [str(warning.message) for warning in told]


def test_ranks_that_hold_different_models_end_the_monitor_on_each() -> None:
    for told in on(2, _different):
        (said,) = told
        assert "has 2 heads on one rank and 4 on another" in said


@pytest.mark.parametrize("kind", [Monitor, QKClip])
def test_a_thread_that_wants_pythons_lock_has_it_before_the_end(kind: Any) -> None:
    gate, came, often = threading.Lock(), [], sys.getswitchinterval()

    def waiting() -> None:
        with gate:
            came.append(True)

    gate.acquire()
    thread = threading.Thread(target=waiting)
    thread.start()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        watching = kind(model())
        sys.setswitchinterval(100.0)
        gate.release()
        watching.close()
        assert came
    finally:
        sys.setswitchinterval(often)
        thread.join()
        dist.destroy_process_group()
