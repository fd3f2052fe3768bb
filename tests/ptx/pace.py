"""When what is asynchronous is done, and which warpgroup goes first: all that a chip leaves open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Work = Callable[[], None]
WORK = ("products", "loads", "stores")
ORDERS = ("forward", "backward")


@dataclass(frozen=True)
class Pace:
    """What is not `late` is done where it is issued. Late are

    products  their registers and shared memory are read, and their sums written, when a wait
              asks for them
    loads     their bytes arrive when nothing else can go on
    stores    shared memory is read when a wait asks for it

    Of the warpgroups that can go the first goes, `turns` says in which order: "forward",
    "backward", or as is drawn from a seed, anew every so often. It goes until it has to wait or has
    told others something.
    """

    late: tuple[str, ...] = ()
    turns: str | int = ORDERS[0]

    def __post_init__(self) -> None:
        assert set(self.late) <= set(WORK), self.late
        assert isinstance(self.turns, int) or self.turns in ORDERS, self.turns


@dataclass
class Groups:
    """Work of one issuer, which is committed and waited for in groups; the last one is open."""

    groups: list[list[Work]] = field(default_factory=lambda: [[]])

    def add(self, work: Work) -> None:
        self.groups[-1].append(work)

    def commit(self) -> None:
        self.groups.append([])

    def wait(self, left: int) -> None:
        """Do all that was committed but the last groups, so many of them."""
        while len(self.groups) > left + 1:
            for work in self.groups.pop(0):
                work()

    def end(self) -> None:
        self.commit()
        self.wait(0)
