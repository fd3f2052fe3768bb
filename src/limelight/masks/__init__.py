"""Masks: which keys a query may attend to, as values that compose.

algebra    what a mask is, and what `&`, `|` and `~` make of masks
values     the masks that people write
allowed    the form that engines read: bands, intervals, arrays
spans      sets of keys as intervals, the arithmetic under it
memory     how masks remember what was worked out from them
tensors    how many keys each row has, on tensors
measured   masks that captures need: measured ones, and one entry of a batch
text       from an expression, as a person types it
file       to plain data and back
"""

from limelight.masks.algebra import Both, Either, Explicit, Mask, Not, as_mask
from limelight.masks.values import Causal, Documents, Lengths, Prefix, Window

__all__ = [
    "Both",
    "Causal",
    "Documents",
    "Either",
    "Explicit",
    "Lengths",
    "Mask",
    "Not",
    "Prefix",
    "Window",
    "as_mask",
]
