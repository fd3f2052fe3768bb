"""Mutants: one line changed at a time, to see whether the tests notice.

    python tests/mutants.py                 all of them
    python tests/mutants.py heads masks     those of some modules
    python tests/mutants.py --list          which lines, without running anything

A mutation turns one comparison, sum, condition or constant of a line into its neighbour (< into <=,
+ into −, and into or, a number into one more). Which lines is fixed by the tree alone: so many of
each module, evenly spread over the lines that can be changed; the named ones come first. A module's
quick tests are run on each mutant; one that passes them all has survived, and either a test is
missing or the change changes nothing. No file is written: each mutant lives in a forked process that
imports its text in the place of the file's.
"""

from __future__ import annotations

import ast
import copy
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)  # not tests/, where folders go by the names of packages

import numpy as np  # noqa: E402, F401 (with torch: loaded once, for all)
import pytest  # noqa: E402
import torch  # noqa: E402, F401

SOURCE = ROOT / "src" / "limelight"
LONGEST = 300  # seconds a mutant may take
TOGETHER = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header"]


@dataclass(frozen=True)
class Target:
    """A module, how many of its lines are changed, and the tests that should notice."""

    name: str
    file: str
    count: int
    tests: tuple[str, ...]


TARGETS = (
    Target("reference", "reference.py", 8, ("tests/test_health.py", "tests/test_nonfinite.py",
           "tests/test_attention.py", "-k", "definition or reference or sink or gradient or merge")),
    Target("masks", "masks/values.py", 8, ("tests/masks/test_values.py",)),
    Target("allowed", "masks/allowed.py", 6, ("tests/masks/test_values.py", "tests/masks/test_crop.py")),
    Target("health", "health.py", 8, ("tests/test_health.py",)),
    Target("kinds", "heads/kinds.py", 6, ("tests/test_heads.py",)),
    Target("places", "heads/places.py", 6, ("tests/test_heads.py",)),
    Target("search", "heads/search.py", 4, ("tests/test_heads.py",)),
    Target("heatmap", "looking/heatmap.py", 6, ("tests/looking/test_heatmap.py",)),
    Target("site", "capture/site.py", 6, ("tests/capture/test_capture.py",)),
    Target("file", "capture/file.py", 6, ("tests/capture/test_capture.py",)),
    Target("hf-masks", "hf/masks.py", 6, ("tests/hf/test_masks.py", "tests/hf/test_hunt.py",
           "-k", "not compiled")),
    Target("guard", "studio/guard.py", 6, ("tests/studio/test_guard.py",)),
    Target("exercises", "learn/exercises/check.py", 6, ("tests/learn/test_exercises.py",)),
)  # fmt: skip
# Mistakes that once survived: the line as it is, and as it must not be.
NAMED = (
    ("reference", "top = np.maximum(max_logit, sinks)", "top = max_logit + 0 * sinks"),
    ("health", "self.judged & (self.max_prob >= SATURATED)", "self.judged & (self.max_prob > SATURATED)"),
    ("file", "replace(found, rows=found.statistics)", "replace(found, rows=site.rows)"),
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    target: Target
    line: int
    before: str
    after: str
    text: str  # the whole file


SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or,
    ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def changed(node: ast.AST) -> ast.AST | None:
    """The node with its neighbour's meaning; None where there is none."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in SWAPS:
        other.ops[0] = SWAPS[type(other.ops[0])]()
    elif isinstance(other, ast.BinOp | ast.BoolOp) and type(other.op) in SWAPS:
        other.op = SWAPS[type(other.op)]()
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        return other.operand
    else:
        return None
    return other


def mutants(target: Target) -> Iterator[Mutant]:
    """The named ones, then so many lines, evenly spread, the first change that each allows."""
    path = SOURCE / target.file
    text = path.read_text(encoding="utf-8")
    for name, old, new in NAMED:
        if name == target.name:
            at = text.index(old)
            line = text.count("\n", 0, at) + 1
            yield Mutant(target, line, old, new, text.replace(old, new, 1))
    lines = text.splitlines(keepends=True)
    found: dict[int, Mutant] = {}
    tree = ast.parse(text)
    silent = {id(part) for node in ast.walk(tree) for part in _unread(node)}
    for node in ast.walk(tree):
        if id(node) in silent or not hasattr(node, "lineno") or node.lineno != node.end_lineno:
            continue
        other = changed(node)
        if other is None or node.lineno in found:
            continue
        own, row = lines[node.lineno - 1].encode(), node.lineno - 1
        start, end = node.col_offset, node.end_col_offset
        new = own[:start] + f"({ast.unparse(other)})".encode() + own[end:]
        whole = "".join([*lines[:row], new.decode(), *lines[row + 1 :]])
        found[node.lineno] = Mutant(
            target, node.lineno, own[start:end].decode(), ast.unparse(other), whole
        )
    every = [found[line] for line in sorted(found)]
    step = len(every) / max(1, target.count)
    yield from (every[int(i * step)] for i in range(min(target.count, len(every))))


def _unread(node: ast.AST) -> Iterator[ast.AST]:
    """What no run reads or no test should: annotations, and what an error says."""
    parts: list[ast.AST | None] = []
    if isinstance(node, ast.FunctionDef):
        parts = [node.returns, *(a.annotation for a in [*node.args.args, *node.args.kwonlyargs])]
    elif isinstance(node, ast.AnnAssign):
        parts = [node.annotation]
    elif isinstance(node, ast.Raise | ast.JoinedStr):
        parts = [node]
    for part in parts:
        yield from () if part is None else ast.walk(part)


# Imports one module from a text instead of its file: in the forked process, and, as a
# sitecustomize.py on its path, in every Python that its tests start.
HOOK = """
import importlib.abc, importlib.util, sys

class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, *_):
        if name == {name!r}:
            return importlib.util.spec_from_file_location(name, {path!r}, loader=self)

    def exec_module(self, module):
        exec(compile({text!r}, {path!r}, "exec"), vars(module))

sys.meta_path.insert(0, Changed())
"""


def survives(mutant: Mutant) -> bool:
    name = "limelight." + mutant.target.file.removesuffix(".py").replace("/", ".")
    hook = HOOK.format(name=name, path=str(SOURCE / mutant.target.file), text=mutant.text)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(hook, encoding="utf-8")
        child = os.fork()
        if child == 0:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            signal.alarm(LONGEST)  # what never ends is noticed, too
            os.environ["PYTHONPATH"] = folder
            exec(hook, {})
            os._exit(int(pytest.main([*TOGETHER, *mutant.target.tests])))
        return os.waitpid(child, 0)[1] == 0


def main() -> None:
    os.chdir(ROOT)
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    chosen = [target for target in TARGETS if not wanted or target.name in wanted]
    tried, alive = 0, []
    for target in chosen:
        own = (SOURCE / target.file).read_text(encoding="utf-8")
        if "--list" not in sys.argv and not survives(Mutant(target, 0, "", "", own)):
            sys.exit(f"{target.name}: its tests fail without any change: {' '.join(target.tests)}")
        for mutant in mutants(target):
            tried += 1
            what = f"{target.file}:{mutant.line}: {mutant.before}  →  {mutant.after}"
            if "--list" in sys.argv:
                print(what)
                continue
            started = time.perf_counter()
            lives = survives(mutant)
            alive += [what] if lives else []
            word = "SURVIVED" if lives else "caught"
            print(f"{word:8} {time.perf_counter() - started:5.1f} s  {what}", flush=True)
    print(f"{tried} mutants" + ("" if "--list" in sys.argv else f", {tried - len(alive)} caught"))
    for what in alive:
        print(f"  survived: {what}")


if __name__ == "__main__":
    main()
