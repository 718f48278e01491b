"""Records of dialog sources to raw dialogs: one recogniser for each layout.

A raw dialog is a list of (role, content) with the roles as the file names them; what they mean
is decided later (``pipelines.chat``). Any layout is accepted for any dialog source. Layouts whose
dialogs span several records (message trees, jokes) will group records before this step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipelines.sources.landing import SourceError
from pipelines.sources.records import BadRecord, Record, format_of, read_records

Message = dict[str, str]
_TURN_MARKS = ("- ", "— ", "– ")


def read_dialogs(path: Path) -> Iterator[Record | BadRecord]:
    """Records of a dialog file; ``.txt`` files are in the plain layout, one record a dialog."""
    plain = format_of(path)[0] == ".txt"
    for record in read_records(path, separator="" if plain else None):
        if plain and isinstance(record, dict):
            record = _plain_turns(record["text"])
        yield record


def to_messages(record: Record, where: str) -> list[Message] | BadRecord:
    """The messages of a record in whichever known layout it is.

    BadRecord for a record of a known layout with unusable content; SourceError, naming the
    columns found, when no layout fits.
    """
    for fits, convert in _LAYOUTS:
        if fits(record):
            return convert(record)
    raise SourceError(
        f"{where}: no known dialog layout has the columns {', '.join(record)}. Known: "
        "messages or conversation (role, content); conversations (from, value); question and "
        "answer; instruction, input and output; prompt and completion or response; sample, "
        "dialogue, dialog or replics (a list of strings)"
    )


def layout_columns(record: Record) -> set[str]:
    """The columns that carry the dialog itself; the others are its metadata."""
    return {column for column in record if column in _DIALOG_COLUMNS}


def _plain_turns(text: str) -> Record | BadRecord:
    """A stretch of lines in the plain layout: a turn begins with a dash, else it goes on."""
    turns: list[str] = []
    for line in text.split("\n"):
        line = line.strip("\r \t\ufeff")
        mark = next((mark for mark in _TURN_MARKS if line.startswith(mark)), None)
        if mark is not None or line in ("-", "—", "–"):
            turns.append(line[2:].strip())
        elif turns:
            turns[-1] = f"{turns[-1]}\n{line}"
        else:
            return BadRecord(
                "no_turn_mark", f"the first line begins with no dash: {line[:60]}", text
            )
    return {"dialog": turns}


def _role_list(column: str, role: str, content: str) -> tuple[Callable, Callable]:
    """A layout with a list of {role, content} in ``column``, or a dict of two lists."""

    def fits(record: Record) -> bool:
        return column in record

    def convert(record: Record) -> list[Message] | BadRecord:
        value = record[column]
        if isinstance(value, dict):
            roles, contents = value.get(role), value.get(content)
            if not isinstance(roles, list) or not isinstance(contents, list):
                return BadRecord("malformed_dialog", f"{column} has no lists {role} and {content}")
            if len(roles) != len(contents):
                return BadRecord("malformed_dialog", f"{len(roles)} roles, {len(contents)} texts")
            value = [{role: r, content: c} for r, c in zip(roles, contents, strict=True)]
        if not isinstance(value, list):
            return BadRecord("malformed_dialog", f"{column} is {type(value).__name__}")
        messages = []
        for turn in value:
            if not isinstance(turn, dict) or not isinstance(turn.get(role), str):
                return BadRecord("malformed_dialog", f"a turn of {column} has no {role}")
            # A turn without text drops the dialog: what follows it answers something unknown.
            if not isinstance(turn.get(content), str):
                return BadRecord("turn_without_text", f"{turn[role]}'s {content} is null")
            messages.append({"role": turn[role], "content": turn[content]})
        return messages

    return fits, convert


def _pair(question: str, answer: str, context: str | None = None) -> tuple[Callable, Callable]:
    """A layout of one question and one answer, with an optional text that the question is about."""

    def fits(record: Record) -> bool:
        return question in record and answer in record

    def convert(record: Record) -> list[Message] | BadRecord:
        parts = [record[question], record.get(context) if context else None]
        asked = [part for part in parts if isinstance(part, str) and part.strip()]
        reply = record[answer]
        if not asked or not isinstance(reply, str):
            return BadRecord("turn_without_text", f"{question} or {answer} has no text")
        return [
            {"role": "user", "content": "\n".join(asked)},
            {"role": "assistant", "content": reply},
        ]

    return fits, convert


def _turn_list(column: str) -> tuple[Callable, Callable]:
    """A layout with a list of strings in ``column``: the user first, then in turn."""

    def fits(record: Record) -> bool:
        return column in record

    def convert(record: Record) -> list[Message] | BadRecord:
        turns: Any = record[column]
        if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
            return BadRecord("malformed_dialog", f"{column} is no list of strings")
        return [
            {"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)
        ]

    return fits, convert


_LAYOUTS = (
    _role_list("messages", "role", "content"),
    _role_list("conversation", "role", "content"),
    _role_list("conversations", "from", "value"),
    _pair("question", "answer"),
    _pair("instruction", "output", context="input"),
    _pair("prompt", "completion"),
    _pair("prompt", "response"),
    _turn_list("sample"),
    _turn_list("dialogue"),
    _turn_list("dialog"),
    _turn_list("replics"),
)
_DIALOG_COLUMNS = frozenset(
    "messages conversation conversations question answer instruction input output prompt "
    "completion response sample dialogue dialog replics".split()
)
