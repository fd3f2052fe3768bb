"""Studio: what the routes share while one server runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from limelight.studio.api.models import Workshop
from limelight.studio.folders import Folders
from limelight.studio.limits import Limits
from limelight.studio.runs import Run
from limelight.studio.shelf import Shelf
from limelight.studio.work import Work


@dataclass
class Studio:
    """The open captures and runs, the folders and the threads."""

    folders: Folders = field(default_factory=Folders)
    limits: Limits = field(default_factory=Limits)
    runs: dict[Path, Run] = field(default_factory=dict)
    workshop: Workshop = field(default_factory=Workshop)
    sockets: int = 0
    stopped: bool = False
    work: Work = field(init=False)
    shelf: Shelf = field(init=False)

    def __post_init__(self) -> None:
        self.work = Work(self.limits)
        self.shelf = Shelf(self.folders, self.limits)

    def stop(self) -> None:
        """Tell everything under way to end."""
        self.stopped = True
        self.work.stop()
