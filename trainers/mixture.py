"""Which window of which group is sample ``n`` of a run: index arithmetic, no input or output.

Samples are numbered ``n = 0, 1, 2, …`` over the whole run (``step * samples_per_step + i``), and
everything here is closed form in ``n``: a loader's state is one integer.

1. **Sample to group.** Samples come in blocks of 1 000. In each block a group has an exact number
   of slots (its share of 1 000, rounded by the largest remainder), laid out in one seeded order.
   So after any whole block the mix is exact, and the ``k``-th sample of a group is known from
   ``n`` alone.
2. **Group's sample to window.** A stream of ``T`` tokens has ``W = T // C`` windows an epoch, each
   of ``C + 1`` tokens (``C`` inputs and, one to the right, ``C`` targets). Sample ``k`` is in
   epoch ``k // W``; a seeded permutation of each epoch's own says which window it is, so that an
   epoch has every window exactly once.
3. **Window to position.** The stream is read as a ring, from a seeded phase of each epoch's own:
   window ``w`` starts at ``(phase + w * C) mod T``. Windows of one epoch share no target, their
   borders differ between epochs, and the ``T mod C`` targets left out move around. The join is
   after the last document's end token, like every join of two documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from trainers.counter_random import hashes, key, permute

BLOCK = 1000


class StreamTooShort(ValueError):
    """A group of the mixture has fewer tokens than one window."""


def block_counts(weights: Mapping[str, float]) -> dict[str, int]:
    """Samples of each group in a block of 1 000, by the largest remainder; they sum to 1 000.

    Groups in order of their names; of equal remainders the earlier name wins. A group of weight 0
    gets no sample. Exact fractions of the decimal numbers, as 0.57 * 1000 isn't 570 in binary.
    """
    exact = {group: Fraction(repr(float(weights[group]))) for group in sorted(weights)}
    total = sum(exact.values())
    quotas = {group: share / total * BLOCK for group, share in exact.items()}
    counts = {group: int(quota) for group, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda group: counts[group] - quotas[group])
    for group in by_remainder[: BLOCK - sum(counts.values())]:
        counts[group] += 1
    return counts


class Mixture:
    """Sample number to (group, which sample of that group), for weights and a seed.

    ``groups`` are the names with weight above 0, sorted; group arrays index into it.
    """

    def __init__(self, weights: Mapping[str, float], seed: int) -> None:
        self.counts = {group: n for group, n in block_counts(weights).items() if n}
        self.groups = tuple(self.counts)
        slots = np.repeat(np.arange(len(self.groups)), list(self.counts.values()))
        order = np.argsort(hashes(np.arange(BLOCK), key(seed, "mixture")), kind="stable")
        self._group_of_slot = slots[order]
        # before[s, g]: slots of group g among the first s of a block; row 1 000 is the counts.
        is_group = self._group_of_slot[:, None] == np.arange(len(self.groups))
        self._before = np.concatenate(
            [np.zeros((1, len(self.groups)), np.int64), np.cumsum(is_group, axis=0)]
        )

    def locate(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(index of the group, ``k``) of each sample number; int64 arrays of the same shape."""
        block, slot = np.divmod(np.asarray(samples, np.int64), BLOCK)
        group = self._group_of_slot[slot]
        return group, block * self._before[BLOCK][group] + self._before[slot, group]

    def samples_before(self, n: int) -> dict[str, int]:
        """How many of the samples ``0 … n - 1`` each group has."""
        block, slot = divmod(n, BLOCK)
        totals = block * self._before[BLOCK] + self._before[slot]
        return {group: int(total) for group, total in zip(self.groups, totals, strict=True)}


def windows_per_epoch(group: str, stream_tokens: int, context: int) -> int:
    """``W``; :class:`StreamTooShort` when the stream has no whole window."""
    if stream_tokens < context + 1:
        raise StreamTooShort(
            f"group {group!r}: {stream_tokens} training tokens are fewer than one window of "
            f"{context + 1} (context {context} and the token after it); add data to the group, "
            "set its share of the mixture to 0, or shorten the context"
        )
    return stream_tokens // context


def window_starts(
    samples: np.ndarray, *, group: str, stream_tokens: int, context: int, seed: int
) -> np.ndarray:
    """Stream positions (int64) where the windows of a group's samples ``k`` begin.

    A window may run over the stream's end; it goes on at position 0.
    """
    windows = windows_per_epoch(group, stream_tokens, context)
    epochs, places = np.divmod(np.asarray(samples, np.int64), windows)
    starts = np.empty_like(epochs)
    for epoch in np.unique(epochs).tolist():
        chosen = epochs == epoch
        window = permute(places[chosen], windows, key(seed, "order", group, epoch))
        phase = key(seed, "phase", group, epoch) % stream_tokens
        starts[chosen] = (phase + window * context) % stream_tokens
    return starts
