"""Arrow schemas of the records that pass between stages.

Strings that may be concatenated are ``large_string``: plain ``string`` overflows at 2 GiB.
"""

from __future__ import annotations

import pyarrow as pa

MESSAGE = pa.struct([pa.field("role", pa.string()), pa.field("content", pa.large_string())])

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),  # <source>/<file>/<row>, #k for a split part
        pa.field("source", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("url", pa.string()),
        pa.field("meta", pa.string()),  # JSON object of the record's other columns
    ]
)

RAW_DIALOGS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("messages", pa.large_list(MESSAGE), nullable=False),  # roles as the file has them
        pa.field("meta", pa.string()),
    ]
)

DIALOGS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("messages", pa.large_list(MESSAGE), nullable=False),  # user, assistant, user, …
        pa.field("turns", pa.int32(), nullable=False),  # answers of the assistant
        pa.field("characters", pa.int64(), nullable=False),  # of all contents
        pa.field("answer_characters", pa.int64(), nullable=False),
        pa.field("simhash", pa.uint64(), nullable=False),  # of the contents, joined by newlines
        pa.field("simhash_features", pa.int32(), nullable=False),
    ]
)

MEASUREMENTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # row of the raw chunk's table
        pa.field("part", pa.int32(), nullable=False),  # 0 unless the document was split
        pa.field("parts", pa.int32(), nullable=False),
        pa.field("characters", pa.int64(), nullable=False),
        pa.field("letters", pa.int64(), nullable=False),
        pa.field("digits", pa.int64(), nullable=False),
        pa.field("specials", pa.int64(), nullable=False),
        pa.field("cyrillic", pa.int64(), nullable=False),
        pa.field("letter_ratio", pa.float64(), nullable=False),  # of all characters
        pa.field("special_ratio", pa.float64(), nullable=False),
        pa.field("cyrillic_ratio", pa.float64(), nullable=False),  # of the letters
        pa.field("stop_words", pa.int32(), nullable=False),  # occurrences
        pa.field("stop_word", pa.string()),  # the first one
        pa.field("language", pa.string(), nullable=False),
        pa.field("language_confidence", pa.float64(), nullable=False),  # normalised, 0 to 1
        pa.field("simhash", pa.uint64(), nullable=False),
        pa.field("simhash_features", pa.int32(), nullable=False),  # 0: no word character at all
    ]
)

DROPS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),  # the first filter that failed
        pa.field("value", pa.float64()),  # what was measured
        pa.field("threshold", pa.float64()),
        pa.field("detail", pa.string()),  # the stop word, the language, the document repeated, …
        pa.field("failed", pa.list_(pa.string()), nullable=False),  # every filter that failed
        pa.field("characters", pa.int64(), nullable=False),
        pa.field("excerpt", pa.string(), nullable=False),  # the first characters of the text
    ]
)

DUPLICATES = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("duplicate_of", pa.string(), nullable=False),  # an earlier, kept document
        pa.field("distance", pa.int32(), nullable=False),  # Hamming, in bits of 64
    ]
)

STEPS = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),  # finished optimizer steps, from 1
        pa.field("tokens", pa.int64(), nullable=False),  # input tokens since the run's start
        pa.field("loss", pa.float64(), nullable=False),  # nats a supervised token
        pa.field("learning_rate", pa.float64(), nullable=False),
        pa.field("gradient_norm", pa.float64(), nullable=False),  # before clipping
        pa.field("supervised_tokens", pa.int64(), nullable=False),  # of this step
        pa.field("tokens_by_group", pa.map_(pa.string(), pa.int64()), nullable=False),
    ]
)

BPC = pa.schema(
    [
        pa.field("model", pa.string(), nullable=False),  # a checkpoint, or a compressor
        pa.field("group", pa.string(), nullable=False),
        pa.field("bits_per_character", pa.float64(), nullable=False),
        pa.field("bits", pa.float64(), nullable=False),
        pa.field("characters", pa.int64(), nullable=False),
        pa.field("documents", pa.int64(), nullable=False),
        pa.field("tokens", pa.int64()),  # null for a compressor
        pa.field("answer_bits_per_character", pa.float64()),  # chat: the answers alone
        pa.field("answer_bits", pa.float64()),
        pa.field("answer_characters", pa.int64()),
    ]
)

SAMPLES = pa.schema(
    [
        pa.field("model", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # answer (chat) or continuation (plain)
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("finished", pa.bool_(), nullable=False),  # the model ended it itself
    ]
)

EXCERPT_CHARACTERS = 160


def drop(
    id: str,
    source: str,
    stage: str,
    reason: str,
    text: str = "",
    *,
    value: float | None = None,
    threshold: float | None = None,
    detail: str | None = None,
    failed: list[str] | None = None,
) -> dict:
    """One row of DROPS."""
    return {
        "id": id,
        "source": source,
        "stage": stage,
        "reason": reason,
        "value": value,
        "threshold": threshold,
        "detail": detail,
        "failed": failed or [reason],
        "characters": len(text),
        "excerpt": text[:EXCERPT_CHARACTERS],
    }


def drops_table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=DROPS)


def reason_counts(rows: list[dict]) -> dict[str, int]:
    """Rows by reason, sorted by name: the ``drops`` statistic of a chunk."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["reason"]] = counts.get(row["reason"], 0) + 1
    return dict(sorted(counts.items()))
