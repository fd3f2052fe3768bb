"""Dashboards that a monitor writes to beside its file: TensorBoard, Weights & Biases, MLflow.

Each takes the scalars of one record. None is imported unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any, Protocol

from limelight.errors import ArgumentError


class Board(Protocol):
    """Where the scalars of a record go."""

    def add(self, scalars: dict[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """A directory, or an open SummaryWriter, which is then the caller's to close."""

    def __init__(self, target: Any) -> None:
        self._writer, self._owns = target, not hasattr(target, "add_scalar")
        if self._owns:
            if not isinstance(target, (str, PathLike)):
                raise ArgumentError(
                    f"tensorboard={target!r}: give a directory, or an open SummaryWriter"
                )
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise _missing("tensorboard") from None
            self._writer = SummaryWriter(str(target))

    def add(self, scalars: dict[str, float], step: int) -> None:
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        (self._writer.close if self._owns else self._writer.flush)()


class WeightsAndBiases:
    """A run of wandb, or True for the one that wandb.init() began; it is the caller's to finish.

    The steps of wandb's own axis are the caller's too, so the monitor's step is a figure of its own
    (limelight/step) against which the others are drawn.
    """

    def __init__(self, target: Any) -> None:
        if target is True:
            try:
                import wandb
            except ImportError:
                raise _missing("wandb") from None
            target = wandb.run
            if target is None:
                raise ArgumentError(
                    "wandb=True takes the run that is open: call wandb.init() first"
                )
        if not hasattr(target, "log"):
            raise ArgumentError(f"wandb={target!r}: give what wandb.init() returns, or True")
        self._run = target
        target.define_metric("limelight/step")
        target.define_metric("limelight/*", step_metric="limelight/step")

    def add(self, scalars: dict[str, float], step: int) -> None:
        self._run.log({**scalars, "limelight/step": step})

    def close(self) -> None:
        pass


class MLflow:
    """The id of a run of MLflow, or True for the one that is active."""

    def __init__(self, target: Any) -> None:
        try:
            import mlflow
        except ImportError:
            raise _missing("mlflow") from None
        if target is True:
            active = mlflow.active_run()
            if active is None:
                raise ArgumentError(
                    "mlflow=True takes the run that is active: call mlflow.start_run() first"
                )
            target = active.info.run_id
        if not isinstance(target, str):
            raise ArgumentError(
                f"mlflow={target!r}: give the id of a run, run.info.run_id, or True for the active "
                f"one"
            )
        self._log, self._run = mlflow.log_metrics, target

    def add(self, scalars: dict[str, float], step: int) -> None:
        self._log(scalars, step=step, run_id=self._run)

    def close(self) -> None:
        pass


KINDS: dict[str, Callable[[Any], Board]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}


def boards(**targets: Any) -> list[Board]:
    """Those that were asked for."""
    return [
        KINDS[name](target)
        for name, target in targets.items()
        if target is not None and target is not False
    ]


def scalars(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """What a dashboard shows of a record: each site's worst head, and the mean."""
    worst = {"max_logit": max, "entropy": min, "spread": min, "saturated": max}
    for site in record["sites"]:
        for figure, pick in worst.items():
            values = [x for x in site[figure] if x is not None]
            if values:
                yield f"limelight/{figure}/{pick.__name__}/{site['name']}", pick(values)
                yield f"limelight/{figure}/mean/{site['name']}", sum(values) / len(values)


def _missing(package: str) -> ArgumentError:
    return ArgumentError(
        f"{package}=… was asked for and the package is not installed: pip install {package}, or "
        f"leave it out"
    )
