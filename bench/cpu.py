"""The native engine against torch on this machine: make bench, or python bench/cpu.py [--quick].

Each line alternates the two in one process and gives medians; the ratio is the median of the
ratios of neighbouring runs, so that a busy machine slows both alike. "Here" is limelight.inspect as
a user calls it, output AND health, on NumPy arrays (tensors for bfloat16 and for gradients);
torch's scaled_dot_product_attention gives the output alone. The eager formula is the one that
yields the same health. Dropout stands beside the same call without it. The limits are measured too:
a large matrix product, and reading memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import limelight as ll
from limelight.engines import native
from limelight.torch import attention

HERE = Path(__file__).parent / "results"
Run = Callable[[], Any]
Work = tuple[Run, Run, float, str]  # ours, torch's, work, its unit


@dataclass(frozen=True)
class Line:
    """One comparison: seconds are medians, ratio is torch's time over ours."""

    name: str
    ours: float
    theirs: float
    ratio: float
    must: float
    rate: str


def alternate(ours: Run, theirs: Run, seconds: float) -> tuple[float, float, float]:
    """Medians of both and of their ratio, from runs that take turns for so many seconds."""
    ours(), theirs()
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < 5 or (time.perf_counter() < end and len(pairs) < 2001):
        a = time.perf_counter()
        ours()
        b = time.perf_counter()
        theirs()
        pairs.append((b - a, time.perf_counter() - b))
    first, second = zip(*pairs, strict=True)
    return (
        statistics.median(first), statistics.median(second),
        statistics.median(y / x for x, y in pairs),
    )  # fmt: skip


def tensors(shape: tuple[int, ...], keys: int, key_heads: int, dtype: str) -> list[Any]:
    torch.manual_seed(0)
    batch, _, _, d = shape
    other = (batch, key_heads, keys, d)
    return [torch.randn(s).to(getattr(torch, dtype)) for s in (shape, other, other)]


def inspecting(*given: Any, causal: bool = False) -> Run:
    """limelight.inspect of these tensors: as NumPy arrays where NumPy knows the dtype."""
    arrays = [x.numpy() if x.dtype == torch.float32 else x for x in given]
    return partial(ll.inspect, *arrays, **({"mask": ll.Causal()} if causal else {}))


def forward(heads: int, n: int, d: int, dtype: str, causal: bool) -> Work:
    q, k, v = tensors((1, heads, n, d), n, heads, dtype)
    theirs = partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)
    flops = 4 * heads * n * n * d * (0.5 if causal else 1)
    return inspecting(q, k, v, causal=causal), theirs, flops, "GFLOP/s"


def decode(heads: int, keys: int, dtype: str) -> Work:
    q, k, v = tensors((1, heads, 1, 128), keys, heads, dtype)
    theirs = partial(F.scaled_dot_product_attention, q, k, v)
    return inspecting(q, k, v), theirs, k.nbytes + v.nbytes, "GB/s"


def training(heads: int, n: int, d: int, causal: bool) -> Work:
    leaves = [x.requires_grad_() for x in tensors((1, heads, n, d), n, heads, "float32")]
    grad = torch.randn(leaves[0].shape)
    mask = ll.Causal() if causal else None

    def ours() -> None:
        torch.autograd.grad(ll.inspect(*leaves, mask=mask).output, leaves, grad)

    def theirs() -> None:
        out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
        torch.autograd.grad(out, leaves, grad)

    flops = 14 * heads * n * n * d * (0.5 if causal else 1)
    return ours, theirs, flops, "GFLOP/s"


def eager(heads: int, n: int, d: int, causal: bool) -> Work:
    q, k, v = tensors((1, heads, n, d), n, heads, "float32")
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None

    def theirs() -> Any:
        s = (q @ k.transpose(-1, -2)) / math.sqrt(d)
        if hidden is not None:
            s = s.masked_fill(hidden, -torch.inf)
        lse = s.logsumexp(-1, keepdim=True)
        w = (s - lse).exp()
        entropy = -torch.special.xlogy(w, w).sum(-1)
        return w @ v, lse, s.amax(-1), entropy

    flops = 4 * heads * n * n * d * (0.5 if causal else 1)
    return inspecting(q, k, v, causal=causal), theirs, flops, "GFLOP/s"


def dropping(dtype: str, back: bool, d: int, causal: bool) -> Work:
    heads, n = 768 // d, 2048
    q, k, v = tensors((1, heads, n, d), n, heads, dtype)
    leaves = [x.requires_grad_(back) for x in (q, k, v)]
    grad, mask = torch.randn(q.shape).to(q.dtype), ll.Causal() if causal else None

    def run(share: float) -> None:
        output = attention(*leaves, mask=mask, dropout=share)
        if back:
            torch.autograd.grad(output, leaves, grad)

    flops = (14 if back else 4) * heads * n * n * d * (0.5 if causal else 1)
    return partial(run, 0.1), partial(run, 0.0), flops, "GFLOP/s"


def table() -> list[tuple[str, float, Callable[[], Work]]]:
    """What is measured, the least that must come out, and how to make it."""
    lines: list[tuple[str, float, Callable[[], Work]]] = []

    def add(name: str, must: float, make: Callable[..., Work], *arguments: Any) -> None:
        lines.append((name, must, partial(make, *arguments)))

    sizes = (
        (12, 2048, 64, False),
        (12, 2048, 64, True),
        (8, 4096, 128, False),
        (8, 4096, 128, True),
    )
    for dtype, musts in (("float32", (1.2, 1.45, 1.2, 1.3)), ("bfloat16", (2.2, 2.6, 2.2, 2.4))):
        for (heads, n, d, causal), must in zip(sizes, musts, strict=True):
            name = f"{dtype}, {heads} heads, n {n}, d {d}, {_word(causal)}"
            add(name, must, forward, heads, n, d, dtype, causal)
    for d in (96, 256):
        for causal, must in ((False, 1.2), (True, 1.3)):
            name = f"float32, 8 heads, n 2039, d {d}, {_word(causal)}"
            add(name, must, forward, 8, 2039, d, "float32", causal)
    for heads, dtype, must in ((32, "float32", 2.0), (32, "bfloat16", 6.0), (1, "float32", 3.0)):
        name = f"decode, {heads} head{'s' if heads > 1 else ''}, 8192 keys, d 128, {dtype}"
        add(name, must, decode, heads, 8192, dtype)
    add("tiny: 12 heads, n 8, d 64, NumPy in and out", 1.3, forward, 12, 8, 64, "float32", False)
    for make, what, musts in (
        (training, "forward + backward", (1.0, 1.2)),
        (eager, "eager with the same health", (6.0, 10.0)),
    ):
        for causal, must in zip((False, True), musts, strict=True):
            name = f"{what}, float32, n 2048, d 64, {_word(causal)}"
            add(name, must, make, 12, 2048, 64, causal)
    for dtype in ("float32", "bfloat16"):
        for back, what in ((False, "forward"), (True, "forward + backward")):
            for d in (64, 128):
                name = f"dropout 0.1 beside none, {what}, {dtype}, n 2048, d {d}, causal"
                add(name, 0.87, dropping, dtype, back, d, True)
    return lines


def _word(causal: bool) -> str:
    return "causal" if causal else "full"


def limits() -> dict[str, float]:
    """The machine's own: a matrix product in GFLOP/s and reading memory in GB/s."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        a = torch.randn(2048, 2048).to(getattr(torch, dtype))
        best = min(_time(lambda a=a: a @ a) for _ in range(5))
        found[f"torch matmul {dtype}, GFLOP/s"] = 2 * 2048**3 / best / 1e9
    big = torch.ones(2**26)
    found["reading memory, GB/s"] = (
        big.nbytes / min(_time(lambda: big.sum()) for _ in range(5)) / 1e9
    )
    return found


def _time(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def lengths(seconds: float) -> list[tuple[int, float, float]]:
    """Time over length: causal float32, 12 heads, d 64."""
    points = []
    for n in (64, 128, 256, 512, 1024, 2048, 4096):
        ours, theirs, _, _ = forward(12, n, 64, "float32", True)
        first, second, _ = alternate(ours, theirs, seconds)
        points.append((n, first, second))
        say(f"  n {n}: {first * 1e3:.2f} ms, torch {second * 1e3:.2f} ms")
    return points


def figure(points: list[tuple[int, float, float]]) -> str:
    """Both axes logarithmic, as SVG by hand: two lines need no library."""
    width, height, left, bottom = 640, 400, 70, 50
    xs = [math.log2(n) for n, _, _ in points]
    ys = [math.log10(t * 1e3) for _, a, b in points for t in (a, b)]
    low, high = math.floor(min(ys)), math.ceil(max(ys))

    def at(n: int, t: float) -> str:
        x = left + (math.log2(n) - xs[0]) / (xs[-1] - xs[0]) * (width - left - 20)
        y = height - bottom - (math.log10(t * 1e3) - low) / (high - low) * (height - bottom - 20)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="13">'
             '<rect width="100%" height="100%" fill="white"/>']  # fmt: skip
    for power in range(low, high + 1):
        y = at(points[0][0], 10.0**power / 1e3).split(",")[1]
        parts.append(f'<path d="M{left},{y}H{width - 20}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y}" text-anchor="end" '
                     f'dominant-baseline="middle">{10.0**power:g} ms</text>')  # fmt: skip
    for n, _, _ in points:
        x = at(n, 10.0**low / 1e3).split(",")[0]
        parts.append(f'<text x="{x}" y="{height - bottom + 20}" text-anchor="middle">{n}</text>')
    for column, colour, label in (
        (1, "#b8860b", "limelight, output and health"),
        (2, "#888", "torch, output alone"),
    ):
        line = " ".join(at(p[0], p[column]) for p in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
        parts.append(f'<text x="{left + 15}" y="{15 + 20 * column}" fill="{colour}">{label}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">'
                 "length (causal, float32, 12 heads, d 64)</text></svg>")  # fmt: skip
    return "\n".join(parts)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the time")
    parser.add_argument("--json", action="store_true", help="print JSON, write nothing")
    parser.add_argument(
        "--save", action="store_true", help="write .md, .json and .svg into bench/results"
    )
    parser.add_argument("--isa", help="force an instruction set, as LIMELIGHT_ISA does")
    parser.add_argument("--only", default="", help="lines whose name has this in it")
    given = parser.parse_args()
    if given.isa:
        native.set_isa(given.isa)
    seconds = 0.6 if given.quick else 3.0
    load = os.getloadavg()[0]
    chosen = [line for line in table() if given.only in line[0]]
    lines = []
    for number, (name, must, make) in enumerate(chosen, 1):
        say(f"[{number}/{len(chosen)}] {name}")
        ours, theirs, amount, unit = make()
        first, second, ratio = alternate(ours, theirs, seconds)
        lines.append(Line(name, first, second, ratio, must, f"{amount / first / 1e9:.1f} {unit}"))
    say("limits")
    machine = limits()
    points = [] if given.only else (say("time over length"), lengths(seconds / 4))[1]
    forced = [f"LIMELIGHT_ISA={isa}"] if (isa := os.environ.get("LIMELIGHT_ISA")) else []
    about = {
        "command": " ".join([*forced, "python", "bench/cpu.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "load before": f"{load:.1f}",
        "versions": f"limelight {ll.__version__}, torch {torch.__version__}",
        "threads": native.threads(), "instruction set": native.isa(),
    }  # fmt: skip
    data = {**about, "limits": machine, "lines": [asdict(x) for x in lines], "lengths": points}
    text = json.dumps(data, indent=1)
    if given.json:
        print(text)
        return
    page = report(about, machine, lines)
    print(page)
    if given.save:
        best = native.isa() == native.isas()[0]
        stem = HERE / ("cpu" if best else f"cpu-{native.isa()}")
        HERE.mkdir(exist_ok=True)
        stem.with_suffix(".json").write_text(text + "\n")
        if points:
            stem.with_suffix(".svg").write_text(figure(points))
            page += f"\n![time over length]({stem.name}.svg)\n"
        stem.with_suffix(".md").write_text(page)


def report(about: dict[str, Any], machine: dict[str, float], lines: list[Line]) -> str:
    text = ["# CPU: output and health here, against torch", ""]
    text += [f"- {name}: {value}" for name, value in about.items()]
    text += [f"- {name}: {value:.0f}" for name, value in machine.items()]
    text += [
        "",
        "| work | here, ms | | the other, ms | ratio | at least |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        mark = "" if line.ratio >= line.must else " (missed)"
        text.append(
            f"| {line.name} | {line.ours * 1e3:.4g} | {line.rate} | {line.theirs * 1e3:.4g} | "
            f"{line.ratio:.2f}×{mark} | {line.must:g}× |"
        )
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    main()
