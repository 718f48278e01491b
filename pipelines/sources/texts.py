"""Records of text sources to raw documents."""

from __future__ import annotations

import datetime
import json
from typing import Any

from pipelines.config import Source
from pipelines.sources.landing import SourceError
from pipelines.sources.records import BadRecord, Record

TEXT_COLUMNS = ("text", "content", "body", "article")
URL_COLUMNS = ("url", "URL", "link", "source_url")


def to_document(record: Record, source: Source, where: str) -> dict[str, Any] | BadRecord:
    """``text``, ``url`` and ``meta`` of a raw document; BadRecord where the text is no string.

    The text column is the configured one or the first of :data:`TEXT_COLUMNS`; when the record
    has none, SourceError names the columns found, for no record of such a file can be read.
    """
    column = _column(record, source.text_column, TEXT_COLUMNS)
    if column is None:
        wanted = source.text_column or " or ".join(TEXT_COLUMNS)
        raise SourceError(
            f"{where}: no column {wanted}; found: {', '.join(record)}. "
            "Set text_column of the source"
        )
    text = record[column]
    if not isinstance(text, str):
        return BadRecord("no_text", f"{column} is {type(text).__name__}")
    url_column = _column(record, source.url_column, URL_COLUMNS)
    url = record.get(url_column) if url_column else None
    rest = {key: value for key, value in record.items() if key not in (column, url_column)}
    return {
        "text": text,
        "url": url if isinstance(url, str) else None,
        "meta": to_meta(rest),
    }


def to_meta(columns: dict[str, Any]) -> str | None:
    """A record's other columns as JSON with sorted keys; None when there are none."""
    present = {str(key): value for key, value in columns.items() if value is not None}
    if not present:
        return None
    return json.dumps(present, ensure_ascii=False, sort_keys=True, default=_plain)


def _plain(value: Any) -> str:
    """Values that JSON has no form for: dates by ISO 8601, bytes and others by their repr."""
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else repr(value)


def _column(record: Record, configured: str | None, usual: tuple[str, ...]) -> str | None:
    if configured is not None:
        return configured if configured in record else None
    return next((name for name in usual if name in record), None)
