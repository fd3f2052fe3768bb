"""Arrows point one way: who imports whom, read from the source, imports inside functions too."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import limelight
from limelight.engines import ENGINES

SOURCE = Path(limelight.__file__).parent
# From the bottom up. A part imports from its own layer and from those before it; a module that
# stands higher or lower than the rest of its folder is named apart.
LAYERS = (
    ("errors",),
    ("arrays", "records", "offers", "writing", "intake", "dropout", "texts"),
    ("masks",),
    ("call",),
    ("reference",),
    ("engines",),
    ("health",),
    ("attention",),
    ("looking", "worked", "capture", "heads", "survey", "learn", "journal", "hf.places"),
    ("hf", "torch", "live"),
    ("views",),
    ("pictures",),
    ("report", "lessons", "notebook", "learn.experiments.figures"),
    ("cli", "studio", "__main__"),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
RANK[""] = len(LAYERS) - 1  # the root package, which states what the others offer


def modules() -> dict[str, Path]:
    """Every module by its name below limelight, such as "masks.values"; the root is left out."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    del found[""]
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of limelight that a file imports; the root itself as ""."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        for name in names:
            top, _, inner = name.partition(".")
            if top != "limelight" or inner == "__version__":
                continue
            found.add(inner if inner in known else inner.rpartition(".")[0])
    return found


def part(module: str) -> str | None:
    """The longest part of the name that has a layer."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in RANK), None)


def rank(module: str) -> int:
    return RANK.get(part(module) or "", 0)


MODULES = modules()
GRAPH = {name: imports(path, MODULES) for name, path in MODULES.items()}


def test_every_module_has_a_layer() -> None:
    assert [name for name in GRAPH if part(name) is None] == []


def test_arrows_point_down() -> None:
    back = [
        f"{name} → {other or 'limelight'}"
        for name, others in GRAPH.items()
        for other in others
        if rank(name) < rank(other)
    ]
    assert back == []


def test_no_two_folders_need_each_other() -> None:
    """Folders of one layer may use one another, in one direction."""
    folders: dict[str, set[str]] = defaultdict(set)
    for name, others in GRAPH.items():
        own = part(name) or name
        folders[own] |= {part(other) or other for other in others} - {own}
    while folders:
        leaves = [name for name, others in folders.items() if not others & set(folders)]
        assert leaves, {name: others & set(folders) for name, others in folders.items()}
        for name in leaves:
            del folders[name]


def test_engines_import_neither_each_other_nor_the_table() -> None:
    names = {f"engines.{engine.name}" for engine in ENGINES}
    for name in names:
        assert not GRAPH[name] & (names - {name}), name


def test_the_graph_sees_imports_inside_functions(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "import limelight.masks\n"
        "def f():\n    from limelight import reference, __version__\n"
        "    from limelight.health import Health\n    from limelight import attention as a\n"
    )
    assert imports(file, modules()) == {"masks", "reference", "health", "attention"}
