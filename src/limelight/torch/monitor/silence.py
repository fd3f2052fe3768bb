"""Why no attention of a model was seen, as far as can be told."""

from __future__ import annotations

import torch
from torch import nn

from limelight.torch.monitor.patch import bare


def why(model: nn.Module, *, ran: bool, evaluated: int, sdpa: bool) -> str:
    """The reason, and what to do about it.

    ran         whether the model's forward is known to have begun
    evaluated   how many calls came while the model was in evaluation mode
    sdpa        whether limelight stood in the place of torch's function
    """
    inner = bare(model)
    name = type(inner).__name__
    if isinstance(inner, torch.jit.ScriptModule):
        return "the model is TorchScript, which hides its attention: watch what it was made of"
    if evaluated:
        passes = "a pass was" if evaluated == 1 else f"{evaluated} passes were"
        return f"{passes} made in evaluation mode, which do not count: call model.train()"
    if not ran and inner._compiled_call_impl is None:  # a model compiled in place does not tell
        return f"the forward of {name} did not run between the last step and this"
    if any(weights.is_meta for weights in inner.parameters()):
        return f"{name} is on meta, where there are shapes and no numbers: load its weights"
    way = getattr(getattr(inner, "config", None), "_attn_implementation", None)
    if way not in (None, "limelight") and not (sdpa and way == "sdpa"):
        other = "" if sdpa else ", or sdpa=True where that is 'sdpa'"
        return (
            f"{name} runs on attn_implementation={way!r}: limelight.hf.register() and "
            f"model.set_attn_implementation('limelight'){other}"
        )
    if not sdpa:
        return (
            f"{name} ran and called no attention of limelight: use limelight.torch modules, or "
            f"pass sdpa=True to watch torch's scaled_dot_product_attention"
        )
    graph = ", or it replays a CUDA graph" if torch.cuda.is_available() else ""
    return (
        f"{name} calls neither limelight's attention nor torch's scaled_dot_product_attention: "
        f"one that is written out by hand cannot be seen, nor one that was imported by itself "
        f"before (from torch.nn.functional import …){graph}"
    )
