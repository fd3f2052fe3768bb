"""Survey: what a model's heads did over any number of texts, in one file.

Reading, merging and looking need NumPy alone; limelight.hf.survey makes one.
"""

from limelight.survey.passages import Passage, passages
from limelight.survey.survey import Survey

__all__ = ["Passage", "Survey", "passages"]
