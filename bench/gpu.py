"""GPU attention against torch's: TFLOP/s and ratios, the machine's limits first.

    PYTHONPATH=src python bench/gpu.py                 everything, some minutes
    PYTHONPATH=src python bench/gpu.py --only forward  one part: limits, forward, shapes, training,
                                                       backward, masks, kinds, decode, eager,
                                                       small, step, picture
    PYTHONPATH=src python bench/gpu.py --write bench/results/h200.md

All contenders of a row are measured in turn, in another order each round, and the median is taken,
so that the clock's drift under load falls on all of them. FLOPs are those of the two products that
the mask leaves (four times the allowed cells times the head size); the backward pass counts 2.5
times that. `health` is output, logsumexp, maximum logit and entropy; `output` is output and
logsumexp.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import limelight as ll
from limelight.call import prepare
from limelight.engines import find

TOKENS, WIDTH = 16_384, 2_048  # batch × length, and heads × size
Contenders = dict[str, Callable[[], Any]]


def timed(contenders: Contenders, rounds: int = 9, budget_ms: float = 8.0) -> dict[str, float]:
    """Milliseconds a call, the median over rounds; a contender that fails is left out."""
    repeats: dict[str, int] = {}
    for name, run in list(contenders.items()):
        try:
            run()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"    {name}: {type(error).__name__}: {str(error)[:90]}", file=sys.stderr)
            continue
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        torch.cuda.synchronize()
        repeats[name] = max(2, int(budget_ms / max(1e-3, start.elapsed_time(stop))))

    def one(name: str) -> float:
        run, count = contenders[name], repeats[name]
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        run()
        start.record()
        for _ in range(count):
            run()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) / count

    return medians(repeats, one, rounds)


def medians(
    names: Iterable[str], measure: Callable[[str], float], rounds: int = 9
) -> dict[str, float]:
    """Of what is measured of each in turn, in another order each round."""
    series: dict[str, list[float]] = {name: [] for name in names}
    order = list(series)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)  # a slow one leaves a cooler card to the next
        for name in order:
            series[name].append(measure(name))
    return {name: statistics.median(taken) for name, taken in series.items()}


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def sdpa(backend: SDPBackend, *tensors: torch.Tensor, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*tensors, **options)

    return run


def ours(name: str, call: Any, health: bool) -> Callable[[], Any]:
    module = find(name).module
    return lambda: module.forward(call, health=health)


LESS = {"µs": 1e3, "ms": 1.0}  # units of a time, of which less is better
Row = tuple[str, float, dict[str, float]]  # label, work, milliseconds of each contender


def table(title: str, rows: list[Row], unit: str, per: str, digits: int = 0) -> str:
    """Rates of each contender, and ours against the column `per`."""
    names = list(dict.fromkeys(name for _, _, times in rows for name in times))
    lines = [f"### {title}", "", f"| {unit} | " + " | ".join(names) + " |",
             "|---|" + "---|" * len(names)]  # fmt: skip
    for label, work, times in rows:
        cells = []
        for name in names:
            if name not in times:
                cells.append("–")
                continue
            rate = work / times[name] / 1e9
            cell = f"{times[name] * LESS[unit]:.1f}" if unit in LESS else f"{rate:.{digits}f}"
            if name.startswith("limelight") and per in times:
                cell += f" ({times[per] / times[name]:.2f}×)"
            cells.append(cell)
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def limits() -> Iterator[str]:
    a, b = normal(8192, 8192), normal(8192, 8192)
    for _ in range(4000):  # the clock falls under load: let it settle first
        a @ b
    big = torch.empty(1 << 32, dtype=torch.uint8, device="cuda")
    half = big[: 1 << 31], big[1 << 31 :]
    times = timed({"product": lambda: a @ b, "copy": lambda: half[0].copy_(half[1])}, budget_ms=20)
    yield (
        f"Matrix product 8192³, bf16: {2 * 8192**3 / times['product'] / 1e9:.0f} TFLOP/s. "
        f"Device copy: {2 * (1 << 31) / times['copy'] / 1e9:.2f} TB/s.\n"
    )


def flex(q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    n = q.shape[2]
    mask = None
    if causal:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cuda")
    return lambda: compiled(q, k, v, block_mask=mask)


def forward() -> Iterator[str]:
    for size in (128, 64):
        rows = []
        for n in (2048, 4096, 8192, 16_384):
            for causal in (False, True):
                q, k, v = (normal(TOKENS // n, WIDTH // size, n, size) for _ in range(3))
                call = prepare(q, k, v, mask=ll.Causal() if causal else None)
                contenders = {
                    "cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, is_causal=causal),
                    "flash (FA2)": sdpa(SDPBackend.FLASH_ATTENTION, q, k, v, is_causal=causal),
                    "limelight, health": ours("hopper", call, True),
                    "limelight, output": ours("hopper", call, False),
                }
                if n == 16_384:
                    contenders["FlexAttention"] = flex(q, k, v, causal)
                    contenders["limelight, triton engine, health"] = ours("triton", call, True)
                work = 4.0 * TOKENS * WIDTH * n * (0.5 if causal else 1.0)
                rows.append((f"{n} {'causal' if causal else 'full'}", work, timed(contenders)))
        title = f"Forward, head size {size}, batch × length 16,384, width 2,048"
        yield table(title, rows, "TFLOP/s", "cuDNN")


def shapes() -> Iterator[str]:
    rows = []
    for label, batch, heads, key_heads, n, size, mask, share in (
        ("512, size 64, causal", 32, 32, 32, 512, 64, ll.Causal(), 0.5),
        ("512, size 128, causal", 32, 16, 16, 512, 128, ll.Causal(), 0.5),
        ("4096, size 256, full", 4, 8, 8, 4096, 256, None, 1.0),
        ("4096, size 256, causal", 4, 8, 8, 4096, 256, ll.Causal(), 0.5),
        ("4096, size 96, causal", 4, 16, 16, 4096, 96, ll.Causal(), 0.5),
        ("16384, 64 / 8 heads, size 128, causal", 1, 64, 8, 16_384, 128, ll.Causal(), 0.5),
        ("65536, size 128, causal", 1, 4, 4, 65_536, 128, ll.Causal(), 0.5),
        ("65536, size 128, window 4096", 1, 16, 16, 65_536, 128,
         ll.Causal() & ll.Window(4095, None), 4096 / 65_536 * (1 - 2048 / 65_536)),
        ("16384, size 128, 8 documents, causal", 1, 16, 16, 16_384, 128,
         ll.Documents([i // 2048 for i in range(16_384)]) & ll.Causal(), 0.5 / 8),
    ):  # fmt: skip
        q = normal(batch, heads, n, size)
        k, v = (normal(batch, key_heads, n, size) for _ in range(2))
        call = prepare(q, k, v, mask=mask)
        contenders = {
            "limelight, health": ours("hopper", call, True),
            "limelight, output": ours("hopper", call, False),
        }
        if "window" not in label and "documents" not in label:
            causal = mask is not None
            contenders["cuDNN"] = sdpa(
                SDPBackend.CUDNN_ATTENTION, q, k, v, is_causal=causal, enable_gqa=key_heads < heads
            )
        work = 4.0 * batch * heads * n * n * size * share
        rows.append((label, work, timed(contenders, rounds=3)))
    yield table("Forward, other shapes", rows, "TFLOP/s", "cuDNN")


def there_and_back(run: Callable[[], Any], leaves: Any, grad: Any) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(run(), leaves, grad)


def flash4(q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any] | None:
    """FlashAttention-4's kernels for this chip, where they are installed."""
    try:
        from flash_attn.cute import flash_attn_func
    except ImportError:
        return None

    def run() -> Any:
        out = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return run


def training() -> Iterator[str]:
    """Forward and backward through the public calls."""
    for size in (128, 64):
        rows = []
        for n in (2048, 4096, 8192, 16_384):
            for causal in (False, True):
                q, k, v = (normal(TOKENS // n, WIDTH // size, n, size) for _ in range(3))
                leaves = [x.requires_grad_() for x in (q, k, v)]
                grad = torch.randn_like(q)
                mask = ll.Causal() if causal else None
                forwards = {
                    "cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, is_causal=causal),
                    "limelight": lambda x=leaves, m=mask: ll.attention(*x, mask=m),
                    "limelight, health": lambda x=leaves, m=mask: ll.inspect(*x, mask=m).output,
                }
                peer = flash4(q, k, v, causal)
                if peer is not None:
                    forwards["FA4"] = peer
                contenders = {
                    name: there_and_back(run, leaves, grad) for name, run in forwards.items()
                }
                work = 3.5 * 4.0 * TOKENS * WIDTH * n * (0.5 if causal else 1.0)
                label = f"{n} {'causal' if causal else 'full'}"
                rows.append((label, work, timed(contenders, rounds=5)))
        yield table(f"Forward + backward, head size {size}", rows, "TFLOP/s", "cuDNN")


def backward() -> Iterator[str]:
    """The engine's backward alone, and the one that sums in a fixed order."""
    module, portable = find("hopper").module, find("triton").module
    rows = []
    for size, n in ((128, 2048), (128, 16_384), (64, 2048), (64, 16_384)):
        for causal in (False, True):
            q, k, v = (normal(TOKENS // n, WIDTH // size, n, size) for _ in range(3))
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            out = sdpa(SDPBackend.CUDNN_ATTENTION, *leaves, is_causal=causal)()
            grad = torch.randn_like(out)
            call = prepare(q, k, v, mask=ll.Causal() if causal else None)
            state = module.forward(call, health=False)

            def torchs(out: Any = out, leaves: Any = leaves, grad: Any = grad) -> Any:
                return torch.autograd.grad(out, leaves, grad, retain_graph=True)

            times = timed({
                "cuDNN": torchs,
                "limelight": lambda c=call, s=state, g=grad: module.backward(c, s, g),
                "limelight, deterministic":
                    lambda c=call, s=state, g=grad: portable.backward(c, s, g),
            }, rounds=5)  # fmt: skip
            work = 2.5 * 4.0 * TOKENS * WIDTH * n * (0.5 if causal else 1.0)
            rows.append((f"{n}, size {size}, {'causal' if causal else 'full'}", work, times))
    yield table("Backward alone", rows, "TFLOP/s", "cuDNN")


def masks() -> Iterator[str]:
    """Masks at 16k, head size 128, against compiled FlexAttention."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n, size, heads = 16_384, 128, 16
    ragged = [0] * n
    draw = random.Random(0)
    for cut in sorted(draw.sample(range(1, n), 11)):
        ragged[cut:] = [ragged[cut] + 1] * (n - cut)
    even = [i // 2048 for i in range(n)]
    places = {name: torch.tensor(ids, device="cuda") for name, ids in (("e", even), ("r", ragged))}
    row = torch.arange(n, device="cuda")

    def alike(name: str) -> Callable[..., Any]:
        ids = places[name]
        return lambda b, h, i, j: (ids[i] == ids[j]) & (i >= j)

    kinds: dict[str, tuple[ll.Mask, Callable[..., Any]]] = {
        "8 documents, causal": (ll.Documents(even) & ll.Causal(), alike("e")),
        "12 ragged documents, causal": (ll.Documents(ragged) & ll.Causal(), alike("r")),
        "window 1,024, causal": (
            ll.Causal() & ll.Window(1023, None), lambda b, h, i, j: (i >= j) & (i - j < 1024)),
        "prefix 4,096, causal": (ll.Prefix(4096) | ll.Causal(),
                                 lambda b, h, i, j: (i >= j) | (j < 4096)),
    }  # fmt: skip
    q, k, v, grad = (normal(1, heads, n, size) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    forwards, both = [], []
    compiled = torch.compile(flex_attention, dynamic=False)
    for name, (mask, rule) in kinds.items():
        block = create_block_mask(rule, None, None, n, n, device="cuda")
        seen = sum(int(rule(0, 0, row[i : i + 512, None], row).sum()) for i in range(0, n, 512))
        runs = {
            "FlexAttention": lambda m=block: compiled(*leaves, block_mask=m),
            "limelight": lambda m=mask: ll.attention(*leaves, mask=m),
            "limelight, health": lambda m=mask: ll.inspect(*leaves, mask=m).output,
        }
        work = 4.0 * heads * seen * size

        def quiet(run: Callable[[], Any]) -> Callable[[], Any]:
            return torch.no_grad()(run)

        forwards.append((name, work, timed({k: quiet(r) for k, r in runs.items()}, rounds=5)))
        back = {k: there_and_back(run, leaves, grad) for k, run in runs.items()}
        both.append((name, 3.5 * work, timed(back, rounds=5)))
    title = "16,384 × 16,384 under masks, size 128, against FlexAttention"
    yield table(f"{title}: forward", forwards, "TFLOP/s", "FlexAttention")
    yield table(f"{title}: forward + backward", both, "TFLOP/s", "FlexAttention")


def kinds() -> Iterator[str]:
    """What turns dot products into logits, dropout, grouped heads: each beside the plain kind.

    Kinds that are compared with each other take turns: between one row and the next the card's
    clock drifts by more than they differ.
    """
    from limelight.torch import attention

    n, flash = 8192, "flash (FA2)"
    drop = {"dropout": 0.1}
    groups: list[tuple[int, dict[str, tuple[int, int, dict[str, Any]]]]] = [
        (128, {
            "plain": (16, 16, {}), "dropout 0.1": (16, 16, drop),
            "softcap": (16, 16, {"softcap": 20.0}),
            "sinks": (16, 16, {"sinks": torch.zeros(16, device="cuda")}),
            "bias, bfloat16": (16, 16, {"bias": normal(1, 1, n, n)}),
        }),
        (128, {"64 / 64 heads": (64, 64, {}), "64 / 8 heads": (64, 8, {})}),
        (64, {"size 64, plain": (32, 32, {}), "size 64, dropout 0.1": (32, 32, drop)}),
    ]  # fmt: skip
    forwards, both = [], []
    for size, group in groups:
        quiet: Contenders = {}
        back: Contenders = {}
        for label, (heads, key_heads, options) in group.items():
            q = normal(1, heads, n, size).requires_grad_()
            k, v = (normal(1, key_heads, n, size).requires_grad_() for _ in range(2))
            grad = torch.randn_like(q)

            def run(q: Any = q, k: Any = k, v: Any = v, options: Any = options) -> Any:
                return attention(q, k, v, mask=ll.Causal(), **options)

            runs = {label: run}
            if heads * size == WIDTH and set(options) <= {"dropout"}:
                share = options.get("dropout", 0.0)
                runs[flash + label] = sdpa(
                    SDPBackend.FLASH_ATTENTION, q, k, v, is_causal=True, dropout_p=share
                )
            quiet |= {name: torch.no_grad()(each) for name, each in runs.items()}
            back |= {name: there_and_back(each, (q, k, v), grad) for name, each in runs.items()}
        for contenders, rows, passes in ((quiet, forwards, 1.0), (back, both, 3.5)):
            times = timed(contenders, rounds=5)
            first = times[next(iter(group))]
            for label, (heads, _, _) in group.items():
                work = passes * 4.0 * heads * n * n * size * 0.5
                taken = {"limelight": times[label]}
                if flash + label in times:
                    taken[flash] = times[flash + label]
                rows.append((f"{label}: {first / times[label]:.2f}", work, taken))
    title = "Kinds of attention beside the first of their group, 8,192 × 8,192, causal, size 128"
    yield table(f"{title}: forward", forwards, "TFLOP/s", flash)
    yield table(f"{title}: forward + backward", both, "TFLOP/s", flash)


def decode() -> Iterator[str]:
    rows = []
    module = find("hopper").module
    for batch, n in ((16, 8192), (1, 131_072), (64, 4096)):
        q = normal(batch, 32, 1, 128)
        caches = [(normal(batch, 8, n, 128), normal(batch, 8, n, 128)) for _ in range(2)]
        turn = iter(int(i % 2) for i in range(1 << 40))
        calls = [prepare(q, k, v) for k, v in caches]

        def cudnn(q: Any = q, caches: Any = caches, turn: Any = turn) -> Any:
            k, v = caches[next(turn)]
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        times = timed({
            "cuDNN": cudnn,
            "limelight, health": lambda c=calls, t=turn: module.forward(c[next(t)], health=True),
            "limelight, output": lambda c=calls, t=turn: module.forward(c[next(t)], health=False),
        }, budget_ms=5)  # fmt: skip
        rows.append((f"{batch} × {n}", 2.0 * batch * 8 * n * 128 * 2, times))
    title = "Decode, 32 query / 8 key heads, size 128, two caches in turn"
    yield table(title, rows, "TB/s of keys and values", "cuDNN", digits=2)


def eager() -> Iterator[str]:
    n, size, heads = 8192, 128, 16
    q, k, v = (normal(2, heads, n, size) for _ in range(3))
    call = prepare(q, k, v)

    def formula() -> Any:
        s = (q @ k.transpose(-1, -2)).float() * size**-0.5
        lse = s.logsumexp(-1, keepdim=True)
        p = (s - lse).exp()
        return p.to(q.dtype) @ v, s.amax(-1), lse, lse.squeeze(-1) - (p * s).sum(-1)

    times = timed({"eager formula": formula, "limelight, health": ours("hopper", call, True)},
                  rounds=3)  # fmt: skip
    work = 4.0 * 2 * heads * n * n * size
    yield table("Output and health, 2 × 8192, size 128, full", [("8192", work, times)], "TFLOP/s",
                "eager formula")  # fmt: skip


def small() -> Iterator[str]:
    """The host's share: calls so small that launching them is all."""
    shapes = {f"1 × 8 × {n}, size 64, causal": (1, 8, 8, n, n, 64, True) for n in (128, 512)} | {
        f"decode {b} × 8192, 32 / 8 heads": (b, 32, 8, 1, 8192, 128, False) for b in (1, 16)
    }
    rows = []
    for label, (batch, heads, key_heads, nq, nk, size, causal) in shapes.items():
        q = normal(batch, heads, nq, size)
        k, v = (normal(batch, key_heads, nk, size) for _ in range(2))
        options: dict[str, Any] = {"is_causal": causal, "enable_gqa": heads > key_heads}
        mask = ll.Causal() if causal else None
        contenders = {
            "torch": lambda x=(q, k, v), o=options: F.scaled_dot_product_attention(*x, **o),
            "limelight.attention": lambda x=(q, k, v), m=mask: ll.attention(*x, mask=m),
            "limelight.inspect": lambda x=(q, k, v), m=mask: ll.inspect(*x, mask=m),
        }

        def one(name: str, contenders: Contenders = contenders) -> float:
            run = contenders[name]
            for _ in range(20):
                run()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                run()
            torch.cuda.synchronize()
            return (time.perf_counter() - start) / 100 * 1e3

        rows.append((label, 0.0, medians(contenders, one)))
    yield table("Small calls, launch included", rows, "µs", "torch")
    yield f"A new length, forward + backward, size 128, causal: {_new_lengths():.1f} ms.\n"


def _new_lengths() -> float:
    """Milliseconds of a first call with lengths never seen, the kernels compiled before."""
    taken = []
    for n in (1024, 1111, 1234, 1300, 1499):
        leaves = [normal(2, 8, n, 128).requires_grad_() for _ in range(3)]
        torch.cuda.synchronize()
        start = time.perf_counter()
        ll.attention(*leaves, mask=ll.Causal()).sum().backward()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken[1:])


def step() -> Iterator[str]:
    """A training step of a Llama of a billion parameters over 8,192 tokens, beside torch's own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from limelight import hf

    hf.register()
    config = LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=32_000, max_position_embeddings=8192, use_cache=False,
    )  # fmt: skip
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).train()
    tokens = torch.randint(0, config.vocab_size, (1, 8192), device="cuda")

    def run(name: str) -> Callable[[], Any]:
        def train() -> Any:
            model.set_attn_implementation(name)
            model(tokens, labels=tokens).loss.backward()
            model.zero_grad()

        return train

    contenders = {"sdpa": run("sdpa"), "limelight": run("limelight")}
    times = timed(contenders, rounds=7, budget_ms=1.0)
    yield table("A training step, Llama of 1.0 billion, 8,192 tokens", [("step", 0.0, times)], "ms",
                "sdpa")  # fmt: skip


def picture() -> Iterator[str]:
    n = 131_072
    q, k = normal(1, 1, n, 64), normal(1, 1, n, 64)
    call = prepare(q, k, k, mask=ll.Causal())
    state = find("hopper").module.forward(call, health=False)
    edges = list(range(0, n + 1, n // 512))
    module = find("triton").module
    times = timed({
        "pooled to 512 × 512": lambda: module.pool(call, state.logsumexp, edges, edges, "max"),
        "received": lambda: module.received(call, state.logsumexp),
    }, rounds=2, budget_ms=1)  # fmt: skip
    parts = ", ".join(f"{name} in {ms:.0f} ms" for name, ms in times.items())
    yield f"One causal head of 131,072 × 131,072, size 64: {parts}.\n"


PARTS = (
    limits, forward, shapes, training, backward, masks, kinds, decode, eager, small, step, picture
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", choices=[part.__name__ for part in PARTS])
    parser.add_argument("--write", type=Path, help="also write the tables to this file")
    arguments = parser.parse_args()
    if find("hopper").missing():
        sys.exit(f"This bench needs a Hopper GPU: {find('hopper').missing()}")
    command = "PYTHONPATH=src python bench/gpu.py"
    if arguments.only:
        command += " --only " + " ".join(arguments.only)
    if arguments.write:
        command += f" --write bench/results/{arguments.write.name}"
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    import triton

    pages = [
        f"# {torch.cuda.get_device_name()}: attention in bfloat16\n",
        f"Made by `{command.strip()}`; torch {torch.__version__}, Triton {triton.__version__}, "
        f"cuDNN {torch.backends.cudnn.version()}, driver {driver}.\n",
    ]
    for page in pages:
        print(page, flush=True)
    for part in PARTS:
        if arguments.only and part.__name__ not in arguments.only:
            continue
        for page in part():
            pages.append(page)
            print(page, flush=True)
            if arguments.write:
                arguments.write.write_text("\n".join(pages))


if __name__ == "__main__":
    main()
