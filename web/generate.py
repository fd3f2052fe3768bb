"""What the pages know from Python, written into web/src: types, constants, figures and colours.

    python web/generate.py            write the files
    python web/generate.py --check    say which of them are stale

A type is written for every answer of the studio's API and every body it takes, and for the data
inside a report or a widget.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect

from limelight import journal, texts
from limelight.health import PEAKED, SATURATED
from limelight.lessons.data import LessonsData
from limelight.looking.pyramid import SIDE
from limelight.studio.answers import Problem
from limelight.studio.api import ENDPOINTS
from limelight.studio.api.experiments import TrainingFigure
from limelight.studio.api.learn import Step
from limelight.studio.endpoint import Asked, MediaTypes
from limelight.views import differences, figures, looks, palette, schema, tiles

SOURCE = Path(__file__).parent / "src"
NOTE = "Written by web/generate.py from limelight's Python: change that, not this."
LITERALS = {
    "Figure": schema.Figure, "Lit": schema.Lit, "Pool": schema.Pool,
    "RunFigure": journal.Figure, "Side": schema.Side,
    "Step": Step, "TrainingFigure": TrainingFigure, "Verdict": schema.Verdict,
}  # fmt: skip
CONSTANTS = {
    "TILE_SIDE": SIDE, "HIDDEN": tiles.HIDDEN, "HIDDEN_16": tiles.HIDDEN_16,
    "NAN_16": tiles.NAN_16, "LIT_16": tiles.LIT_16, "HIDDEN_WORD": tiles.HIDDEN_WORD,
    "NAN_WORD": tiles.NAN_WORD, "LEAST": looks.LEAST, "PEAKED": PEAKED, "SATURATED": SATURATED,
    "HIDDEN_CHANGE": differences.HIDDEN_CHANGE, "LANGUAGES": texts.LANGUAGES,
}  # fmt: skip
TOKENS = {
    "surface": "surface", "ink": "ink", "ink-soft": "soft", "line": "line", "hidden": "hidden",
    "light": "light", "cool": "cool", "bad": "alarm",
}  # fmt: skip


def main() -> None:
    made = {
        SOURCE / "lib/schema.ts": types(),
        SOURCE / "lib/palette.ts": colours(),
        SOURCE / "palette.css": tokens(),
    }
    stale = [path for path, text in made.items()
             if not path.is_file() or path.read_text(encoding="utf-8") != text]  # fmt: skip
    if stale and "--check" in sys.argv:
        names = ", ".join(path.name for path in stale)
        sys.exit(f"{names}: not what Python says now; run `make web`")
    for path in stale:
        path.write_text(made[path], encoding="utf-8")


def types() -> str:
    """schema.ts"""
    roots = [schema.BundleData, LessonsData, figures.FigureKind, Problem]
    for endpoint in ENDPOINTS:
        roots += [] if isinstance(endpoint.gives, MediaTypes) else [endpoint.gives]
        roots += [endpoint.asked] if endpoint.method == "POST" else []
    found: dict[str, inspect.StructType | inspect.DataclassType] = {}
    for root in roots:
        _collect(inspect.type_info(root), found)
    parts = [f"// {NOTE}\n", "/** A float that may not be finite, as it travels. */",
             "export type Real = number | null;"]  # fmt: skip
    parts += [f"export type {name} = {_union(get_args(kind))};" for name, kind in LITERALS.items()]
    parts += ["", *(interface(found[name]) for name in sorted(found))]
    parts += [f"export const {name} = {_value(value)};" for name, value in CONSTANTS.items()]
    kinds = [f"  {_value(msgspec.to_builtins(kind))}," for kind in figures.KINDS]
    parts += ["", "export const FIGURES: readonly FigureKind[] = [", *kinds, "];"]
    parts += [f"export const RUN_FIGURES: readonly RunFigure[] = {_value(journal.FIGURES)};"]
    return "\n".join(parts) + "\n"


def interface(info: inspect.StructType | inspect.DataclassType) -> str:
    cls: Any = info.cls
    sometimes = issubclass(cls, Asked | schema.Vectors)
    lines = []
    if isinstance(info, inspect.StructType) and info.tag_field:
        lines.append(f"  readonly {info.tag_field}: {_value(info.tag)};")
    for field in info.fields:
        optional = "?" if sometimes and not field.required else ""
        lines.append(f"  readonly {field.encode_name}{optional}: {written(field.type)};")
    return "\n".join([*_comment(cls), f"export interface {cls.__name__} {{", *lines, "}\n"])


def written(kind: inspect.Type) -> str:
    """A type as TypeScript writes it."""
    match kind:
        case inspect.BoolType():
            return "boolean"
        case inspect.IntType() | inspect.FloatType():
            return "number"
        case inspect.StrType():
            return "string"
        case inspect.NoneType():
            return "null"
        case inspect.AnyType():
            return "unknown"
        case inspect.LiteralType():
            return _union(kind.values)
        case inspect.StructType() | inspect.DataclassType():
            return kind.cls.__name__
        case inspect.TupleType():
            return f"readonly [{', '.join(written(item) for item in kind.item_types)}]"
        case inspect.ListType() | inspect.VarTupleType():
            item = written(kind.item_type)
            return f"readonly {f'({item})' if ' ' in item else item}[]"
        case inspect.DictType():
            return f"Readonly<Record<{written(kind.key_type)}, {written(kind.value_type)}>>"
        case inspect.UnionType():
            parts = [written(part) for part in kind.types]
            return "Real" if sorted(parts) == ["null", "number"] else " | ".join(parts)
    raise TypeError(f"{kind} has no TypeScript form yet")


def colours() -> str:
    """palette.ts"""
    ramps = {
        theme: {tone: "".join(palette.css(c)[1:] for c in palette.ramp(theme, tone))
                for tone in ("warm", "cool")}
        for theme in palette.THEMES
    }  # fmt: skip
    looks_of = {
        theme: {"hidden": palette.THEME[theme].hidden, "alarm": palette.THEME[theme].alarm}
        for theme in palette.THEMES
    }
    return "\n".join([
        f"// {NOTE}", "", "/** The inks to write on a colour: the first that can be read. */",
        f"export const INKS = {_value(palette.INKS)} as const;", "",
        "/** What has no place on a ramp: a cell that is hidden, one that is not a number. */",
        f"export const APART = {_value(looks_of)} as const;", "",
        f"/** {palette.STEPS} colours from nothing to all, six digits each. */",
        f"export const RAMPS = {_value(ramps)} as const;", "",
    ])  # fmt: skip


def tokens() -> str:
    """palette.css"""
    light, dark = (palette.THEME[theme] for theme in ("light", "dark"))
    lines = [f"  --{name}: light-dark({getattr(light, own)}, {getattr(dark, own)});"
             for name, own in TOKENS.items()]  # fmt: skip
    return "\n".join([f"/* {NOTE} */", ":root {", *lines, "}", ""])


def _collect(kind: Any, found: dict[str, Any]) -> None:
    """Every struct inside a type, by name."""
    if isinstance(kind, inspect.StructType | inspect.DataclassType):
        name = kind.cls.__name__
        if name in found:
            if found[name].cls is not kind.cls:
                raise TypeError(f"two types are called {name}: {found[name].cls} and {kind.cls}")
            return
        found[name] = kind
    for inner in _inside(kind):
        _collect(inner, found)


def _inside(kind: Any) -> Iterator[Any]:
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(kind, name):
            yield getattr(kind, name)
    yield from getattr(kind, "item_types", ())
    yield from getattr(kind, "types", ())
    yield from (field.type for field in getattr(kind, "fields", ()))


def _union(values: Any) -> str:
    for name, kind in LITERALS.items():
        if set(get_args(kind)) == set(values) and values is not get_args(kind):
            return name
    return " | ".join(_value(value) for value in values)


def _comment(cls: type) -> list[str]:
    lines = cleandoc(cls.__dict__.get("__doc__") or "").splitlines()
    if not lines or lines[0].startswith(f"{cls.__name__}("):  # a dataclass without words
        return []
    if len(lines) == 1:
        return [f"/** {lines[0]} */"]
    return ["/**", *(f" * {line}".rstrip() for line in lines), " */"]


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
