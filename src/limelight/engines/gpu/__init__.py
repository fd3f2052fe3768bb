"""What the GPU engines are made of.

Kernels: hopper_forward and hopper_backward (Gluon); forward, decode, again, backward, edges, pool,
classify (Triton), on the common ground of cells. Running them: launch and kept for all; blocks,
portable, gradients and looking for the Triton ones; hopper_gradients for the Hopper backward; masks
and plan for what a mask allows; interpreter for a CPU.
"""
