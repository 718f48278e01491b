"""``samovar materialize``: run the planner and say what it does while it does it."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from assets import factory
from assets.definitions import build_definitions
from assets.instance import open_instance
from assets.planner import AssetStatus, Outcome, Planner
from pipelines.engine import Progress as Step
from pipelines.engine import last_run
from pipelines.workspace import Workspace

_LINE_EVERY_S = 20.0


def run(workspace: Workspace, selection: str | None, stale: bool, console: Console) -> int:
    """Materialize; returns the exit code: 1 when an asset failed or was blocked."""
    _be_quiet()
    started = time.monotonic()
    with open_instance(workspace) as instance:
        planner = Planner(workspace, build_definitions(workspace), instance)
        try:
            keys = planner.keys(selection)
        except ValueError as error:
            console.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
            return 1
        problems = planner.observe_landing()
        for problem in problems.values():
            console.print(f"[red]error:[/red] {escape(problem)}", soft_wrap=True)
        if problems:
            return 1
        display = _Display(workspace, console)
        outcomes = []
        with display:
            walk = planner.refresh if stale else planner.materialize
            for outcome in walk(keys, display.start):
                display.end(outcome)
                outcomes.append(outcome)
    return _conclude(outcomes, len(keys), time.monotonic() - started, console)


def _conclude(outcomes: list[Outcome], considered: int, seconds: float, console: Console) -> int:
    done = [outcome for outcome in outcomes if outcome.result == "materialized"]
    bad = [outcome for outcome in outcomes if outcome.result != "materialized"]
    if not outcomes:
        console.print(
            f"Nothing is stale: {considered} assets are up to date ({seconds:.1f} s).",
            soft_wrap=True,
        )
    else:
        untouched = considered - len(outcomes)
        console.print(
            f"{len(done)} materialized, {untouched} up to date"
            + (f", [red]{len(bad)} not done[/red]" if bad else "")
            + f" ({seconds:.1f} s).",
            soft_wrap=True,
        )
    return 1 if bad else 0


@dataclass
class _Display:
    """A line for each asset, and under it a progress bar (a line now and then without a screen)."""

    workspace: Workspace
    console: Console
    _progress: Progress = field(init=False)
    _last_line: float = 0.0

    def __post_init__(self) -> None:
        self._progress = Progress(
            *(TextColumn("  {task.description}"), BarColumn(24), MofNCompleteColumn()),
            *(TextColumn("{task.fields[what]}"), TimeElapsedColumn()),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("", visible=False, what="", total=None)

    def __enter__(self) -> _Display:
        self._progress.start()
        factory.observers.append(self._observe)
        return self

    def __exit__(self, *_: object) -> None:
        factory.observers.remove(self._observe)
        self._progress.stop()

    def start(self, status: AssetStatus) -> None:
        self._last_line = time.monotonic()
        self._progress.reset(self._task, description=status.key, visible=True, total=None, what="")

    def end(self, outcome: Outcome) -> None:
        self._progress.update(self._task, visible=False)
        why = f" [dim]{escape('; '.join(outcome.causes[:3]))}[/dim]" if outcome.causes else ""
        if outcome.result == "materialized":
            text = f"[green]✓[/green] {outcome.key:<28} {self._figures(outcome.key)}"
            self.console.print(text, soft_wrap=True)
        elif outcome.result == "blocked":
            self.console.print(
                f"[yellow]–[/yellow] {outcome.key:<28} not run:{why}", soft_wrap=True
            )
        else:
            message = _root_message(outcome.error)
            self.console.print(f"[red]✗[/red] {outcome.key:<28} {escape(message)}", soft_wrap=True)

    def _observe(self, step: Step) -> None:
        self._progress.update(self._task, completed=step.done, total=step.total, what=step.chunk)
        if not self.console.is_terminal and time.monotonic() - self._last_line > _LINE_EVERY_S:
            self._last_line = time.monotonic()
            line = f"  … {step.key}: {step.done:,} of {step.total:,}, {step.chunk}"
            self.console.print(escape(line), soft_wrap=True)

    def _figures(self, key: str) -> str:
        dataset = self.workspace.dataset(key)
        record = last_run(dataset)
        manifest = dataset.manifest()
        parts = [f"{record['computed']} computed, {record['reused']} reused"]
        if rows := manifest.total("rows"):
            parts.append(f"{rows:,} rows")
        if dropped := sum(manifest.totals("drops").values()):
            parts.append(f"{dropped:,} dropped")
        if tokens := manifest.total("train_tokens") + manifest.total("validation_tokens"):
            parts.append(f"{tokens:,} tokens")
        return f"{', '.join(parts)}  [dim]{record['seconds']:.1f} s[/dim]"


def _root_message(error: BaseException | None) -> str:
    """The message of what was raised first, beneath Dagster's own wrapping."""
    if error is None:
        return "failed"
    # A worker's traceback travels as a cause that is nothing but text.
    while error.__cause__ is not None and type(error.__cause__).__name__ != "_RemoteTraceback":
        error = error.__cause__
    name = type(error).__name__
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
    return f"{name}: {error}{notes}"


def _be_quiet() -> None:
    """Dagster's run log is in its UI; here the lines above say what happens."""
    warnings.filterwarnings("ignore", module="dagster.*")
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
