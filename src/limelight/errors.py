"""One family of errors, so that a caller can catch them all and a command line can print them."""

from __future__ import annotations


class LimelightError(Exception):
    """Something was asked that cannot be done; the message says what came and what to try."""


class ShapeError(LimelightError, ValueError):
    """Arrays whose sizes do not fit together."""


class ArgumentError(LimelightError, ValueError):
    """An argument outside its range."""


class DtypeError(LimelightError, TypeError):
    """A number type that attention is not defined for, or a mix of types or devices."""


class EngineError(LimelightError, ValueError):
    """An engine that does not exist, is missing on this machine, or cannot do this call."""


class FileError(LimelightError, ValueError):
    """A file that is missing, damaged, or not what its name says."""
