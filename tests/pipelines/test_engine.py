"""The incremental engine: what is computed again, what is reused, what survives a failure."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipelines.datasets import Chunk, Dataset, DatasetError
from pipelines.engine import (
    BuildReport,
    DatasetLocked,
    Part,
    Stage,
    Task,
    TaskContext,
    build,
    build_in_order,
)
from pipelines.storage import Storage

STAGE = Stage("numbers", 1, {"factor": 2})


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset(Storage(str(tmp_path / "root")), "numbers")


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def double(context: TaskContext, calls: Path, value: int, parts: int = 1) -> Iterator[Part | None]:
    for part in range(parts):
        if part < context.skip:
            yield None
            continue
        with open(calls, "a") as log:
            log.write(f"{value}.{part}\n")
        table = pa.table({"value": [value * 2 + part]})
        yield Part({"values": table}, {"raw": np.arange(value, dtype="<u2")}, stats={"rows": 1})


def tasks(calls: Path, *values: int, parts: int = 1) -> list[Task]:
    return [Task(f"n/{v}", double, (calls, v, parts), {"value": str(v)}) for v in values]


def called(calls: Path) -> list[str]:
    lines = calls.read_text().split() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return lines


def values(report: BuildReport) -> list[int]:
    return [v for t in report.dataset.tables("values.parquet") for v in t["value"].to_pylist()]


def test_only_what_is_new_is_computed(dataset: Dataset, calls: Path) -> None:
    first = build(dataset, STAGE, tasks(calls, 1, 2))
    assert (called(calls), values(first)) == (["1.0", "2.0"], [2, 4])
    again = build(dataset, STAGE, tasks(calls, 1, 2))
    assert (called(calls), again.computed, again.reused) == ([], (), 2)
    assert again.data_version == first.data_version
    more = build(dataset, STAGE, tasks(calls, 1, 2, 3))
    assert (called(calls), more.computed) == (["3.0"], ("n/3",))
    assert more.manifest.total("rows") == 3


def test_what_is_no_longer_named_is_removed(dataset: Dataset, calls: Path) -> None:
    build(dataset, STAGE, tasks(calls, 1, 2))
    report = build(dataset, STAGE, tasks(calls, 2))
    assert (report.removed, report.reused) == (2, 1)
    files = list(dataset.storage.keys("numbers/chunks"))
    assert len(files) == 2 and all("/n/2." in file for file in files)


def test_config_and_version_decide(dataset: Dataset, calls: Path) -> None:
    before = build(dataset, STAGE, tasks(calls, 1))
    build(dataset, Stage("numbers", 1, {"factor": 3}), tasks(calls, 1))
    build(dataset, Stage("numbers", 2, {"factor": 2}), tasks(calls, 1))
    back = build(dataset, STAGE, tasks(calls, 1))
    assert called(calls) == ["1.0"] * 4
    assert back.data_version == before.data_version
    chosen = Stage("numbers", 1, {"factor": 2, "limit": 9}, choosing=("limit",))
    assert build(dataset, chosen, tasks(calls, 1)).reused == 1
    assert chosen.code_version != STAGE.code_version


def test_missing_file_is_computed_again_and_damage_is_named(dataset: Dataset, calls: Path) -> None:
    report = build(dataset, STAGE, tasks(calls, 1, 2))
    path = dataset.path(report.manifest.chunks[0], "values.parquet")
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="n/1.*is damaged|is damaged.*n/1"):
        values(report)
    path.unlink()
    called(calls)
    assert build(dataset, STAGE, tasks(calls, 1, 2)).computed == ("n/1",)
    assert called(calls) == ["1.0"]


class Full:
    """Raises ENOSPC at one part; picklable, as tasks are."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, context: TaskContext, calls: Path, value: int, parts: int) -> Iterator[Part]:
        for number, part in enumerate(double(context, calls, value, parts)):
            if number == self.at:
                raise OSError(errno.ENOSPC, "No space left on device")
            yield part


def test_full_disk_keeps_the_last_dataset_and_the_finished_parts(
    dataset: Dataset, calls: Path
) -> None:
    whole = build(dataset, STAGE, tasks(calls, 1))
    called(calls)
    failing = Task("n/5", Full(2), (calls, 5, 4), {"value": "5"})
    with pytest.raises(OSError, match="No space left"):
        build(dataset, STAGE, [*tasks(calls, 1), failing])
    assert dataset.manifest() == whole.manifest
    assert values(whole) == [2]
    assert called(calls) == ["5.0", "5.1", "5.2"]
    # The next run goes on at the part that failed.
    good = Task("n/5", double, (calls, 5, 4), {"value": "5"})
    report = build(dataset, STAGE, [*tasks(calls, 1), good])
    assert called(calls) == ["5.2", "5.3"]
    assert [chunk.name for chunk in report.manifest.chunks] == [
        *("n/1", "n/5", "n/5@1", "n/5@2", "n/5@3")
    ]
    assert list(dataset.storage.keys("numbers/journal")) == []


def test_in_order_each_task_sees_the_chunks_before(dataset: Dataset, calls: Path) -> None:
    def flow(numbers: list[int]) -> Generator[Task, tuple[Chunk, ...], None]:
        before = ""
        for number in numbers:
            inputs = {"value": str(number), "before": before}
            (chunk,) = yield Task(f"n/{number}", double, (calls, number), inputs)
            before = chunk.content_hash

    build_in_order(dataset, STAGE, flow([1, 2, 3]))
    assert called(calls) == ["1.0", "2.0", "3.0"]
    build_in_order(dataset, STAGE, flow([1, 2, 3, 4]))
    assert called(calls) == ["4.0"]
    build_in_order(dataset, STAGE, flow([1, 3, 4]))
    # 3 has another predecessor; it comes out equal, so that the wave stops there.
    assert called(calls) == ["3.0"]


def test_two_builds_at_a_time_are_refused(dataset: Dataset, calls: Path) -> None:
    script = (
        "import sys\n"
        "from pipelines.datasets import Dataset\n"
        "from pipelines.engine import Stage, _locked\n"
        "from pipelines.storage import Storage\n"
        "with _locked(Dataset(Storage(sys.argv[1]), 'numbers')):\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, dataset.storage.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(DatasetLocked, match=f"numbers is being built by process {holder.pid}"):
        build(dataset, STAGE, tasks(calls, 1))
    holder.kill()
    holder.wait()
    # The lock dies with its holder, however it died.
    assert build(dataset, STAGE, tasks(calls, 1)).computed == ("n/1",)


def test_equal_names_are_refused(dataset: Dataset, calls: Path) -> None:
    with pytest.raises(ValueError, match="both called 'n/1'"):
        build(dataset, STAGE, tasks(calls, 1, 1))


def test_unbuilt_dataset_says_what_to_run(dataset: Dataset) -> None:
    with pytest.raises(DatasetError, match="samovar materialize numbers"):
        dataset.manifest()


def test_progress_is_told(dataset: Dataset, calls: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    observe: Callable = lambda p: seen.append((p.done, p.total, p.chunk))  # noqa: E731
    build(dataset, STAGE, tasks(calls, 1, 2), observer=observe)
    assert seen == [(1, 2, "n/1"), (2, 2, "n/2")]
