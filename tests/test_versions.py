"""Each data stage's VERSION is pinned to what it makes of a fixture.

A change of the logic that changes the output without a new VERSION would leave stale chunks in
every data root that exists. When a test here fails: raise the VERSION of the stage that changed,
then pin the digests that it prints. Digests cover values, not files, so that another release of
pyarrow doesn't matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines import documents, near_duplicates
from pipelines.chat import dialogs, repeats
from pipelines.datasets import Dataset, digest
from pipelines.engine import BuildReport
from pipelines.filters import measurements
from pipelines.shards import writer
from pipelines.sources import raw
from pipelines.tokenizer import corpus, training
from pipelines.workspace import Workspace

_WEB = """\
Утром на реке стоял туман, и лодочник долго искал вёсла.
Потом солнце поднялось, и стало видно оба берега.
===
Утром на реке стоял туман, и лодочник долго искал вёсла.
Потом солнце поднялось, и стало видно оба берега!
===
Вакансия: требуется сторож на склад,
график сутки через трое, оплата по договорённости, звоните вечером.
===
The river was calm in the morning and nobody was in a hurry to go anywhere at all.
===
Коротко.
===
На рынке продавали мёд трёх сортов: липовый, гречишный и разнотравье.
Мы взяли гречишный, он темнее всех.
"""
_ARTICLES = (
    "Мельница за деревней не работает давно. " * 3 + "\n\n" + "Жернов лежит на месте. " * 260
)
_DIALOGS = [
    [("system", "Будь краток."), ("human", "Привет!"), ("bot", "Привет! Чем помочь?")],
    [("user", "Сколько будет два и два?"), ("assistant", "Четыре."), ("user", "А три?")],
    [("user", "Привет!"), ("moderator", "Тише.")],
    [("system", "Будь краток."), ("human", "Привет!"), ("bot", "Привет! Чем помочь?")],
]

# dataset: (VERSION, digest of its output's values)
PINNED: dict[str, tuple[int, str]] = {
    "dialogs/chat": (1, "f34d68f54b47d73b"),
    "dialogs/dialogs": (1, "0eb7daa34df53919"),
    "documents/articles": (1, "d24ebce1eea23ad9"),
    "documents/web": (1, "a5d3af9fef4ec7b2"),
    "measurements/articles": (2, "da720129deca7ea1"),
    "measurements/web": (2, "69b05054e48eda1e"),
    "near_duplicates": (1, "7008db222a50aa29"),
    "raw/articles": (1, "dce48f358ef87b9d"),
    "raw/dialogs": (1, "ffa124b26f2b67ff"),
    "raw/web": (1, "c5b5954037d59a04"),
    "shards/articles": (1, "3ed600c618837592"),
    "shards/chat": (1, "8ff27c843cc31554"),
    "shards/web": (1, "d3469bf221f25bc7"),
    "tokenizer": (1, "201a497e2581f536"),
    "tokenizer_corpus": (1, "3fbeefbd508eface"),
}


@pytest.fixture
def fixture(make_project: Callable[[], Path]) -> Workspace:
    project = make_project()
    landing = project.parent / "landing"
    for path in landing.rglob("00*"):
        path.unlink()
    (landing / "web" / "a.txt").write_text(_WEB, encoding="utf-8")
    (landing / "articles" / "b.txt").write_text(_ARTICLES, encoding="utf-8")
    lines = [
        json.dumps({"messages": [{"role": r, "content": c} for r, c in turns]}, ensure_ascii=False)
        for turns in _DIALOGS
    ]
    (landing / "dialogs" / "c.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return Workspace.open(file=project)


def values_of(dataset: Dataset) -> str:
    """Digest over the values in all files of a dataset, floats to nine digits."""
    contents = []
    for chunk in dataset.chunks():
        for suffix in sorted(chunk.files):
            path = dataset.path(chunk, suffix)
            if suffix.endswith(".parquet"):
                contents.append([chunk.name, suffix, _plain(pq.read_table(path).to_pylist())])
            elif suffix.endswith(".json"):
                contents.append([chunk.name, json.loads(path.read_bytes())["model"]["merges"]])
            else:
                contents.append([chunk.name, suffix, path.read_bytes().hex()])
    return digest(contents)[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def test_versions_are_pinned_to_their_output(fixture: Workspace) -> None:
    project, storage = fixture.project, fixture.storage

    def raw_of(name: str) -> BuildReport:
        return raw.build_raw(project, storage, name, fixture.base, 1)

    built: dict[str, tuple[int, str]] = {}
    for report in (
        *(raw_of(name) for name in ("web", "articles", "dialogs")),
        *(measurements.build_measurements(project, storage, n, 1) for n in ("web", "articles")),
        near_duplicates.build_near_duplicates(project, storage),
        *(documents.build_documents(project, storage, group, 1) for group in ("web", "articles")),
        dialogs.build_dialogs(project, storage, "dialogs", 1),
        repeats.build_chat(project, storage),
        corpus.build_corpus(project, storage),
        training.build_tokenizer(project, storage),
        *(writer.build_shards(project, storage, g, 1) for g in ("web", "articles", "chat")),
    ):
        built[report.dataset.key] = (report.manifest.version, values_of(report.dataset))
    changed = {key: value for key, value in built.items() if PINNED.get(key) != value}
    assert not changed, "\n".join(f'"{key}": {value},' for key, value in changed.items())
    assert built.keys() == PINNED.keys()
