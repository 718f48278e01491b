"""Linear and Embedding that leave their weights to :func:`model.transformer.init_weights`.

torch's own draw from the global generator when a module is built: that costs time for values that
are replaced at once, and changes the global random state behind the caller's back.
"""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """``y = x Wᵀ + b`` over the last axis; memory is allocated and not filled."""

    def reset_parameters(self) -> None:
        """Nothing: see the module's docstring."""


class Embedding(nn.Embedding):
    """Row lookup, ids (…) to vectors (…, width); memory is allocated and not filled."""

    def reset_parameters(self) -> None:
        """Nothing: see the module's docstring."""
