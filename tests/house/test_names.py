"""The public names are those of the list: who adds, renames or drops one changes the list too."""

from __future__ import annotations

import importlib

import pytest

import limelight
from limelight.cli._lazy import LazyGroup
from tests.house.names import LISTED, public


def test_the_public_names_are_those_listed() -> None:
    listed, found = LISTED.read_text(encoding="utf-8").splitlines(), public()
    assert sorted(set(found) ^ set(listed)) == [], "python -m tests.house.names writes the list"
    assert listed == found


def test_every_name_of_the_root_is_there() -> None:
    assert limelight.__all__ == sorted(
        limelight.__all__, key=lambda name: (name.lower() == name, name)
    )
    for name in limelight.__all__:
        assert getattr(limelight, name) is not None


@pytest.mark.parametrize("name", ["hf", "torch"])
def test_every_name_of_a_lazy_package_is_there(name: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    module = importlib.import_module(f"limelight.{name}")
    for each in module.__all__:
        assert getattr(module, each) is not None


def test_every_command_has_its_file() -> None:
    for name in LazyGroup.table:
        assert hasattr(importlib.import_module(f"limelight.cli.{name}"), name)
