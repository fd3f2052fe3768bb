"""Monitor: the health of every head of a model, recorded every k steps while it trains.

    with Monitor(model, "run.jsonl", every=50) as monitor:
        for batch in data:
            loss = train_step(model, batch)
            monitor.step(loss=float(loss))

In the steps between, attention runs as if the monitor were not there. In a recorded step every
pass computes its health beside the output, and the sums over rows stay on the device until the
step ends. The operator itself reports, so a compiled model needs no second graph.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from limelight.arrays import a_type, is_integer
from limelight.errors import ArgumentError
from limelight.journal import FORMAT, VERSION
from limelight.journal.writing import Journal
from limelight.torch import bridge
from limelight.torch.monitor import patch
from limelight.torch.monitor.alarms import DEFAULTS, Alarm, Alarms
from limelight.torch.monitor.boards import Board, boards, scalars
from limelight.torch.monitor.padding import Padding
from limelight.torch.monitor.silence import why
from limelight.torch.monitor.tally import Tally, figures, finite, gather, is_number
from limelight.torch.ranks import let_go

MOST_KEPT = 1 << 18  # records × heads, of some 240 bytes each


class MonitorWarning(UserWarning):
    """The monitor stopped or saw nothing; training goes on."""


class Monitor:
    """Watches the attention of `model`: limelight.torch modules, Transformers models with
    attn_implementation="limelight", and with `sdpa=True` whatever calls torch's
    scaled_dot_product_attention.

    path          the JSON lines file, beside which `monitor.records` has the latest; None records
                  into `monitor.records` alone, all of them
    every         a step is recorded when its number is a multiple of this
    alarms        rules as `Alarm`; DEFAULTS watch logits, collapse, one-hot heads and NaN
    on_alarm      called with each alarm line, raised or cleared
    tensorboard   a directory, or an open SummaryWriter
    wandb         what wandb.init() returned, or True for the run that is open
    mlflow        the id of a run, or True for the active one
    group         a torch.distributed group whose ranks are summed up into the one record that its
                  first rank writes; every rank must then have a monitor. None: the first rank
                  records its own rows and the others do nothing
    sdpa          see torch's function too: in a recorded step limelight's runs beside it (in a
                  compiled model in its place)
    start         the number of the first step, for a resumed run

    Only passes in training mode count (`model.training`; inside DDP, that of the model), and a
    checkpointed part counts once. Rows that the model's `attention_mask` (two axes) calls padding
    do not count, nor those that nn.MultiheadAttention's `key_padding_mask` does.
    """

    def __init__(
        self,
        model: nn.Module,
        path: str | Path | None = None,
        *,
        every: int = 50,
        alarms: Sequence[Alarm] = DEFAULTS,
        on_alarm: Callable[[dict[str, Any]], None] | None = None,
        tensorboard: Any = None,
        wandb: Any = None,
        mlflow: Any = None,
        group: Any = None,
        sdpa: bool = False,
        start: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"a Monitor watches a torch module, and got {type(model).__name__}")
        if not is_integer(every) or every < 1:
            raise ArgumentError(
                f"every={every!r}: give the number of steps from one record to the next, at least 1"
            )
        if not is_integer(start) or start < 0:
            raise ArgumentError(
                f"start={start!r}: give the number of the first step, 0 or that of a resumed run"
            )
        if on_alarm is not None and not callable(on_alarm):
            raise ArgumentError(
                f"on_alarm={on_alarm!r}: give a function of one argument, the alarm's line"
            )
        self.model, self.every, self.count = model, int(every), int(start)
        self._inner = patch.bare(model)  # its mode counts: ddp.module.eval() leaves DDP's as it was
        self.records: list[dict[str, Any]] = []
        self.alarms, self.on_alarm, self.group = Alarms(alarms), on_alarm, group
        self._first = _rank(group) == 0
        self._takes_part = self._first or group is not None
        self._tallies: dict[str, Tally] = {}
        self._unnamed = self._evaluated = 0
        self._open, self._paused = True, False
        targets = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
        with ExitStack() as undo:
            self._journal = Journal(path) if path is not None and self._first else None
            if self._journal is not None:
                undo.callback(self._journal.close)
            self._boards = boards(**targets) if self._first else []
            for board in self._boards:
                undo.callback(board.close)
            self._patch = patch.Patch(model, sdpa=sdpa, beside=True)
            undo.callback(self._patch.remove)
            self._padding = Padding(model)
            undo.pop_all()
        self._write({
            "kind": "run", "format": FORMAT, "version": VERSION, "every": self.every,
            "started": time.time(), "model": type(self._inner).__name__,
            "alarms": [rule.to_dict() for rule in self.alarms.rules],
        })  # fmt: skip
        self._listen()

    @property
    def recording(self) -> bool:
        """Whether the step that is under way will be recorded."""
        return self._open and self._takes_part and self.count % self.every == 0

    def step(self, **numbers: float | None) -> dict[str, Any] | None:
        """End a training step; returns the record if this step had one.

        `numbers` such as loss and lr go into the record; None where a step has none. Call it once
        an optimizer step, on every rank; forward passes of several micro-batches before it count
        together.
        """
        taken = sorted(set(numbers) & {"kind", "step", "time", "ranks", "sites"})
        if taken:
            raise ArgumentError(
                f"step({taken[0]}=…): the record has a {taken[0]} of its own. Give the number "
                f"another name"
            )
        for name, number in numbers.items():
            if not is_number(number):
                raise ArgumentError(
                    f"step({name}=…) got {a_type(number)}, and a record keeps one number "
                    f"a name: give loss.item(), scheduler.get_last_lr()[0] or the like, or None"
                )
        record, ran = None, self._patch.ran()
        self._patch.between()
        self._padding.between()
        if self.recording:
            record = self._guarded(lambda: self._record(numbers, ran))
        self._unnamed = self._evaluated = 0
        self._tallies = {}
        self.count += 1
        self._listen()
        return record

    def note_clips(self, limit: float, clips: Sequence[Any]) -> None:
        """Write down what QKClip did after the step that is under way."""
        heads = [{**asdict(clip), "max_logit": finite(clip.max_logit),
                  "factor": finite(clip.factor)} for clip in clips]  # fmt: skip
        if self._open:
            self._write({"kind": "clip", "step": self.count, "limit": limit, "heads": heads})

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Passes inside do not count, such as an evaluation in training mode."""
        before, self._paused = self._paused, True
        self._listen()
        try:
            yield
        finally:
            self._paused = before
            self._listen()

    def close(self, reason: str = "closed") -> None:
        """Write the last line and leave the model as it was."""
        if not self._open:
            return
        self._stop_listening()
        self._leave()
        self._write({"kind": "end", "step": self.count, "time": time.time(), "reason": reason})
        self._open = False
        if self._journal is not None:
            self._journal.close()
        let_go()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close("closed" if kind is None else f"{kind.__name__}: {error}".strip(": "))

    def observe(self, site: str, passes: Sequence[bridge.Pass]) -> None:
        """What the operator reports of one attention."""
        name = self._patch.named(site)
        if name is None:
            return
        if self._inner.training:
            self._guarded(lambda: self._count(name, self._patch.path(site) or "", passes))
        else:
            self._evaluated += 1

    def _count(self, name: str, path: str, passes: Sequence[bridge.Pass]) -> None:
        if not name:
            name, self._unnamed = f"call {self._unnamed}", self._unnamed + 1
        for call, state in passes:
            heads, known = call.query_heads, self._tallies.get(name)
            if known is not None and len(known.largest) != heads:  # a module that attends twice
                name = f"{name} ({heads} heads)"
            if name not in self._tallies:
                self._tallies[name] = Tally(heads, call.query.device)
            text = self._padding.rows(path, call)
            self._tallies[name].add(call, state, text)

    def _record(self, numbers: dict[str, float | None], ran: bool) -> dict[str, Any]:
        found = gather(self._tallies, self._inner, self.group)
        if not found:
            reason = why(self.model, ran=ran, evaluated=self._evaluated, sdpa=self._patch.sdpa)
            _warn(f"no attention was seen in step {self.count}: {reason}")
        record = {
            "kind": "record", "step": self.count, "time": time.time(),
            "ranks": 1 if self.group is None else torch.distributed.get_world_size(self.group),
            **{name: finite(number) for name, number in numbers.items()},
            "sites": [
                {"name": name, "layer": layer, **figures(*pair)}
                for layer, (name, pair) in enumerate(found.items())
            ],
        }  # fmt: skip
        if self._first:
            self._publish(record)
        return record

    def _publish(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        if self._journal is not None:
            heads = sum(site["heads"] for site in record["sites"])
            del self.records[: -max(1, MOST_KEPT // max(1, heads))]
        self._write(record)
        told = dict(scalars(record))
        self._tell(lambda board: board.add(told, record["step"]))
        for line in self.alarms.update(record):
            self._write(line)
            if self.on_alarm is not None:
                self.on_alarm(line)

    def _write(self, line: dict[str, Any]) -> None:
        journal = self._journal
        if journal is not None:
            self._guarded(lambda: journal.write(line))

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """A fault in the monitor must not end a training run: say so once, and stop watching."""
        try:
            return action()
        except Exception as error:
            self._stop_listening()
            self._open = False
            self._leave()
            if self._journal is not None:
                self._journal.close()
            _warn(
                f"the monitor stopped at step {self.count} ({type(error).__name__}: {error}); "
                f"training goes on without it"
            )
            return None

    def _tell(self, action: Callable[[Board], None]) -> None:
        """A dashboard that fails, as one over a network may, is told no more; the rest goes on."""
        for board in tuple(self._boards):
            try:
                action(board)
            except Exception as error:
                self._boards.remove(board)
                _warn(
                    f"{type(board).__name__} is told no more from step {self.count} on "
                    f"({type(error).__name__}: {error}); the monitor goes on without it"
                )

    def _leave(self) -> None:
        """Leave the model as it was, and the dashboards."""
        self._patch.remove()
        self._padding.remove()
        self._tell(lambda board: board.close())
        self._boards = []

    def _listen(self) -> None:
        self._stop_listening()
        if self.recording and not self._paused:
            bridge.observers.append(self)

    def _stop_listening(self) -> None:
        if self in bridge.observers:
            bridge.observers.remove(self)


def _rank(group: Any) -> int:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0
    return distributed.get_rank(group)


def _warn(message: str) -> None:
    warnings.warn(message, MonitorWarning, stacklevel=4)
