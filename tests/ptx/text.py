"""PTX as Triton writes it, taken apart: parameters, and a kernel's instructions in blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LABEL = re.compile(r"([$\w]+)\s*:(?!:)")
STATEMENT = re.compile(r"(?:@(!?)([%\w]+)\s+)?([\w.:]+)\s*(.*)", re.DOTALL)
PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,()]*?(\w+)(?:\[\d+\])?\s*(?=,|\))")
LOCAL = re.compile(r"[A-Za-z_][\w$]*")

Operand = str | tuple["Operand", ...]  # a name or number; a group in braces


@dataclass(frozen=True)
class Instruction:
    """`operands` are names and numbers; an address is its inside, without brackets.

    `guard` is (whether it holds where the register does not, the register).
    """

    opcode: str
    operands: tuple[Operand, ...]
    guard: tuple[bool, str] | None = None
    line: int = 0

    def __str__(self) -> str:
        return f"{self.opcode} {self.operands} (line {self.line})"


@dataclass
class Kernel:
    """`labels` are places among `instructions`; `params` are names and types."""

    name: str
    params: list[tuple[str, str]]
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, list[str]] = field(default_factory=dict)  # of indexed branches
    kinds: dict[str, str] = field(default_factory=dict)  # of registers that inline PTX declares


def parsed(ptx: str) -> Kernel:
    """The one kernel of a module."""
    bare = re.sub(r"//[^\n]*|^\s*\.loc[^\n]*|^\s*\.section.*", "", ptx, flags=re.MULTILINE)
    head = re.search(r"\.entry\s+(\w+)\(", bare)
    assert head, "no kernel"
    opened = bare.index("\n{", head.end())
    kernel = Kernel(head[1], [
        (name, kind) for kind, name in PARAM.findall(bare[head.end() - 1 : opened])
    ])  # fmt: skip
    _body(kernel, bare, opened + 2)
    return kernel


def _body(kernel: Kernel, text: str, at: int) -> None:
    scopes: list[dict[str, str]] = []  # what inline PTX in braces calls its own
    count = 0
    while True:
        while text[at].isspace() or text[at] == ";":
            at += 1
        if text[at] == "}":
            if not scopes:
                return
            scopes.pop()
            at += 1
        elif text[at] == "{":
            count += 1
            scopes.append(_scope(text, at, f"@{count}"))
            at += 1
        elif label := LABEL.match(text, at):
            name = _resolved(label[1], scopes)
            at = label.end()
            if following := re.compile(r"\s*\.branchtargets\s+([^;]*);").match(text, at):
                kernel.targets[name] = re.split(r"[\s,]+", following[1].strip())
                at = following.end()
            else:
                kernel.labels[name] = len(kernel.instructions)
        else:
            end = text.index(";", at)
            line = text.count("\n", 0, at) + 1
            _statement(kernel, text[at:end].strip(), scopes, line)
            at = end + 1


def _scope(text: str, at: int, suffix: str) -> dict[str, str]:
    """What the braces that open here declare: registers and labels, with names of their own."""
    depth, end = 0, at
    while True:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            break
        end += 1
    inside = text[at + 1 : end]
    declared = re.findall(r"\.reg\s+\.\w+\s+([^;]*);", inside)
    names = [name for several in declared for name in re.split(r"[\s,]+", several.strip())]
    names += re.findall(r"(?:^|[;{])\s*([A-Za-z_]\w*)\s*:", inside)
    names += re.findall(r"^\s*([A-Za-z_]\w*):", inside, re.MULTILINE)
    return {name: name + suffix for name in names}


def _resolved(name: str, scopes: list[dict[str, str]]) -> str:
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    return name


def _statement(kernel: Kernel, text: str, scopes: list[dict[str, str]], line: int) -> None:
    if text.startswith(".reg"):
        _, kind, names = text.split(None, 2)
        for name in re.split(r"[\s,]+", names):
            kernel.kinds[_resolved(name, scopes)] = kind[1:]
        return
    if text.startswith("."):
        return
    found = STATEMENT.fullmatch(text)
    assert found, text
    negated, guard, opcode, rest = found.groups()
    rest = LOCAL.sub(lambda m: _resolved(m[0], scopes), rest) if scopes else rest
    kernel.instructions.append(Instruction(
        opcode, _operands(rest), None if guard is None else (bool(negated), _resolved(guard, scopes)), line,
    ))  # fmt: skip


def _operands(text: str) -> tuple[Operand, ...]:
    """Comma-separated, groups in braces as tuples, addresses without their brackets."""
    parts, depth, begun = [], 0, 0
    for i, char in enumerate(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[begun:i])
            begun = i + 1
    parts.append(text[begun:])
    return tuple(_operand(part.strip()) for part in parts if part.strip())


def _operand(text: str) -> Operand:
    if text[0] == "{" and text[-1] == "}":
        return _operands(text[1:-1])
    if text[0] == "[" and text[-1] == "]":
        inside = _operands(text[1:-1])
        return inside[0] if len(inside) == 1 else inside
    return text
