"""The machine itself: small programs in PTX, whose results and faults are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limelight.engines.gpu import absent
from limelight.engines.hopper import OLDEST

lacking = absent(OLDEST)
pytestmark = pytest.mark.skipif(lacking is not None, reason=str(lacking))

if lacking is None:
    import torch

    from tests.ptx.machine import Stuck, launch
    from tests.ptx.memory import Fault
    from tests.ptx.pace import Pace
    from tests.ptx.program import Program
    from tests.ptx.text import parsed

HEAD = ".visible .entry small(\n\t.param .u64 small_param_0,\n\t.param .u32 small_param_1\n)\n{\n"
# %rd2 is where this thread's number lies, %r1 its number.
BEGIN = """
    ld.param.u64 %rd1, [small_param_0];
    ld.param.u32 %r9, [small_param_1];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
"""


def run(body: str, numbers: Any, given: int = 0, warps: int = 4, pace: Any = None) -> Any:
    """The numbers [threads] after the program, whose shared memory has 4 KB."""
    held = torch.tensor(numbers)
    program = Program(parsed(f"{HEAD}{BEGIN}{body}\n\tret;\n}}\n"))
    launch(program, 1, warps, 4096, [held.data_ptr(), given], [held], pace or Pace())
    return held.numpy()


def of_each(step: str, *operands: Any) -> Any:
    """What an instruction over %r3, %r4, … leaves in %r2, for each lane's operands."""
    count = len(operands[0])
    columns = [np.resize(np.asarray(x), count).astype(np.uint32) for x in operands]
    numbers = np.zeros((len(columns) + 1, 128), np.uint32)
    for i, column in enumerate(columns):
        numbers[i + 1, :count] = column
    loads = "".join(
        f"ld.global.b32 %r{i + 3}, [%rd2 + {512 * (i + 1)}];" for i in range(len(columns))
    )
    body = f"{loads} {step} st.global.b32 [%rd2 + 0], %r2;"
    return run(body, numbers.astype(np.int64).astype(np.int32).reshape(-1))[:count].view(np.uint32)


def bits(*numbers: float) -> Any:
    return np.array(numbers, np.float32).view(np.uint32)


@pytest.mark.parametrize(("step", "operands", "right"), [
    ("lop3.b32 %r2, %r3, %r4, %r5, 0x96;", ([12], [10], [6]), [12 ^ 10 ^ 6]),
    ("lop3.b32 %r2, %r3, %r4, %r5, 0xca;", ([0xF0], [0xAA], [0x55]), [0xA5]),
    ("prmt.b32 %r2, %r3, %r4, %r5;", ([0x33221100], [0x77665544], [0x7610]), [0x77661100]),
    ("prmt.b32 %r2, %r3, %r4, %r5;", ([0x00008000], [0], [0x9999]), [0xFFFFFFFF]),
    ("bfe.s32 %r2, %r3, 4, 1;", ([0x10, 0xF]), [0xFFFFFFFF, 0]),
    ("bfe.u32 %r2, %r3, 8, 8;", ([0x12345678],), [0x56]),
    ("shf.l.wrap.b32 %r2, %r3, %r4, %r5;", ([0x80000001], [0x2], [4]), [0x28]),
    ("shf.r.wrap.b32 %r2, %r3, %r4, %r5;", ([0x12345678], [0x9], [8]), [0x09123456]),
    ("mul.hi.u32 %r2, %r3, %r4;", ([0xD2511F53], [0xFFFFFFFF]), [0xD2511F52]),
    ("shl.b32 %r2, %r3, %r4;", ([1, 1], [31, 32]), [1 << 31, 0]),
    ("shr.s32 %r2, %r3, %r4;", ([0x80000000, 8], [40, 2]), [0xFFFFFFFF, 2]),
    ("div.s32 %r2, %r3, %r4;", ([2**32 - 7], [2]), [2**32 - 3]),
    ("rem.s32 %r2, %r3, %r4;", ([2**32 - 7], [2]), [2**32 - 1]),
    ("min.s32 %r2, %r3, %r4;", ([2**32 - 1], [1]), [2**32 - 1]),
    ("min.u32 %r2, %r3, %r4;", ([2**32 - 1], [1]), [1]),
    ("popc.b32 %r2, %r3;", ([0xF00F, 1]), [8, 1]),
    ("max.f32 %r2, %r3, %r4;", (bits(np.nan), bits(2.0)), bits(2.0)),
    ("max.NaN.f32 %r2, %r3, %r4;", (bits(np.nan, 3.0), bits(2.0)), [0x7FC00000, *bits(3.0)]),
    ("fma.rn.f32 %r2, %r3, %r4, %r5;", (bits(1 + 2**-12), bits(1 - 2**-12), bits(-1.0)), bits(-(2**-24))),
    ("ex2.approx.ftz.f32 %r2, %r3;", (bits(-127.0, 3.0)), bits(0.0, 8.0)),
    ("cvt.rn.bf16x2.f32 %r2, %r3, %r4;", (bits(1.00390625), bits(-2.0)), [0x3F80C000]),
    ("cvt.rn.bf16x2.f32 %r2, %r3, %r4;", (bits(1.01171875), bits(np.nan)), [0x3F827FFF]),
    ("cvt.rzi.s32.f32 %r2, %r3;", (bits(-2.7)), [2**32 - 2]),
    ("cvt.rni.s32.f32 %r2, %r3;", (bits(2.5)), [2]),
    ("{ .reg .b16 h; cvt.s8.s32 h, %r3; cvt.s32.s16 %r2, h; }", ([0x1F0, 0x10F],), [2**32 - 16, 15]),
    ("mul.rn.bf16x2 %r2, %r3, %r4;", ([0x3F804000], [0x40003F00]), [0x40003F80]),
    ("{ .reg .pred p; setp.leu.f32 p, %r3, %r4; selp.b32 %r2, 1, 0, p; }", (bits(np.nan, 2.0), bits(1.0)), [1, 0]),
    ("{ .reg .pred p; setp.neu.f32 p, %r3, %r4; selp.b32 %r2, 1, 0, p; }", (bits(np.nan, 2.0), bits(2.0)), [1, 0]),
    *((f"{{ .reg .pred p, q; setp.eq.{kind}x2 p|q, %r3, %r4; selp.b32 %r2, 1, 0, {which}; }}",
       ([one << 16 | nan, nan << 16 | one], [one << 16 | one]), right)
      for kind, one, nan in (("bf16", 0x3F80, 0x7FC0), ("f16", 0x3C00, 0x7E00))
      for which, right in (("p", [0, 1]), ("q", [1, 0]))),
    ("{ .reg .b64 t; mul.wide.u32 t, %r3, %r4; mov.b64 {_, %r2}, t; }", ([1 << 31], [6]), [3]),
    ("{ .reg .b16 a, b; mov.b32 {a, b}, %r3; mov.b32 %r2, {b, a}; }", ([0x12345678],), [0x56781234]),
], ids=lambda x: x.split(";")[0] if isinstance(x, str) else "")  # fmt: skip
def test_an_instruction(step: str, operands: Any, right: Any) -> None:
    operands = operands if isinstance(operands, tuple) else (operands,)
    np.testing.assert_array_equal(of_each(step, *operands), np.asarray(right, np.uint32))


def test_threads_part_and_meet() -> None:
    """Odd threads go a longer way; all of a warp are there again where it exchanges numbers."""
    body = """
        and.b32 %r2, %r1, 1;
        mov.b32 %r3, 10;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra $L_MEET;
    $L_AGAIN:
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, %r1;
        @%p2 bra $L_AGAIN;
    $L_MEET:
        shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
        st.global.b32 [%rd2], %r4;
    """
    found = run(body, np.zeros(128, np.int32))
    went = np.where(np.arange(128) % 2, np.maximum(11, np.arange(128)), 10)
    np.testing.assert_array_equal(found, went[np.arange(128) ^ 1])


BARRIERS = """
    mov.b32 %r7, global_smem;
    shl.b32 %r2, %r1, 2;
    add.u32 %r3, %r7, %r2;
    st.shared.b32 [%r3 + 1024], %r1;
    bar.sync 0;
    xor.b32 %r4, %r2, 512;
    add.u32 %r4, %r7, %r4;
    ld.shared.b32 %r5, [%r4 + 1024];
    st.global.b32 [%rd2], %r5;
"""


@pytest.mark.parametrize("turns", ["forward", "backward", 0, 1])
def test_warpgroups_wait_at_a_barrier(turns: Any) -> None:
    found = run(BARRIERS, np.zeros(256, np.int32), warps=8, pace=Pace(turns=turns))
    np.testing.assert_array_equal(found, np.arange(256) ^ 128)


def test_without_the_barrier_some_order_shows_it() -> None:
    found = [
        run(BARRIERS.replace("bar.sync 0;", ""), np.zeros(256, np.int32), 0, 8, Pace(turns=turns))
        for turns in ("forward", "backward")
    ]
    assert any((x != np.arange(256) ^ 128).any() for x in found)


WAITS = """
    mov.b32 %r7, global_smem;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r7], {count};
    bar.sync 0;
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r7];
    mov.b32 %r8, 0;
    {{
        .reg .pred complete;
        waitLoop:
        mbarrier.try_wait.parity.shared.b64 complete, [%r7], %r8;
        @!complete bra.uni waitLoop;
    }}
    st.global.b32 [%rd2], %r1;
"""


def test_a_barrier_that_nobody_reaches_is_told() -> None:
    np.testing.assert_array_equal(run(WAITS.format(count=1), np.zeros(128, np.int32)), range(128))
    with pytest.raises(Stuck, match=r"128 threads from 0 at mbarrier\.try_wait"):
        run(WAITS.format(count=2), np.zeros(128, np.int32))


@pytest.mark.parametrize(("body", "said"), [
    ("ld.global.b32 %r2, [%rd2 + 512];", "in none of the tensors"),
    ("st.global.b32 [%rd2 + -4], %r1;", "in none of the tensors"),
    ("ld.global.b32 %r2, [%rd2 + 2];", "no multiple"),
    ("mov.b32 %r7, global_smem; st.shared.b32 [%r7 + 4096], %r1;", "shared memory from"),
    ("mov.b32 %r7, global_smem; mbarrier.arrive.shared::cta.b64 _, [%r7];", "that nobody began"),
])  # fmt: skip
def test_what_no_kernel_may_do_is_told(body: str, said: str) -> None:
    with pytest.raises(Fault, match=said):
        run(body, np.zeros(128, np.int32))


def test_shared_memory_is_no_number_before_it_is_written() -> None:
    body = "mov.b32 %r7, global_smem; ld.shared.b32 %r2, [%r7]; st.global.b32 [%rd2], %r2;"
    assert np.isnan(run(body, np.zeros(128, np.float32))).all()
