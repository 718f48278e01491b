"""Text normalisation and the splitting of long documents: pure functions over strings.

Raw chunks keep the text as it was decoded. Whoever needs the text applies :func:`normalise`,
measurements and documents alike, so a changed rule never fetches anything again.
"""

from __future__ import annotations

import re
import unicodedata

# Part of the VERSION of every stage that uses it: raise it when the output changes.
NORMALISATION_VERSION = 1

_LINE_ENDS = re.compile(r"\r\n?|[\u0085\u2028\u2029\v\f]")
# Control characters but tab and newline; zero-width and invisible formatting characters (the
# soft hyphen hides inside Russian words of web pages); byte order marks; lone surrogates.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_TRAILING_SPACE = re.compile(r"[ \t\u00a0]+(?=\n)")
_BLANK_LINES = re.compile(r"\n{3,}")
_PARAGRAPH_END = re.compile(r"\n\n+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[»”\")]*\s+|\n+")


def normalise(text: str) -> str:
    """Unicode NFC with ``\\n`` line ends, without invisible characters and outer white space.

    At most one blank line in a row, no blanks before a line's end. Idempotent.
    """
    text = _LINE_ENDS.sub("\n", text)
    text = _INVISIBLE.sub("", text)
    text = unicodedata.normalize("NFC", text)
    text = _TRAILING_SPACE.sub("", text)
    return _BLANK_LINES.sub("\n\n", text).strip()


def split_long(text: str, max_chars: int) -> list[str]:
    """Pieces of at most ``max_chars`` characters that end where a paragraph or sentence ends.

    Paragraphs are packed as long as they fit; one that is too long itself is cut after
    sentences, a sentence that is too long after a blank, and a run without blanks anywhere.
    Every character but white space at the cuts is in exactly one piece, in order.
    """
    if len(text) <= max_chars:
        return [text]
    pieces: list[str] = []
    start = 0
    while len(text) - start > max_chars:
        end, resume = _cut(text, start, max_chars)
        if piece := text[start:end].strip():
            pieces.append(piece)
        start = resume
    if piece := text[start:].strip():
        pieces.append(piece)
    return pieces


def _cut(text: str, start: int, max_chars: int) -> tuple[int, int]:
    """Where the piece that starts at ``start`` ends, and where the next begins."""
    limit = start + max_chars
    # A cut in the first half would leave a stub; then a finer kind of end is better.
    half = start + max_chars // 2
    for pattern in (_PARAGRAPH_END, _SENTENCE_END, re.compile(r"\s+")):
        best = None
        for match in pattern.finditer(text, half, min(len(text), limit + 1)):
            if match.start() <= limit:
                best = match
        if best is not None:
            end = best.start() if best.group().isspace() else _visible_end(best)
            return min(end, limit), best.end()
    return limit, limit


def _visible_end(match: re.Match[str]) -> int:
    """The end of the closing quotes that a sentence end carries."""
    return match.start() + len(match.group().rstrip())
