"""Studio: what the routes share while one server runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from limelight.journal.run import Run
from limelight.studio.api.live import Stage
from limelight.studio.api.models import Workshop
from limelight.studio.cache import Cache
from limelight.studio.folders import Folders
from limelight.studio.limits import Limits
from limelight.studio.shelf import Shelf
from limelight.studio.work import Work

RUNS_KEPT = 8  # training logs whose records are at hand


@dataclass
class Studio:
    """The open captures and runs, the folders and the threads."""

    folders: Folders = field(default_factory=Folders)
    limits: Limits = field(default_factory=Limits)
    runs: Cache[Run] = field(default_factory=lambda: Cache(RUNS_KEPT))
    workshop: Workshop = field(default_factory=Workshop)
    stage: Stage = field(default_factory=Stage)
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
