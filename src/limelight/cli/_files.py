"""Query, keys and values from a file: JSON with names, or CSV with the role first in each line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from limelight.arrays import a_type
from limelight.cli._edge import number
from limelight.errors import FileError
from limelight.intake import check_text, read_bounded

ROLES = {"query": "query", "queries": "query", "key": "keys", "keys": "keys",
         "value": "values", "values": "values"}  # fmt: skip
EXTRAS = ("tokens", "scale", "softcap", "causal")
MOST_BYTES = 16 << 20
LONGEST_TOKEN = 10_000  # characters


def read(path: Path) -> dict[str, Any]:
    """A dict with query, keys, values, and in JSON perhaps tokens, scale, softcap, causal.

    "single" says that the query is one vector, not a list of them.
    """
    kind = path.suffix.lower()
    if kind not in (".json", ".csv"):
        raise FileError(f"{path} is neither .json nor .csv: those two are understood")
    try:
        text = read_bounded(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8 text") from None
    try:
        found = _from_json(text, path) if kind == ".json" else _from_csv(text, path)
    except csv.Error as error:
        raise FileError(f"{path} is not CSV: {error}") from None
    except RecursionError:
        raise FileError(
            f"{path} is nested too deeply: query, keys and values are lists of numbers, or lists "
            f"of such lists"
        ) from None
    missing = [name for name in ("query", "keys", "values") if name not in found]
    if missing:
        raise FileError(f"{path} has no {' and no '.join(missing)}: it needs query, keys, values")
    return found


def _from_json(text: str, path: Path) -> dict[str, Any]:
    def one(written: str) -> float:
        return number(written, str(path))

    try:
        data = json.loads(text, parse_int=one, parse_float=one, parse_constant=one)
    except json.JSONDecodeError as error:
        raise FileError(
            f"{path} is not JSON: {error.msg.lower()} in line {error.lineno}, column {error.colno}"
        ) from None
    if not isinstance(data, dict):
        raise FileError(f"{path} holds {a_type(data)}: it needs an object with query, keys, values")
    found: dict[str, Any] = {}
    for name, item in data.items():
        if name in ROLES:
            found[ROLES[name]] = _rows(item, name, path)
            if ROLES[name] == "query":
                found["single"] = not isinstance(item[0], list)
        elif name in EXTRAS:
            found[name] = _extra(item, name, path)
        else:
            known = ", ".join(["query", "keys", "values", *EXTRAS])
            raise FileError(f"{path} has {name[:80]!r}, which means nothing here: use {known}")
    return found


def _extra(item: Any, name: str, path: Path) -> Any:
    """What stands beside the numbers, each of its own type; null is as good as left out."""
    if name == "tokens":
        right = isinstance(item, list) and all(isinstance(token, str) for token in item)
        wanted = "a list of strings"
    elif name == "causal":
        right, wanted = isinstance(item, bool), "true or false"
    else:
        right, wanted = isinstance(item, float), "a number"
    if item is not None and not right:
        raise FileError(f"{path}: {name} must be {wanted}, and is {json.dumps(item)[:200]}")
    for token in item if name == "tokens" and item else ():
        try:
            check_text(token, LONGEST_TOKEN)
        except ValueError as error:
            raise FileError(f"{path}: tokens: {error}") from None
    return item


def _rows(item: Any, name: str, path: Path) -> list[list[float]]:
    """A vector, or a list of vectors of one length."""
    rows = item if isinstance(item, list) and item and isinstance(item[0], list) else [item]
    for row in rows:
        right = isinstance(row, list) and len(row) > 0 and len(row) == len(rows[0])
        if not right or not all(isinstance(x, float) for x in row):
            raise FileError(f"{path}: {name} must be a list of numbers, or several of one length")
    return rows


def _from_csv(text: str, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line, cells in enumerate(csv.reader(text.splitlines()), start=1):
        if not cells or cells[0].strip().startswith("#") or not "".join(cells).strip():
            continue
        role = ROLES.get(cells[0].strip().lower())
        if role is None:
            raise FileError(
                f"{path}, line {line}: starts with {cells[0].strip()[:80]!r}; each line is a role "
                f"and its numbers, as query,2,1 or key,2,1 or value,10,0"
            )
        row = [number(cell, f"{path}, line {line}") for cell in cells[1:] if cell.strip()]
        rows = found.setdefault(role, [])
        if not row or (rows and len(row) != len(rows[0])):
            raise FileError(
                f"{path}, line {line}: {len(row)} numbers, where the other {role} have "
                f"{len(rows[0]) if rows else 'at least one'}"
            )
        rows.append(row)
    found["single"] = len(found.get("query", [])) == 1
    return found
