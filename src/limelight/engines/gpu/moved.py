"""Names of Gluon that moved after Triton 3.6: the kernels compile with the old and the new."""

# mypy: ignore-errors
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

_shared = gl.shared_memory_descriptor

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
reinterpret = _shared.reinterpret if hasattr(_shared, "reinterpret") else _shared._reinterpret
if hasattr(tma, "async_load"):
    tma_load, tma_store = tma.async_load, tma.async_store
else:
    tma_load, tma_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global
