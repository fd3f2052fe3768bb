"""Everything here needs a GPU; elsewhere it is skipped, with the engine's own reason."""

from __future__ import annotations

import pytest

from limelight.engines import find

REASONS = {name: find(name).missing() for name in ("triton", "hopper")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" not in item.path.parts:
            continue
        engine = getattr(item, "callspec", None) and item.callspec.params.get("engine")
        reason = REASONS[engine or "triton"]
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"{engine or 'triton'}: {reason}"))
