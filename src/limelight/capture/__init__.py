"""Capture: the queries and keys of a model's run, in one file; everything that draws reads it.

Reading, looking and saving need NumPy alone; only making a capture needs a model.
"""

from limelight.capture.capture import Capture, Grid
from limelight.capture.comparison import Comparison, compare
from limelight.capture.health import HealthTables
from limelight.capture.site import Rows, Site

__all__ = ["Capture", "Comparison", "Grid", "HealthTables", "Rows", "Site", "compare"]
