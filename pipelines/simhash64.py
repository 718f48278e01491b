"""64-bit simhash with the values of the ``simhash`` package (2.1.2, its default settings).

Lower-case the text, keep what ``[\\w\\u4e00-\\u9fcc]`` matches, slide a window of 4 characters
over the joined rest, hash each distinct window with the last 8 bytes of its md5; bit *i* of the
value is set when more than half of all windows (counted with their frequency) have it set.
(Charikar 2002, https://dl.acm.org/doi/10.1145/509907.509965; the package's tie rule: half is 0.)

The package raises OverflowError on numpy 2 when one window occurs more than 255 times; sums are
64-bit integers here, so the value is right there too.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import lru_cache

import numpy as np

_WORD = re.compile(r"[\w\u4e00-\u9fcc]+")
_WINDOW = 4


def simhash(text: str) -> tuple[int, int]:
    """``(value, features)``: the signature and the number of word characters' windows.

    ``features`` is 0 for a text without any word character: all of those share one signature,
    which says nothing about their likeness.
    """
    content = "".join(_WORD.findall(text.lower()))
    windows = Counter(content[i : i + _WINDOW] for i in range(max(len(content) - _WINDOW + 1, 1)))
    hashes = np.frombuffer(b"".join(map(_hash, windows)), np.uint8).reshape(-1, 8)
    weights = np.fromiter(windows.values(), np.int64, len(windows))
    sums = weights @ np.unpackbits(hashes, axis=1).astype(np.int64)
    bits = np.packbits(2 * sums > weights.sum())
    return int.from_bytes(bits.tobytes(), "big"), int(weights.sum()) if content else 0


@lru_cache(maxsize=1 << 18)
def _hash(window: str) -> bytes:
    """The last 8 bytes of the window's md5 (not for security: it is the package's hash)."""
    return hashlib.md5(window.encode("utf-8"), usedforsecurity=False).digest()[-8:]
