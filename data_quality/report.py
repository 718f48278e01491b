"""The report page: what came in, what was dropped and why, what was trained, how well.

One self-contained HTML file: no scripts, no fonts or images from elsewhere. Its figures come from
the views of ``data_quality.views``, so each can be asked for again with ``samovar sql``; the
statement stands under each table.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import numpy as np

from data_quality import plots
from data_quality.views import connect
from pipelines.workspace import Workspace

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fffdfa; }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.4rem; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; margin: .6rem 0; font-size: 14px }
th, td { padding: .2rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #eee;
  overflow-wrap: anywhere }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td:first-child, th { white-space: nowrap }
code { font-size: 12px; color: #777; white-space: pre-wrap }
svg { max-width: 100%; height: auto }
figure { display: inline-block; width: 47%; margin: .4rem .6rem .4rem 0 }
"""

_SOURCES = """
SELECT source, sum(documents) AS "in", sum(kept) AS kept, sum(documents - kept) AS dropped,
  round(100 * sum(kept) / sum(documents), 1) AS "kept, %"
FROM (
  SELECT source, count(*) AS documents, count(*) AS kept FROM documents GROUP BY source
  UNION ALL SELECT source, count(*), count(*) FROM dialogs GROUP BY source
  UNION ALL SELECT source, count(*), 0 FROM drops GROUP BY source
) GROUP BY source ORDER BY source
"""
_DROPS = """
SELECT stage, reason, count(*) AS count, sum(characters) AS characters,
  round(min(value), 3) AS "least value", round(max(value), 3) AS "greatest value",
  any_value(threshold) AS threshold
FROM drops GROUP BY stage, reason ORDER BY count DESC, stage, reason
"""
_EXAMPLES = """
SELECT reason, excerpt, detail, id FROM (
  SELECT *, row_number() OVER (PARTITION BY stage, reason ORDER BY id) AS nth FROM drops
) WHERE nth <= 2 ORDER BY reason, id
"""
_LANGUAGES = """
SELECT language, count(*) AS documents, round(avg(language_confidence), 3) AS "mean confidence"
FROM measurements GROUP BY language ORDER BY documents DESC, language LIMIT 15
"""
_DUPLICATES = """
SELECT distance, count(*) AS documents FROM duplicates GROUP BY distance ORDER BY distance
"""
_SHARDS = """
SELECT "group", split, count(*) AS documents, sum(characters) AS characters,
  sum(tokens) AS tokens, round(sum(characters) / sum(tokens), 2) AS "characters a token"
FROM shards GROUP BY ALL ORDER BY ALL
"""
_BPC = """
SELECT model, "group", round(bits_per_character, 4) AS "bits a character",
  round(answer_bits_per_character, 4) AS "answers only", characters, documents
FROM bpc ORDER BY "group", bits_per_character, model
"""
_SAMPLES = "SELECT model, prompt, text, finished FROM samples ORDER BY model DESC, prompt"


def render_report(workspace: Workspace) -> str:
    """The page as HTML text. Sections whose data isn't built say so."""
    connection = connect(workspace)
    profile = html.escape(workspace.project.profile)
    body = "\n".join(
        f"<section><h2>{html.escape(title)}</h2>\n{content}\n</section>"
        for title, content in _sections(workspace, connection)
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Samovar: {profile}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>Data and model report, profile {profile}</h1>\n{body}\n</body></html>\n"
    )


def _sections(
    workspace: Workspace, connection: duckdb.DuckDBPyConnection
) -> Iterator[tuple[str, str]]:
    yield "Sources", _table(connection, _SOURCES)
    yield "What was dropped, and why", _drop_bars(connection) + _table(connection, _DROPS)
    yield "Examples of what was dropped", _table(connection, _EXAMPLES)
    yield "Measurements of all text documents", _histograms(workspace, connection)
    yield "Languages", _table(connection, _LANGUAGES)
    yield "Repeats by Hamming distance", _table(connection, _DUPLICATES)
    yield "Shards", _table(connection, _SHARDS)
    yield "Training", _loss_curves(connection)
    yield "Bits per character on held-out text", _table(connection, _BPC)
    yield "Samples", _table(connection, _SAMPLES)


def _drop_bars(connection: duckdb.DuckDBPyConnection) -> str:
    rows = connection.sql(
        "SELECT reason, count(*) AS n FROM drops GROUP BY reason ORDER BY n DESC, reason"
    ).fetchall()
    return _figure(plots.bars(dict(rows), "Dropped by reason")) if rows else ""


def _histograms(workspace: Workspace, connection: duckdb.DuckDBPyConnection) -> str:
    """Distributions with the thresholds drawn in. Counts are made in SQL: memory stays small."""
    filters = workspace.project.filters
    counts = np.zeros(len(plots.LENGTH_BINS) - 1, np.int64)
    lengths = "SELECT characters, count(*) FROM measurements GROUP BY characters ORDER BY ALL"
    cursor = connection.execute(lengths)
    while batch := cursor.fetchmany(10_000):
        values, weights = zip(*batch, strict=True)
        counts += np.histogram(values, plots.LENGTH_BINS, weights=weights)[0].astype(np.int64)
    if not counts.sum():
        return _EMPTY
    marks = [filters.min_chars, filters.max_chars]
    drawn = [_figure(plots.length_histogram(counts, "Length in characters", marks))]
    for column, title, mark in (
        ("letter_ratio", "Letters of all characters", filters.min_letter_ratio),
        ("special_ratio", "Specials of all characters", filters.max_special_ratio),
        ("cyrillic_ratio", "Cyrillic of the letters", filters.min_cyrillic_ratio),
        ("language_confidence", "Language confidence", filters.lang_conf_threshold),
    ):
        rows = connection.sql(
            f"SELECT least(floor({column} * 50), 49)::INTEGER AS bin, count(*) "
            "FROM measurements GROUP BY bin ORDER BY bin"
        ).fetchall()
        shares = np.zeros(50, np.int64)
        for index, count in rows:
            shares[index] = count
        drawn.append(_figure(plots.share_histogram(shares, title, [mark])))
    return "\n".join(drawn)


def _loss_curves(connection: duckdb.DuckDBPyConnection) -> str:
    drawn = []
    phases = connection.sql("SELECT DISTINCT phase FROM training_steps ORDER BY phase").fetchall()
    for (phase,) in phases:
        rows = connection.execute(
            "SELECT step, loss FROM training_steps WHERE phase = ? ORDER BY step", [phase]
        ).fetchall()
        steps, losses = zip(*rows, strict=True)
        drawn.append(_figure(plots.loss_curve(steps, losses, phase)))
    return "\n".join(drawn) or _EMPTY


_EMPTY = "<p>Nothing was built of this yet.</p>"


def _figure(svg: str) -> str:
    """The plot inside the page: without the XML prologue, which is none of HTML."""
    return f"<figure>{svg[svg.index('<svg') :]}</figure>"


def _table(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    result = connection.sql(sql)
    columns, rows = result.columns, result.fetchall()
    if not rows:
        return _EMPTY
    numeric = [_is_numeric([row[index] for row in rows]) for index in range(len(columns))]
    head = "".join(_cell("th", name, right) for name, right in zip(columns, numeric, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(_cell("td", value, right) for value, right in zip(row, numeric, strict=True))
        + "</tr>"
        for row in rows
    )
    statement = html.escape(" ".join(sql.split()))
    return f"<table><tr>{head}</tr>\n{body}</table>\n<code>{statement}</code>"


def _cell(tag: str, value: Any, right: bool) -> str:
    if value is None:
        text = ""
    elif isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    else:
        text = html.escape(str(value))
    return f'<{tag} class="number">{text}</{tag}>' if right else f"<{tag}>{text}</{tag}>"


def _is_numeric(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in present
    )
