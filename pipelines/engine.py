"""The incremental engine: compute the chunks whose recipe is new, reuse all others.

A *task* makes one or more chunks (its *parts*) out of named inputs. Its *recipe* is a digest of
all that may influence them: stage, VERSION, config slice, chunk name and the content hashes of
its inputs. A part whose recipe is recorded and whose files are there is never computed again.

    compute into a scratch file → sync → rename → record the part in the journal
    all tasks done → manifest, atomically → remove what it doesn't name

So a killed run loses at most the parts in work, and readers see the last whole dataset until the
next one is whole. Files are immutable and named by recipe: a new run never overwrites what the
present manifest names.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from pipelines.datasets import Chunk, Dataset, FileEntry, Manifest, digest, write_table
from pipelines.executor import available_workers, run_tasks
from pipelines.resources import PeakMemory
from pipelines.storage import sha256_of_path

RUN_FILE = "last_run.json"  # seconds and counts of the latest build: no part of the data
_INLINE_BYTES = 4 << 20  # below this much input a pool's start costs more than it brings


class DatasetLocked(RuntimeError):
    """Another process is building the same dataset."""


@dataclass(frozen=True)
class Stage:
    """What builds a dataset: its key, the logic's VERSION and the config slice that it reads.

    ``VERSION`` must rise whenever the stage's code gives another output for equal input. Keys in
    ``choosing`` decide which chunks there are, not what is in one: they are part of the
    ``code_version`` and of no recipe.
    """

    key: str
    version: int
    config: Mapping[str, Any]
    choosing: tuple[str, ...] = ()

    @property
    def code_version(self) -> str:
        """Digest of version and slice: Dagster's ``code_version`` of the asset."""
        return f"{self.version}-{digest(self.config)[:12]}"


@dataclass
class Part:
    """One finished piece of a task's output; each entry becomes a file with that suffix."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskContext:
    """What a task function is given beside its own arguments."""

    skip: int  # parts that an interrupted run already recorded; ``yield None`` may stand for them
    scratch: Path  # a folder of the recipe's own that survives interruptions


@dataclass(frozen=True)
class Task:
    """One unit of work.

    ``function(context, *args)`` is a module-level generator of :class:`Part`. ``inputs`` maps
    labels to content hashes; ``cost`` is the bytes it will read, for choosing where it runs.
    """

    name: str
    function: Callable[..., Iterator[Part | None]]
    args: tuple
    inputs: Mapping[str, str] = field(default_factory=dict)
    cost: int = 0


@dataclass(frozen=True)
class BuildReport:
    """What one build did. ``reused`` and ``computed`` count chunks."""

    dataset: Dataset
    manifest: Manifest
    computed: tuple[str, ...]
    reused: int
    removed: int
    seconds: float
    peak_mb: float

    @property
    def data_version(self) -> str:
        return self.manifest.data_version


@dataclass(frozen=True)
class Progress:
    """One step forward of a build, for whoever shows it."""

    key: str
    done: int
    total: int
    chunk: str


Observer = Callable[[Progress], None]


def build(
    dataset: Dataset,
    stage: Stage,
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    observer: Observer | None = None,
) -> BuildReport:
    """Bring ``dataset`` to what independent ``tasks`` describe, computing only what isn't there.

    ``workers`` of 0 means one a core. Chunk order is task order, whatever the order of finishing.
    Raises what a task raises, DatasetLocked, or OSError (a full disk), and leaves the last whole
    dataset in place.
    """

    def results(known: _Known) -> Iterator[_Result]:
        _refuse_equal_names(tasks, dataset.key)
        missing: list[tuple[int, Task, str]] = []
        for index, task in enumerate(tasks):
            recipe = recipe_of(stage, task)
            if (chunks := known.whole(recipe)) is None:
                missing.append((index, task, recipe))
            else:
                yield _Result(index, task.name, chunks, fresh=False)
        small = sum(task.cost for _, task, _ in missing) < _INLINE_BYTES
        arguments = [(dataset, task, recipe, known.parts(recipe)) for _, task, recipe in missing]
        pool = 1 if small else available_workers(workers)
        for position, chunks in run_tasks(_compute, arguments, pool):
            index, task, _ = missing[position]
            yield _Result(index, task.name, chunks, fresh=True)

    return _build(dataset, stage, results, len(tasks), observer)


def build_in_order(
    dataset: Dataset,
    stage: Stage,
    flow: Generator[Task, tuple[Chunk, ...], None],
    *,
    total: int = 0,
    observer: Observer | None = None,
) -> BuildReport:
    """Like :func:`build` for tasks that depend on one another, in this process.

    ``flow`` yields a task and is sent its chunks, reused or new, before it yields the next. A
    task with the name of an earlier one replaces its chunks.
    """

    def results(known: _Known) -> Iterator[_Result]:
        indices: dict[str, int] = {}
        task = next(flow, None)
        while task is not None:
            recipe = recipe_of(stage, task)
            chunks = known.whole(recipe)
            fresh = chunks is None
            if chunks is None:
                chunks = _compute(dataset, task, recipe, known.parts(recipe))
            index = indices.setdefault(task.name, len(indices))
            yield _Result(index, task.name, chunks, fresh)
            try:
                task = flow.send(chunks)
            except StopIteration:
                return

    return _build(dataset, stage, results, total, observer)


@dataclass(frozen=True)
class _Result:
    index: int
    task: str
    chunks: tuple[Chunk, ...]
    fresh: bool


def _build(
    dataset: Dataset,
    stage: Stage,
    results: Callable[[_Known], Iterator[_Result]],
    total: int,
    observer: Observer | None,
) -> BuildReport:
    started = time.monotonic()
    with _locked(dataset), PeakMemory() as memory:
        known = _known_tasks(dataset)
        done: dict[int, _Result] = {}
        for result in results(known):
            done[result.index] = result
            if observer is not None:
                observer(Progress(dataset.key, len(done), max(total, len(done)), result.task))
        chunks = tuple(chunk for index in sorted(done) for chunk in done[index].chunks)
        computed = [c.name for result in done.values() if result.fresh for c in result.chunks]
        manifest = Manifest(stage.key, stage.version, stage.config, chunks)
        if known.manifest is None or known.manifest.to_bytes() != manifest.to_bytes():
            dataset.storage.write(dataset.manifest_key, manifest.to_bytes())
        removed = _remove_unnamed(dataset, manifest)
    report = BuildReport(
        dataset,
        manifest,
        tuple(sorted(computed)),
        len(chunks) - len(computed),
        removed,
        time.monotonic() - started,
        memory.peak_mb,
    )
    _record_run(report)
    return report


def recipe_of(stage: Stage, task: Task) -> str:
    """The digest of all that may influence a task's output."""
    config = {key: value for key, value in stage.config.items() if key not in stage.choosing}
    return digest([stage.key, stage.version, config, task.name, dict(task.inputs)])


# -- what is already there ------------------------------------------------------------------


@dataclass
class _Known:
    """Recorded chunks by recipe, from the manifest and from the journal of unfinished runs."""

    manifest: Manifest | None
    by_recipe: dict[str, dict[int, Chunk]]  # recipe -> part -> chunk, only with intact files

    def parts(self, recipe: str) -> tuple[Chunk, ...]:
        """The unbroken run of recorded parts from 0 on."""
        parts = self.by_recipe.get(recipe, {})
        found = []
        while len(found) in parts:
            found.append(parts[len(found)])
        return tuple(found)

    def whole(self, recipe: str) -> tuple[Chunk, ...] | None:
        """All parts of a finished task, or None when it never ended or a file of it is gone."""
        parts = self.parts(recipe)
        total = max((chunk.parts for chunk in parts), default=-1)
        if total != len(parts):
            return None
        return tuple(replace(chunk, parts=total) for chunk in parts)


def _known_tasks(dataset: Dataset) -> _Known:
    manifest = dataset.find_manifest()
    by_recipe: dict[str, dict[int, Chunk]] = {}
    for chunk in manifest.chunks if manifest else ():
        by_recipe.setdefault(chunk.recipe, {})[chunk.part] = chunk
    for key in dataset.storage.keys(f"{dataset.key}/journal"):
        chunk = Chunk.from_json(json.loads(dataset.storage.read(key)))
        known = by_recipe.setdefault(chunk.recipe, {})
        if chunk.parts >= known.get(chunk.part, chunk).parts:
            known[chunk.part] = chunk
    # A part whose file vanished ends the run of usable parts.
    for parts in by_recipe.values():
        for part in [part for part, chunk in parts.items() if not _intact(dataset, chunk)]:
            del parts[part]
    return _Known(manifest, by_recipe)


def _intact(dataset: Dataset, chunk: Chunk) -> bool:
    """Whether a chunk's files are there with their recorded size (readers check the digest)."""
    return all(dataset.storage.size(entry.key) == entry.bytes for entry in chunk.files.values())


# -- computing ------------------------------------------------------------------------------


def _compute(
    dataset: Dataset, task: Task, recipe: str, recorded: tuple[Chunk, ...]
) -> tuple[Chunk, ...]:
    """Run one task, in whichever process; publish and record each part as it comes."""
    scratch = dataset.storage.scratch_folder(f"task-{recipe[:24]}")
    chunks = list(recorded)
    for index, part in enumerate(task.function(TaskContext(len(recorded), scratch), *task.args)):
        if index < len(recorded):
            continue
        if part is None:
            raise AssertionError(f"{task.name}: part {index} was left out and isn't recorded")
        chunks.append(_publish(dataset, task.name, recipe, index, part, scratch))
    # The last record carries the number of parts: the mark that the task is whole.
    if not chunks:
        raise AssertionError(f"{task.name}: a task yields at least one part, if an empty one")
    chunks = [replace(chunk, parts=len(chunks)) for chunk in chunks]
    _record(dataset, chunks[-1])
    shutil.rmtree(scratch, ignore_errors=True)
    return tuple(chunks)


def _publish(
    dataset: Dataset, name: str, recipe: str, index: int, part: Part, scratch: Path
) -> Chunk:
    chunk_name = name if index == 0 else f"{name}@{index}"
    files: dict[str, FileEntry] = {}
    for suffix, path in _written_files(part, scratch):
        key = f"{dataset.key}/chunks/{chunk_name}.{recipe[:12]}.{suffix}"
        entry = FileEntry(key, sha256_of_path(path), path.stat().st_size)
        dataset.storage.publish(path, key)
        files[suffix] = entry
    # ``parts`` 0: not known yet, more may follow.
    chunk = Chunk(chunk_name, recipe, index, 0, files, dict(part.stats))
    _record(dataset, chunk)
    return chunk


def _written_files(part: Part, scratch: Path) -> Iterator[tuple[str, Path]]:
    for suffix, table in part.tables.items():
        path = scratch / f"{uuid.uuid4().hex}.parquet"
        write_table(table, path)
        yield f"{suffix}.parquet", path
    for suffix, array in part.arrays.items():
        path = scratch / f"{uuid.uuid4().hex}.bin"
        with open(path, "wb") as file:
            array.tofile(file)
        yield suffix, path
    yield from part.files.items()


def _record(dataset: Dataset, chunk: Chunk) -> None:
    key = f"{dataset.key}/journal/{chunk.recipe[:32]}-{chunk.part}.json"
    dataset.storage.write(key, json.dumps(chunk.to_json(), ensure_ascii=False).encode())


# -- around it ------------------------------------------------------------------------------


def _remove_unnamed(dataset: Dataset, manifest: Manifest) -> int:
    """Delete chunk files that the manifest doesn't name, and the journal; count the chunk files."""
    named = {entry.key for chunk in manifest.chunks for entry in chunk.files.values()}
    removed = 0
    for key in list(dataset.storage.keys(f"{dataset.key}/chunks")):
        if key not in named:
            dataset.storage.delete(key)
            removed += 1
    for key in list(dataset.storage.keys(f"{dataset.key}/journal")):
        dataset.storage.delete(key)
    return removed


@contextmanager
def _locked(dataset: Dataset) -> Iterator[None]:
    """The dataset's lock; the operating system frees it when its holder dies."""
    folder = dataset.storage.local_root / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{dataset.key.replace('/', '--')}.lock"
    lock = FileLock(path)
    holder = path.with_suffix(".holder")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        who = holder.read_text() if holder.exists() else "another process"
        raise DatasetLocked(
            f"{dataset.key} is being built by {who}; wait for it, or end that process. "
            f"(lock file {path})"
        ) from error
    try:
        holder.write_text(f"process {os.getpid()}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _refuse_equal_names(tasks: Sequence[Task], key: str) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.name in seen:
            raise ValueError(f"{key}: two inputs are both called {task.name!r}; rename one file")
        seen.add(task.name)


def last_run(dataset: Dataset) -> dict[str, Any]:
    """What the latest build of a built dataset took: see ``_record_run``."""
    return json.loads(dataset.storage.read(f"{dataset.key}/{RUN_FILE}"))


def _record_run(report: BuildReport) -> None:
    record = {
        "computed": len(report.computed),
        "reused": report.reused,
        "removed": report.removed,
        "seconds": round(report.seconds, 3),
        "peak_mb": round(report.peak_mb, 1),
        "bytes": sum(chunk.bytes for chunk in report.manifest.chunks),
    }
    report.dataset.storage.write(
        f"{report.dataset.key}/{RUN_FILE}", json.dumps(record, indent=1).encode()
    )
