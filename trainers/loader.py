"""Batches of tokens, targets and loss masks, from one token stream a group.

Input: ``dict`` of group name to :class:`~pipelines.shards.reader.TokenStream` and the numbers of
samples or micro-steps. Output: :class:`Batch` with arrays ``(B, T)``, ``B`` windows of ``T =
context`` positions. The loader holds no position: its whole state is the step it is asked for.
Which sample is which window is settled in :mod:`trainers.mixture`; here is only the reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pipelines.shards.reader import TokenStream
from trainers.mixture import Mixture, window_starts, windows_per_epoch
from trainers.options import TrainingOptions

_PROBES, _PROBE_TOKENS = 256, 16


class EmptyGroup(ValueError):
    """The mixture asks for samples of a group that has no tokens."""


@dataclass(frozen=True)
class Batch:
    """``tokens`` (B, T) int64, ``targets`` (B, T) int64: the next token of each position,
    ``mask`` (B, T) float32: 1 where the *target* counts in the loss."""

    tokens: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on ``device``."""
        return Batch(self.tokens.to(device), self.targets.to(device), self.mask.to(device))


class TokenLoader:
    """Batches for the streams, options and context length of a run.

    Raises :class:`EmptyGroup` or :class:`~trainers.mixture.StreamTooShort` when the mixture asks
    for a group that can't give a window.
    """

    def __init__(
        self, streams: Mapping[str, TokenStream], options: TrainingOptions, context: int
    ) -> None:
        self.mixture = Mixture(options.mixture, options.seed)
        self.options = options
        self.context = context
        for group in self.mixture.groups:
            if len(streams.get(group, ())) == 0:
                given = {name: len(stream) for name, stream in sorted(streams.items())}
                raise EmptyGroup(
                    f"group {group!r} has {options.mixture[group]:.1%} of the mixture but no "
                    f"training tokens (tokens by group: {given}); build its shards or set its "
                    "share to 0"
                )
            windows_per_epoch(group, len(streams[group]), context)
        self.streams = {group: streams[group] for group in self.mixture.groups}

    def batch(self, micro_step: int) -> Batch:
        """The batch of micro-step ``step * accumulation + i``: ``micro_batch`` windows."""
        first = micro_step * self.options.micro_batch
        return self.windows(np.arange(first, first + self.options.micro_batch))

    def windows(self, samples: np.ndarray) -> Batch:
        """The windows of the given sample numbers ``(B,)``, in that order."""
        groups, counts = self.mixture.locate(samples)
        length = self.context + 1
        tokens = np.empty((len(samples), length), np.int64)
        mask = np.ones((len(samples), self.context), np.float32)
        for index in np.unique(groups).tolist():
            group = self.mixture.groups[index]
            stream = self.streams[group]
            rows = np.flatnonzero(groups == index)
            starts = window_starts(
                counts[rows],
                group=group,
                stream_tokens=len(stream),
                context=self.context,
                seed=self.options.seed,
            )
            masked = self.options.masked_loss and stream.has_mask
            for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
                tokens[row] = _read_ring(stream.tokens, start, length, len(stream))
                if masked:
                    # One to the right, like the targets: a token's own mask decides on it.
                    mask[row] = _read_ring(stream.mask, start, length, len(stream))[1:]
        joined = torch.from_numpy(tokens)
        return Batch(
            joined[:, :-1].contiguous(), joined[:, 1:].contiguous(), torch.from_numpy(mask)
        )

    def tokens_by_group(self, steps: int) -> dict[str, int]:
        """Tokens each group gave in the first ``steps`` optimizer steps."""
        samples = self.mixture.samples_before(steps * self.options.samples_per_step)
        return {group: n * self.context for group, n in samples.items()}


def fingerprint(stream: TokenStream) -> dict[str, Any]:
    """What tells one stream's content from another's at little cost: token count, whether there
    is a mask, and a digest of evenly spaced probes of both."""
    digest = hashlib.sha256()
    length = min(_PROBE_TOKENS, len(stream))
    for start in np.linspace(0, len(stream) - length, _PROBES).astype(np.int64).tolist():
        digest.update(stream.tokens(start, length).tobytes())
        digest.update(stream.mask(start, length).tobytes())
    return {"tokens": len(stream), "has_mask": stream.has_mask, "probes": digest.hexdigest()}


def _read_ring(
    read: Callable[[int, int], np.ndarray], start: int, length: int, size: int
) -> np.ndarray:
    """``length`` values from ``start`` of a ring of ``size``; ``length`` is at most ``size``."""
    head = min(length, size - start)
    if head == length:
        return read(start, length)
    return np.concatenate([read(start, head), read(0, length - head)])
