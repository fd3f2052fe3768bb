"""The native engine with memory, numbers and sizes as bad as they come."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines import native

pytestmark = pytest.mark.skipif(native.missing() is not None, reason=str(native.missing()))

RNG = np.random.default_rng(0)


def _normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def _misaligned(array: Any) -> Any:
    raw = np.empty(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


LAYOUTS = {
    "sizes last but one": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "lengths first": lambda x: x.transpose(2, 0, 1, 3).copy().transpose(1, 2, 0, 3),
    "backwards": lambda x: x[:, :, ::-1, ::-1].copy()[:, :, ::-1, ::-1],
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "misaligned": _misaligned,
    "odd strides": lambda x: np.pad(x.view(np.uint8), ((0, 0),) * 3 + ((0, 3),))[..., :-3].view(
        x.dtype
    ),
}


@pytest.mark.parametrize("queries", [2, 37])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout_gives_the_same_bits(layout: str, queries: int) -> None:
    query, key, value = _normal(2, 2, queries, 64), _normal(2, 2, 131, 64), _normal(2, 2, 131, 64)
    bent = [LAYOUTS[layout](x) for x in (query, key, value)]
    for array in bent:
        array.flags.writeable = False
    one, two = (prepare(*arrays, mask=ll.Causal()) for arrays in ((query, key, value), bent))
    a, b = native.forward(one, health=True), native.forward(two, health=True)
    # A key whose numbers are apart cannot be read in whole vectors, and its dot product is summed
    # in another order: the same to rounding.
    exact = layout in ("lengths first", "misaligned") or queries > 8
    for name in ("output", "logsumexp", "max_logit", "entropy"):
        tolerance = 0 if exact else 1e-6
        np.testing.assert_allclose(
            getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance
        )
    grad = _normal(2, 2, queries, 64)
    first, second = native.backward(one, a, grad), native.backward(two, a, LAYOUTS[layout](grad))
    for x, y in zip(
        (first.query, first.key, first.value), (second.query, second.key, second.value), strict=True
    ):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("queries", [3, 37, 200])
@pytest.mark.parametrize("how", ["causal", "lengths", "array", "bias"])
def test_what_is_masked_cannot_leak(bad: float, queries: int, how: str) -> None:
    keys, hidden = 211, slice(180, 190)
    query, key, value = _normal(1, 2, queries, 64), _normal(1, 2, keys, 64), _normal(1, 2, keys, 64)
    seen = np.ones((queries, keys), bool)
    seen[:, hidden] = False
    seen[-1, hidden] = how in ("array", "bias")  # one row may see them
    options: dict[str, Any] = {
        "causal": {"mask": ll.Causal(align="top-left") & seen},
        "lengths": {"mask": ll.Lengths([180])},
        "array": {"mask": seen},
        "bias": {"bias": np.where(seen, np.float32(0.5), np.float32(-np.inf))},
    }[how]
    clean = prepare(query, key, value, **options)
    for spoil in (key, value):
        saved = spoil[:, :, hidden].copy()
        spoil[:, :, hidden] = bad
        dirty = prepare(query, key, value, **options)
        spoilt = native.forward(dirty, health=True)
        grads = native.backward(dirty, spoilt, np.ones_like(spoilt.output))
        spoil[:, :, hidden] = saved
        fine = native.forward(clean, health=True)
        rows = slice(0, queries - 1)
        np.testing.assert_array_equal(spoilt.output[:, :, rows], fine.output[:, :, rows])
        np.testing.assert_array_equal(spoilt.entropy[:, :, rows], fine.entropy[:, :, rows])
        assert np.isfinite(grads.query[:, :, rows]).all()
        if how in ("array", "bias"):
            assert not np.isfinite(spoilt.output[:, :, -1]).all()  # and where it is seen it shows
        else:
            assert np.isfinite(grads.key).all()
            assert np.isfinite(grads.value).all()


def test_nan_of_a_row_without_keys_stays_out_of_gradients() -> None:
    query, key = _normal(1, 1, 40, 16), _normal(1, 1, 50, 16)
    query[:, :, 7] = np.nan
    mask = np.ones((40, 50), bool)
    mask[7] = False
    call = prepare(query, key, key, mask=mask)
    state = native.forward(call, health=True)
    grad = _normal(1, 1, 40, 16)
    grad[:, :, 7] = np.nan
    grads = native.backward(call, state, grad)
    for array in (state.output, grads.query, grads.key, grads.value):
        assert np.isfinite(array).all()


def test_nan_that_is_seen_shows_everywhere_it_is_seen() -> None:
    query, key, value = _normal(1, 1, 30, 8), _normal(1, 1, 40, 8), _normal(1, 1, 40, 8)
    value[0, 0, 3, 2] = np.nan
    call = prepare(query, key, value)
    exact = reference.forward(call)
    np.testing.assert_array_equal(
        np.isnan(native.forward(call, health=True).output), np.isnan(exact.output)
    )
    key[0, 0, 5] = np.nan
    state = native.forward(prepare(query, key, value), health=True)
    for array in (state.output, state.logsumexp, state.max_logit, state.entropy):
        assert np.isnan(array).all()


def test_equal_huge_logits_share_their_weight() -> None:
    query = np.full((1, 1, 20, 4), 1e10, np.float32)
    key = np.full((1, 1, 2, 4), 1e10, np.float32)
    value = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)[None, None]
    call = prepare(query, key, value, scale=1.0)
    state = native.forward(call, health=True)
    np.testing.assert_array_equal(state.output, 0.5)
    np.testing.assert_allclose(state.entropy, np.log(2), rtol=1e-6)
    grads = native.backward(call, state, np.ones_like(state.output))
    np.testing.assert_array_equal(grads.value, 10.0)


ARGUMENTS = 0, None, None, None, None, None, None, None, 0, None, 0, 1.0, 0.0, None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({2: (1, 2, 5, 9)}, "the key does not fit"),
        ({3: (1, 2, 6, 8)}, "the value does not fit"),
        ({2: (1, 3, 5, 8), 3: (1, 3, 5, 8)}, "key heads does not fit"),
        ({7: (1, 2, 4, 5)}, "bias does not fit"),
        ({6: (1, 2, 3, 4)}, "mask does not fit"),
        ({9: (3,)}, "sinks does not fit"),
        ({1: (2, 3, 8)}, "number of axes"),
        ({1: (1, 2, 0, 0), 2: (1, 2, 5, 0)}, "the key does not fit"),
    ],
)
def test_sizes_that_do_not_fit_are_errors(
    changes: dict[int, tuple[int, ...]], message: str
) -> None:
    shapes = {1: (1, 2, 3, 8), 2: (1, 2, 5, 8), 3: (1, 2, 5, 8), **changes}
    given = list(ARGUMENTS)
    for at, shape in shapes.items():
        given[at] = np.ones(shape, bool if at == 6 else np.float32)
    output, stats = np.empty((1, 2, 3, 8), np.float32), np.empty((3, 1, 2, 3), np.float32)
    with pytest.raises(ValueError, match=message):
        native._native.forward(*given, output, stats, True)


def test_sizes_beyond_memory_are_errors_not_crashes() -> None:
    few, endless = (
        np.ones((1, 1, 200, 1), np.float32),
        np.broadcast_to(np.float32(1), (1, 1, 2**37, 1)),
    )
    output, stats = np.empty((1, 1, 200, 1), np.float32), np.empty((1, 1, 1, 200), np.float32)
    given = list(ARGUMENTS)
    given[1:4] = few, endless, endless
    with pytest.raises((ValueError, MemoryError)):
        native._native.forward(*given, output, stats, False)
    given[1:4] = (few,) * 3
    with pytest.raises(ValueError, match="does not fit the query and key"):
        native._native.forward(*given, output[:, :, :-1].copy(), stats, False)
    with pytest.raises(ValueError, match="ascend within the matrix"):
        native._native.pool(
            *given,
            stats[0],
            np.array([0, 500]),
            np.array([0, 1]),
            0,
            np.empty((1, 1, 1, 1), np.float32),
        )


def _python(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", **environment},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_import_leaves_denormals_alone() -> None:
    program = """
import numpy as np
from limelight.engines import native
native.forward(__import__("limelight.call").call.prepare(*[np.ones((1, 2, 300, 8), np.float32)] * 3), health=True)
tiny = np.array([1e-40], np.float32)
print("kept" if (tiny * np.float32(0.5))[0] > 0 else "flushed")
"""
    assert "kept" in _python(program)


def test_an_instruction_set_can_be_forced() -> None:
    program = "from limelight.engines import native; print('runs on', native.isa())"
    assert "runs on plain" in _python(program, LIMELIGHT_ISA="plain")
    assert "no instruction set 'avx1024' here: this machine runs" in _python(
        program, LIMELIGHT_ISA="avx1024"
    )


@pytest.mark.parametrize("engine", ["auto", "native"])
def test_a_wrong_instruction_set_is_no_other_one(engine: str) -> None:
    program = f"""
import numpy as np
import limelight as ll
from limelight.engines import native

x = np.ones((1, 1, 3, 4), np.float32)
for mask in (None, ll.Causal()):
    try:
        ll.attention(x, x, x, mask=mask, engine={engine!r})
    except ll.LimelightError as error:
        print(error)
native.set_isa("plain")
print("then", ll.attention(x, x, x, engine={engine!r}).sum())
"""
    told = _python(program, LIMELIGHT_ISA="avx1024")
    assert told.count("LIMELIGHT_ISA: there is no instruction set 'avx1024' here") == 2
    assert "then 12.0" in told


def test_memory_grows_with_the_length_not_its_square() -> None:
    """32,768 rows and keys: less than 64 MB beyond what goes in and what comes out."""
    program = """
import resource
import numpy as np
import limelight as ll

def most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

given = [np.full((1, 1, 32768, 64), 0.1, np.float32) for _ in range(3)]
ll.inspect(*(x[:, :, :500] for x in given))
before = most()
seen = ll.inspect(*given)
out = seen.output.nbytes + sum(x.nbytes for x in vars(seen.health).values() if x is not None)
print("grew by", most() - before - out)
"""
    told = _python(program)
    assert "grew by" in told, told
    assert int(told.rsplit(" ", 1)[1]) < 64e6
