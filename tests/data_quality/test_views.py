"""Views, the compression baseline and the report page, on a materialized project."""

from __future__ import annotations

import lzma
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from data_quality import plots
from data_quality.compression import compress
from data_quality.report import render_report
from data_quality.views import connect
from pipelines.shards.writer import open_stream
from pipelines.tokenizer.training import load_tokenizer
from pipelines.workspace import Workspace

built = [pytest.mark.slow, pytest.mark.xdist_group("built")]


def test_views_of_nothing_are_empty(workspace: Workspace) -> None:
    connection = connect(workspace)
    for view in (
        *("raw_documents", "documents", "measurements", "drops", "duplicates", "dialogs"),
        *("shards", "training_steps", "bpc", "samples"),
    ):
        assert connection.execute(f"SELECT count(*) FROM {view}").fetchall() == [(0,)]


def test_page_of_nothing_says_so(workspace: Workspace) -> None:
    assert render_report(workspace).count("Nothing was built of this yet.") >= 8


class TestBuilt:
    """On a project with everything materialized."""

    pytestmark = built

    @pytest.fixture
    def workspace(self, built_project: Path) -> Workspace:
        return Workspace.open(file=built_project)

    def test_views_agree_with_the_manifests(self, workspace: Workspace) -> None:
        connection = connect(workspace)

        def count(sql: str) -> int:
            ((value,),) = connection.execute(sql).fetchall()
            return value

        def total(key: str, stat: str) -> int:
            return workspace.dataset(key).manifest().total(stat)

        assert count("SELECT count(*) FROM documents WHERE \"group\" = 'web'") == total(
            "documents/web", "rows"
        )
        assert count("SELECT count(*) FROM dialogs") == total("dialogs/chat", "rows")
        assert count(
            "SELECT sum(tokens) FROM shards WHERE \"group\" = 'chat' AND split = 'train'"
        ) == total("shards/chat", "train_tokens")
        assert count("SELECT count(*) FROM training_steps WHERE phase = 'sft'") == total(
            "checkpoints/sft", "steps"
        )
        assert count("SELECT count(*) FROM bpc") == 12
        assert count("SELECT count(*) FROM duplicates d JOIN dialogs k ON k.id = d.duplicate_of")

    def test_same_documents_for_models_and_compressors(self, workspace: Workspace) -> None:
        rows = (
            connect(workspace)
            .execute('SELECT "group", characters, documents FROM bpc GROUP BY ALL')
            .fetchall()
        )
        assert len(rows) == 3

    def test_compressor_gets_the_text_of_the_documents(self, workspace: Workspace) -> None:
        stream = open_stream(workspace.storage, "web", "validation")
        result = compress("xz -9", stream, load_tokenizer(workspace.storage), 1_500)
        ids = [document.id for document in stream.documents_from_front(1_500)]
        texts = dict(connect(workspace).execute("SELECT id, text FROM documents").fetchall())
        content = "".join(f"{texts[id]}\n" for id in ids).encode()
        assert result.bits == 8 * len(lzma.compress(content, preset=9))
        assert result.characters == sum(len(texts[id]) for id in ids)

    def test_page_is_whole_and_repeatable(self, workspace: Workspace) -> None:
        page = render_report(workspace)
        assert page == render_report(workspace)
        for title in ("Sources", "What was dropped", "Training", "Bits per character", "Samples"):
            assert title in page
        assert "Nothing was built" not in page
        # Self-contained: nothing is fetched from elsewhere.
        assert not re.search(r'(?:src|href)="https?:', page)
        for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
            assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_plots_are_deterministic_svg() -> None:
    steps = list(range(1, 2_000))
    drawn = [plots.loss_curve(steps, [1 / s for s in steps], "Потеря") for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert "Потеря" in drawn[0]
    assert len(drawn[0]) < 60_000
    empty = plots.length_histogram(np.zeros(len(plots.LENGTH_BINS) - 1, int))
    assert ElementTree.fromstring(empty[empty.index("<svg") :]).tag.endswith("svg")
    bars = plots.bars({"a & b": 3, "<c>": 1}, "reasons")
    assert ElementTree.fromstring(bars[bars.index("<svg") :]) is not None
