"""Kernels of the GPU engines, one idea a file; `triton.py` and `hopper.py` launch them."""
