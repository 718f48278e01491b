"""Measurements of many texts in one compiled pass over their UTF-8 bytes.

The values are those of :func:`pipelines.filters.measure.measure`, which stays the definition: of
language (``langid``), simhash (``simhash``), character classes and stop words. Texts whose
lower-casing can't be done character by character are measured by it.

Inputs are Arrow's own buffers: ``data`` (bytes) and ``offsets`` (n + 1) of a ``large_string``
array. Memory beyond them is one row of figures a text and a table of hashed 4-grams (16 MB).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numba import njit

from pipelines.filters.character_tables import (
    CYRILLIC,
    DIGIT,
    LETTER,
    SPECIAL,
    character_tables,
)
from pipelines.filters.language import model_tables
from pipelines.filters.measure import Measurement, measure

_GRAMS = 1 << 20  # slots of the table of hashed 4-grams: of Russian text there are some 400 000
_PROBES = 8
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 / golden ratio: spreads keys (Knuth)
_GENERAL = -1  # in `features`: to be measured in Python

# Columns of the integer figures.
_CHARACTERS, _LETTERS, _DIGITS, _SPECIALS, _CYRILLIC, _HITS, _FIRST_HIT, _FEATURES = range(8)


def measure_texts(texts: Sequence[str], stop_words: Sequence[str]) -> list[Measurement]:
    """``[measure(text, stop_words) for text in texts]``, some fifty times as fast."""
    array = pa.array(texts, pa.large_string())
    _, offsets, data = array.buffers()
    tables, language = character_tables(), model_tables()
    words = _trie(tuple(stop_words))
    figures = np.zeros((len(texts), 8), np.int64)
    signatures = np.zeros(len(texts), np.uint64)
    labels = np.zeros(len(texts), np.int32)
    confidence = np.zeros(len(texts), np.float64)
    _measure_all(
        np.frombuffer(data, np.uint8) if data and data.size else np.zeros(0, np.uint8),
        np.frombuffer(offsets, np.int64)[: len(texts) + 1],
        *(tables.kind, tables.word, tables.lower),
        *(language.next_state, language.output_starts, language.outputs),
        *(language.weights, language.priors),
        *(words.edge_starts, words.edge_codes, words.edge_targets, words.ends),
        _grams(),
        *(figures, signatures, labels, confidence),
    )
    return [
        measure(text, stop_words)
        if row[_FEATURES] == _GENERAL
        else _measurement(row, signature, language.labels[label], probability, words.words)
        for text, row, signature, label, probability in zip(
            *(texts, figures.tolist(), signatures.tolist(), labels.tolist(), confidence.tolist()),
            strict=True,
        )
    ]


def _measurement(
    row: list[int], signature: int, label: str, probability: float, words: tuple[str, ...]
) -> Measurement:
    return Measurement.of_counts(
        characters=row[_CHARACTERS],
        letters=row[_LETTERS],
        digits=row[_DIGITS],
        specials=row[_SPECIALS],
        cyrillic=row[_CYRILLIC],
        stop_words=row[_HITS],
        stop_word=words[row[_FIRST_HIT]] if row[_HITS] else None,
        language=label,
        language_confidence=probability,
        simhash=signature,
        simhash_features=row[_FEATURES],
    )


@lru_cache(maxsize=1)
def _grams() -> np.ndarray:
    """(slots, 2) uint64: 4-grams seen so far in this process and their hashes; 0 is a free slot."""
    return np.zeros((_GRAMS, 2), np.uint64)


@dataclass(frozen=True)
class _Trie:
    """Stop words as a trie over lower-case code points; ``ends[node]`` is a word's number or -1."""

    words: tuple[str, ...]
    edge_starts: np.ndarray
    edge_codes: np.ndarray
    edge_targets: np.ndarray
    ends: np.ndarray


@lru_cache(maxsize=8)
def _trie(stop_words: tuple[str, ...]) -> _Trie:
    words = tuple(dict.fromkeys(word.lower() for word in stop_words if word))
    children: list[dict[int, int]] = [{}]
    ends = [-1]
    for number, word in enumerate(words):
        node = 0
        for character in word:
            if ord(character) not in children[node]:
                children[node][ord(character)] = len(children)
                children.append({})
                ends.append(-1)
            node = children[node][ord(character)]
        ends[node] = number
    starts = np.cumsum([0, *(len(edges) for edges in children)])
    return _Trie(
        words,
        starts.astype(np.int32),
        np.array([code for edges in children for code in edges], np.int32),
        np.array([target for edges in children for target in edges.values()], np.int32),
        np.array(ends, np.int32),
    )


@njit(cache=True, nogil=True)
def _measure_all(
    data,
    offsets,
    kind,
    word,
    lower,
    next_state,
    output_starts,
    outputs,
    weights,
    priors,
    edge_starts,
    edge_codes,
    edge_targets,
    ends,
    grams,
    figures,
    signatures,
    labels,
    confidence,
):
    visits = np.zeros(output_starts.shape[0] - 1, np.int32)
    visited = np.empty(output_starts.shape[0] - 1, np.int32)
    longest = 0
    for index in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[index + 1] - offsets[index])
    codes = np.empty(longest + 1, np.int32)
    for index in range(offsets.shape[0] - 1):
        start, end = offsets[index], offsets[index + 1]
        labels[index], confidence[index] = _language(
            *(data, start, end, next_state, output_starts, outputs, weights, priors),
            *(visits, visited),
        )
        count, plain = _characters(data, start, end, kind, lower, codes, figures[index])
        if not plain:
            figures[index, _FEATURES] = _GENERAL
            continue
        _stop_words(
            *(codes, count, word, edge_starts, edge_codes, edge_targets, ends, figures[index])
        )
        signatures[index], figures[index, _FEATURES] = _simhash(codes, count, word, grams)


@njit(cache=True, nogil=True)
def _language(
    data, start, end, next_state, output_starts, outputs, weights, priors, visits, visited
):
    """langid's automaton over the bytes, its naive Bayes scores, and the best one's probability."""
    state = np.int64(0)
    seen = 0
    for position in range(start, end):
        state = np.int64(next_state[(state << 8) + data[position]])
        if visits[state] == 0:
            visited[seen] = state
            seen += 1
        visits[state] += 1
    scores = priors.copy()
    for position in range(seen):
        state = np.int64(visited[position])
        times = np.float64(visits[state])
        visits[state] = 0
        for output in range(output_starts[state], output_starts[state + 1]):
            row = outputs[output]
            for label in range(scores.shape[0]):
                scores[label] += times * weights[row, label]
    best = 0
    for label in range(1, scores.shape[0]):
        if scores[label] > scores[best]:
            best = label
    total = 0.0
    for label in range(scores.shape[0]):
        total += np.exp(scores[label] - scores[best])
    return best, 1.0 / total


@njit(cache=True, nogil=True)
def _characters(data, start, end, kind, lower, codes, row):
    """Decode, count the kinds, and lower-case into ``codes``; (characters, all of it plain)."""
    counts = np.zeros(5, np.int64)
    count = 0
    plain = True
    position = start
    while position < end:
        byte = np.int32(data[position])
        if byte < 0x80:
            code = byte
            position += 1
        elif byte < 0xE0:
            code = (byte & 0x1F) << 6 | (np.int32(data[position + 1]) & 0x3F)
            position += 2
        elif byte < 0xF0:
            code = (
                (byte & 0x0F) << 12
                | (np.int32(data[position + 1]) & 0x3F) << 6
                | (np.int32(data[position + 2]) & 0x3F)
            )
            position += 3
        else:
            code = (
                (byte & 0x07) << 18
                | (np.int32(data[position + 1]) & 0x3F) << 12
                | (np.int32(data[position + 2]) & 0x3F) << 6
                | (np.int32(data[position + 3]) & 0x3F)
            )
            position += 4
        counts[kind[code]] += 1
        small = lower[code]
        if small < 0:
            plain = False
        codes[count] = small
        count += 1
    row[_CHARACTERS] = count
    row[_LETTERS] = counts[LETTER] + counts[CYRILLIC]
    row[_DIGITS] = counts[DIGIT]
    row[_SPECIALS] = counts[SPECIAL]
    row[_CYRILLIC] = counts[CYRILLIC]
    return count, plain


@njit(cache=True, nogil=True)
def _stop_words(codes, count, word, edge_starts, edge_codes, edge_targets, ends, row):
    """Longest words first, from left to right, with no word character on either side."""
    position = 0
    while position < count:
        if position > 0 and word[codes[position - 1]]:
            position += 1
            continue
        node = 0
        at = position
        found, found_end = -1, position
        while at < count:
            target = -1
            for edge in range(edge_starts[node], edge_starts[node + 1]):
                if edge_codes[edge] == codes[at]:
                    target = edge_targets[edge]
                    break
            if target < 0:
                break
            node = target
            at += 1
            if ends[node] >= 0 and (at == count or not word[codes[at]]):
                found, found_end = ends[node], at
        if found < 0:
            position += 1
            continue
        if row[_HITS] == 0:
            row[_FIRST_HIT] = found
        row[_HITS] += 1
        position = found_end


@njit(cache=True, nogil=True)
def _simhash(codes, count, word, grams):
    """Signature and number of windows; ``codes`` is compacted in place to its word characters."""
    length = 0
    for position in range(count):
        if word[codes[position]]:
            codes[length] = codes[position]
            length += 1
    windows = max(length - 3, 1)
    # How often each of the 64 bits was set: lanes[k] has eight counters of a byte each, byte b for
    # bit 8 * b + k. Eight additions instead of 64, and no branch; emptied before a byte is full.
    counts = np.zeros(64, np.int64)
    lanes = np.zeros(8, np.uint64)
    ones = np.uint64(0x0101010101010101)
    key = np.uint64(0)
    slots = np.int64(grams.shape[0] - 1)
    last_wide = -4  # the last character whose code doesn't fit into 16 bits
    for position in range(min(3, length)):
        key = key << np.uint64(16) | np.uint64(codes[position] & 0xFFFF)
        if codes[position] > 0xFFFF:
            last_wide = position
    for first in range(0, windows, 255):
        for position in range(first, min(first + 255, windows)):
            if length >= 4:
                code = codes[position + 3]
                key = key << np.uint64(16) | np.uint64(code & 0xFFFF)
                if code > 0xFFFF:
                    last_wide = position + 3
            if length < 4 or last_wide >= position:
                # Four of these don't fit into a key, and they are rare.
                value = _md5_tail(codes, position, min(4, length - position))
            else:
                slot = np.int64((key * _MIX) >> np.uint64(40)) & slots
                if grams[slot, 0] != key:
                    slot = _find_gram(codes, position, key, slot, grams)
                value = grams[slot, 1]
            for lane in range(8):
                lanes[lane] += (value >> np.uint64(lane)) & ones
        for bit in range(64):
            counts[bit] += np.int64((lanes[bit & 7] >> np.uint64(bit & 56)) & np.uint64(255))
        lanes[:] = 0
    signature = np.uint64(0)
    for bit in range(64):
        if 2 * counts[bit] > windows:
            signature |= np.uint64(1) << np.uint64(bit)
    return signature, windows if length else 0


@njit(cache=True, nogil=True)
def _find_gram(codes, position, key, slot, grams):
    """The slot of a 4-gram that isn't in its first one; hashed into a slot where it is new."""
    for _ in range(_PROBES):
        if grams[slot, 0] == key:
            return slot
        if grams[slot, 0] == np.uint64(0):
            break
        slot = (slot + 1) & (grams.shape[0] - 1)
    # A free slot, or the last one probed: what was there is hashed again when it comes back.
    grams[slot, 0] = key
    grams[slot, 1] = _md5_tail(codes, position, 4)
    return slot


_SHIFTS = np.array(
    [
        row[step % 4]
        for row in ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
        for step in range(16)
    ]
)
_SINES = np.floor(np.abs(np.sin(np.arange(1, 65))) * 2.0**32).astype(np.uint32)


@njit(cache=True, nogil=True)
def _md5_tail(codes, position, size):
    """md5 (RFC 1321) of the UTF-8 bytes of up to four characters: always one block of 64 bytes."""
    words = np.zeros(16, np.uint32)
    length = 0
    for index in range(size):
        code = codes[position + index]
        if code < 0x80:
            length = _put(words, length, code)
        elif code < 0x800:
            length = _put(words, length, 0xC0 | code >> 6)
            length = _put(words, length, 0x80 | code & 0x3F)
        elif code < 0x10000:
            length = _put(words, length, 0xE0 | code >> 12)
            length = _put(words, length, 0x80 | code >> 6 & 0x3F)
            length = _put(words, length, 0x80 | code & 0x3F)
        else:
            length = _put(words, length, 0xF0 | code >> 18)
            length = _put(words, length, 0x80 | code >> 12 & 0x3F)
            length = _put(words, length, 0x80 | code >> 6 & 0x3F)
            length = _put(words, length, 0x80 | code & 0x3F)
    _put(words, length, 0x80)
    words[14] = 8 * length  # bits
    a, b = np.uint32(0x67452301), np.uint32(0xEFCDAB89)
    c, d = np.uint32(0x98BADCFE), np.uint32(0x10325476)
    for step in range(64):
        if step < 16:
            mixed, word = (b & c) | (~b & d), step
        elif step < 32:
            mixed, word = (d & b) | (~d & c), (5 * step + 1) & 15
        elif step < 48:
            mixed, word = b ^ c ^ d, (3 * step + 5) & 15
        else:
            mixed, word = c ^ (b | ~d), (7 * step) & 15
        total = np.uint32(np.uint32(a + np.uint32(mixed)) + np.uint32(_SINES[step] + words[word]))
        shift = np.uint32(_SHIFTS[step])
        turned = np.uint32(total << shift) | np.uint32(total >> (np.uint32(32) - shift))
        a, d, c, b = d, c, b, np.uint32(b + turned)
    c = np.uint32(c + np.uint32(0x98BADCFE))
    d = np.uint32(d + np.uint32(0x10325476))
    # The digest is little-endian words; the package reads its last 8 bytes as one big-endian one.
    return np.uint64(_swapped(c)) << np.uint64(32) | np.uint64(_swapped(d))


@njit(cache=True, nogil=True)
def _put(words, length, byte):
    """Add a byte to a message of little-endian words; returns the new length."""
    words[length >> 2] |= np.uint32(byte) << np.uint32(8 * (length & 3))
    return length + 1


@njit(cache=True, nogil=True)
def _swapped(value):
    return np.uint32(
        (value & np.uint32(0xFF)) << np.uint32(24)
        | (value & np.uint32(0xFF00)) << np.uint32(8)
        | (value >> np.uint32(8)) & np.uint32(0xFF00)
        | value >> np.uint32(24)
    )
