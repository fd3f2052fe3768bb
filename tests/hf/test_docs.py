"""The table of systems in the docs is the table that is tested."""

from __future__ import annotations

from pathlib import Path

from tests.hf import systems

PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"


def test_every_system_has_its_row() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.count("|") == 5]
    table = {row[2].strip("`"): row[3] for row in rows if row[2].startswith("`")}
    assert table == {system.name: system.what for system in systems.SYSTEMS}
