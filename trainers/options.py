"""What a training run does: one frozen record, checked when it is made.

Units: ``steps`` are optimizer steps; a step sees ``micro_batch * accumulation`` windows of
``context_length`` target tokens each; learning rates are AdamW's. All problems of a record are
gathered and raised at once as :class:`OptionsError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Precision = Literal["fp32", "bf16", "auto"]
DeviceChoice = Literal["auto", "cpu", "cuda"]

MIXTURE_TOLERANCE = 1e-6  # weights such as 1/3 can't sum to exactly 1
SMALLEST_SHARE = 0.001  # a mixture is dealt in blocks of 1 000 samples


class OptionsError(ValueError):
    """Training options that can't be run; the message lists every problem found."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of one run; see the module's docstring for units.

    ``mixture`` maps a group's name to its share of the samples. With ``masked_loss`` only tokens
    whose mask is 1 count, on the groups that have a mask; all tokens count on the others.
    ``threads`` are CPU threads of torch. A checkpoint is written every ``checkpoint_every`` steps
    and at the end; ``on_step`` is called every ``log_every`` steps and at the last one.
    """

    steps: int
    micro_batch: int
    accumulation: int
    peak_lr: float
    min_lr: float
    warmup_steps: int
    seed: int
    mixture: Mapping[str, float]
    masked_loss: bool
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    grad_clip: float = 1.0
    precision: Precision = "auto"
    threads: int = 1
    checkpoint_every: int = 500
    log_every: int = 10
    device: DeviceChoice = "auto"

    def __post_init__(self) -> None:
        problems = _type_problems(self) or _range_problems(self)
        if problems:
            raise OptionsError("training options: " + "; ".join(problems))
        # Sorted, so that two mixtures that are equal as dictionaries train equally.
        object.__setattr__(self, "mixture", dict(sorted(self.mixture.items())))

    @property
    def samples_per_step(self) -> int:
        """Windows one optimizer step sees."""
        return self.micro_batch * self.accumulation

    def to_dict(self) -> dict[str, Any]:
        """The options as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingOptions:
        """The inverse of :meth:`to_dict`; unknown and missing names are an error."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise OptionsError(f"training options: unknown {unknown}; known are {sorted(known)}")
        try:
            return cls(**values)
        except TypeError as error:
            raise OptionsError(f"training options: {error}") from error


_INTEGERS = (
    *("steps", "micro_batch", "accumulation", "warmup_steps", "seed"),
    *("threads", "checkpoint_every", "log_every"),
)
_POSITIVE_INTEGERS = tuple(n for n in _INTEGERS if n not in ("warmup_steps", "seed"))
_NUMBERS = ("peak_lr", "min_lr", "weight_decay", "beta1", "beta2", "grad_clip")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _type_problems(options: TrainingOptions) -> list[str]:
    problems = []
    for names, fits, wanted in (
        (_INTEGERS, _is_integer, "an integer"),
        (_NUMBERS, _is_number, "a finite number"),
        (("masked_loss",), lambda value: isinstance(value, bool), "true or false"),
        (("mixture",), lambda value: isinstance(value, Mapping), "a table of group = share"),
    ):
        for name in names:
            value = getattr(options, name)
            if not fits(value):
                problems.append(f"{name} = {value!r} must be {wanted}")
    return problems


def _range_problems(options: TrainingOptions) -> list[str]:
    problems = []

    def require(holds: bool, name: str, bound: str) -> None:
        if not holds:
            problems.append(f"{name} = {getattr(options, name)!r} must be {bound}")

    for name in _POSITIVE_INTEGERS:
        require(getattr(options, name) >= 1, name, "at least 1")
    steps = options.steps
    require(0 <= options.warmup_steps < max(1, steps), "warmup_steps", f"0 to {steps - 1}")
    require(options.peak_lr > 0, "peak_lr", "above 0")
    require(0 <= options.min_lr <= options.peak_lr, "min_lr", f"0 to peak_lr = {options.peak_lr}")
    require(options.weight_decay >= 0, "weight_decay", "at least 0")
    require(0 <= options.beta1 < 1, "beta1", "at least 0 and below 1")
    require(0 <= options.beta2 < 1, "beta2", "at least 0 and below 1")
    require(options.grad_clip > 0, "grad_clip", "above 0")
    require(options.precision in get_args(Precision), "precision", f"of {get_args(Precision)}")
    require(options.device in get_args(DeviceChoice), "device", f"of {get_args(DeviceChoice)}")
    return problems + _mixture_problems(options.mixture)


def _mixture_problems(mixture: Mapping[str, float]) -> list[str]:
    if not mixture:
        return ["mixture is empty; name at least one group"]
    problems = []
    for group, share in mixture.items():
        if not isinstance(group, str) or not group:
            problems.append(f"mixture: {group!r} is no group name")
        if not _is_number(share) or not 0 <= share <= 1:
            problems.append(f"mixture[{group!r}] = {share!r} must be 0 to 1")
        elif 0 < share < SMALLEST_SHARE:
            problems.append(
                f"mixture[{group!r}] = {share!r} is below {SMALLEST_SHARE}, the smallest share "
                "that can be dealt exactly; use 0 or a larger one"
            )
    if not problems:
        total = math.fsum(mixture.values())
        if abs(total - 1) > MIXTURE_TOLERANCE:
            problems.append(f"mixture sums to {total!r}; the shares must sum to 1")
    return problems
