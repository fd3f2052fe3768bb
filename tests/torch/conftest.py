"""One thread a process: the sizes are small, and several processes share the machine."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
