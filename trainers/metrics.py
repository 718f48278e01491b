"""What a step measured, and the log of all steps: one JSON line a step in ``steps.jsonl``.

The file holds nothing that depends on the clock, so that the log of a resumed run is the same
bytes as that of an uninterrupted one: on resume it is cut back to the checkpoint's step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType


class StepLogError(ValueError):
    """A step log that doesn't hold the steps its checkpoint was made after."""


@dataclass(frozen=True)
class StepMetrics:
    """One optimizer step. ``step`` counts finished steps, so the first has 1; ``tokens`` and
    ``tokens_by_group`` are input tokens since the run's start; ``loss`` is in nats a supervised
    token, over the step's whole batch and before its update; ``gradient_norm`` is before
    clipping; ``supervised_tokens`` are those of this step. ``tokens_per_second`` is wall-clock
    speed of this step, never written and None where a step was read back."""

    step: int
    tokens: int
    loss: float
    learning_rate: float
    gradient_norm: float
    supervised_tokens: int
    tokens_by_group: dict[str, int]
    tokens_per_second: float | None = None

    def to_json(self) -> str:
        """The step's line in the log, without the line end."""
        values = {name: value for name, value in vars(self).items() if name != "tokens_per_second"}
        return json.dumps(values, ensure_ascii=False)


class StepLog:
    """The open log of a run. ``keep`` is the number of steps that stand; later ones are cut off.

    Raises :class:`StepLogError` when the file has fewer than ``keep`` steps.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        self._file = path.open("a+b")
        try:
            self._file.truncate(_end_of_step(self._file, path, keep))
        except BaseException:
            self._file.close()
            raise

    def append(self, metrics: StepMetrics) -> None:
        """Add a step and hand it to the operating system, so that a killed process keeps it."""
        self._file.write(metrics.to_json().encode() + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """Onto the disk: to be called before a checkpoint that counts on these lines."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> StepLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_steps(path: Path) -> Iterator[StepMetrics]:
    """The steps of a log, in order."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield StepMetrics(**json.loads(line))


def _end_of_step(file, path: Path, keep: int) -> int:
    file.seek(0)
    end = 0
    for step in range(1, keep + 1):
        line = file.readline()
        if not line.endswith(b"\n") or json.loads(line)["step"] != step:
            raise StepLogError(
                f"{path}: step {step} is missing, but the checkpoint is of step {keep}; restore "
                "the file or delete the work folder to start the run afresh"
            )
        end += len(line)
    return end
