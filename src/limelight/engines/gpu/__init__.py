"""What the GPU engines are made of.

Kernels: hopper_forward (Gluon); forward, decode, again, backward, pool, classify (Triton), on the
common ground of cells. Running them: launch and kept for all; blocks, portable, gradients and
looking for the Triton ones; masks and plan for what a mask allows; interpreter for a CPU.
"""
