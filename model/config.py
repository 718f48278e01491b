"""The shape of a model as one frozen record, and its number of parameters as a closed formula.

Free of torch, so that a configuration can be checked and counted before anything heavy is
imported. Sizes are numbers of elements: ``n_embd`` is the width of the residual stream,
``ffn_hidden`` that of the feed-forward network, ``context_length`` is in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Positions = Literal["rope", "learned"]
Norm = Literal["rmsnorm", "layernorm"]
FeedForwardKind = Literal["swiglu", "gelu"]

_SIZES = (
    *("vocab_size", "n_layer", "n_embd", "n_head", "n_kv_head"),
    *("ffn_hidden", "context_length"),
)
_CHOICES = {
    "positions": get_args(Positions),
    "norm": get_args(Norm),
    "mlp": get_args(FeedForwardKind),
}
_FLAGS = ("tied_embeddings", "bias")
_NUMBERS = ("dropout", "rope_theta", "norm_eps")


class ModelConfigError(ValueError):
    """A shape that can't be built; the message lists every problem found."""


@dataclass(frozen=True)
class ModelConfig:
    """One member of the family; see the module's docstring for units.

    ``n_kv_head < n_head`` is grouped-query attention: ``n_head / n_kv_head`` query heads share
    one key and value head. ``bias`` gives every linear layer (but the output head) and LayerNorm
    a bias. ``rope_theta`` is RoPE's base and unused with learned positions.
    """

    vocab_size: int
    n_layer: int
    n_embd: int
    n_head: int
    n_kv_head: int
    ffn_hidden: int
    context_length: int
    positions: Positions = "rope"
    norm: Norm = "rmsnorm"
    mlp: FeedForwardKind = "swiglu"
    tied_embeddings: bool = True
    bias: bool = False
    dropout: float = 0.0
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        problems = _type_problems(self) or _range_problems(self)
        if problems:
            raise ModelConfigError("model configuration: " + "; ".join(problems))
        # 10000 and 10000.0 are one configuration and must give the same JSON.
        for name in _NUMBERS:
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def head_size(self) -> int:
        """Elements of one attention head."""
        return self.n_embd // self.n_head

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of :meth:`to_dict`; unknown and missing names are an error."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ModelConfigError(f"model configuration: unknown {unknown}; known are {known}")
        missing = [name for name in _SIZES if name not in values]
        if missing:
            raise ModelConfigError(f"model configuration: {missing} not given; all are needed")
        return cls(**values)


def count_parameters(config: ModelConfig) -> int:
    """Distinct trainable parameters of ``Transformer(config)``; a tied matrix counts once."""
    width, hidden = config.n_embd, config.ffn_hidden
    kv_width = config.n_kv_head * config.head_size
    bias = int(config.bias)

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + bias * outputs

    norm = width * (1 + bias * (config.norm == "layernorm"))
    attention = 2 * linear(width, width) + 2 * linear(width, kv_width)
    inner_matrices = 2 if config.mlp == "swiglu" else 1
    feed_forward = inner_matrices * linear(width, hidden) + linear(hidden, width)
    embeddings = config.vocab_size * width * (1 if config.tied_embeddings else 2)
    if config.positions == "learned":
        embeddings += config.context_length * width
    return embeddings + config.n_layer * (2 * norm + attention + feed_forward) + norm


def _type_problems(config: ModelConfig) -> list[str]:
    problems = []
    for name in _SIZES:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problems.append(f"{name} = {value!r} must be an integer of at least 1")
    for name in _NUMBERS:
        value = getattr(config, name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            problems.append(f"{name} = {value!r} must be a number")
    for name in _FLAGS:
        value = getattr(config, name)
        if not isinstance(value, bool):
            problems.append(f"{name} = {value!r} must be true or false")
    for name, allowed in _CHOICES.items():
        value = getattr(config, name)
        if value not in allowed:
            problems.append(f"{name} = {value!r} must be one of {', '.join(allowed)}")
    return problems


def _range_problems(config: ModelConfig) -> list[str]:
    problems = []
    if config.n_embd % config.n_head:
        problems.append(f"n_embd = {config.n_embd} must be a multiple of n_head = {config.n_head}")
    elif config.positions == "rope" and config.head_size % 2:
        problems.append(
            f"n_embd = {config.n_embd} over n_head = {config.n_head} gives heads of "
            f"{config.head_size}; positions = 'rope' needs an even head size"
        )
    if config.n_head % config.n_kv_head:
        divisors = [n for n in range(1, config.n_head + 1) if config.n_head % n == 0]
        problems.append(
            f"n_kv_head = {config.n_kv_head} must divide n_head = {config.n_head}: "
            f"one of {', '.join(map(str, divisors))}"
        )
    if not 0 <= config.dropout < 1:
        problems.append(f"dropout = {config.dropout!r} must be at least 0 and below 1")
    for name in ("rope_theta", "norm_eps"):
        value = getattr(config, name)
        if not (value > 0 and math.isfinite(value)):
            problems.append(f"{name} = {value!r} must be above 0 and finite")
    return problems
