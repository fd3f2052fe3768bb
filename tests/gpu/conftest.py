"""Everything here needs a GPU; elsewhere it is skipped, with the engine's own reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from limelight.engines import find

REASONS = {name: find(name).missing() for name in ("triton", "hopper")}


@pytest.fixture(autouse=True)
def large_from_here() -> Iterator[None]:
    """The kernels of large calls are tried with smaller ones than they would be given."""
    if REASONS["triton"] is not None:
        yield
        return
    from limelight.engines.gpu import portable

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portable, "TINY_KEYS", 256)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" not in item.path.parts:
            continue
        engine = getattr(item, "callspec", None) and item.callspec.params.get("engine")
        reason = REASONS[engine or "triton"]
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"{engine or 'triton'}: {reason}"))
