"""The train/validation split: a stable hash of the document id, nothing else."""

from __future__ import annotations

import hashlib
from typing import Literal

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")


def split_of(id: str, validation_share: float) -> Split:
    """Where a document goes. All parts of a split document (``id#0``, ``id#1``) go together, so
    that no half of a text is held out while the model trains on the other.
    """
    base = id.partition("#")[0]
    value = int.from_bytes(hashlib.blake2b(base.encode(), digest_size=8).digest(), "big")
    return "validation" if value < validation_share * 2**64 else "train"
