"""The groups of the later stages, and where each one's records are.

``web`` and ``articles`` are plain text (``documents/<group>``); ``chat`` is ``dialogs/chat``.
"""

from __future__ import annotations

from pipelines import documents
from pipelines.chat import dialogs, repeats
from pipelines.datasets import Dataset
from pipelines.storage import Storage

CHAT = "chat"


def records_key(group: str) -> str:
    """The key of the dataset that holds a group's documents or dialogs."""
    return repeats.KEY if group == CHAT else f"documents/{group}"


def records_of(storage: Storage, group: str) -> Dataset:
    return Dataset(storage, records_key(group))


def records_table(group: str) -> str:
    """The suffix of the files with the group's records."""
    return dialogs.TABLE if group == CHAT else documents.TABLE
