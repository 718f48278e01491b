"""Options that can't be run, and the learning rate's shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainers.options import OptionsError, TrainingOptions
from trainers.schedule import learning_rate

Options = Callable[..., TrainingOptions]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"steps": 0}, "steps = 0"),
        ({"warmup_steps": 12}, "warmup_steps = 12"),
        ({"mixture": {"web": 0.5}}, "0.5"),
        ({"mixture": {"web": 1.0005, "chat": -0.0005}}, "mixture"),
        ({"beta1": 1.0}, "beta1"),
        ({"precision": "fp8"}, "precision = 'fp8'"),
        ({"peak_lr": float("nan")}, "peak_lr"),
        ({"micro_batch": True}, "micro_batch"),
    ],
)
def test_bad_options_are_named(options: Options, changes: dict, named: str) -> None:
    with pytest.raises(OptionsError, match=named):
        options(**changes)


def test_all_problems_at_once(options: Options) -> None:
    with pytest.raises(OptionsError, match="(?s)steps.*grad_clip"):
        options(steps=0, grad_clip=0.0)


def test_round_trip(options: Options) -> None:
    assert TrainingOptions.from_dict(options().to_dict()) == options()
    with pytest.raises(OptionsError, match="nonsense"):
        TrainingOptions.from_dict({**options().to_dict(), "nonsense": 1})


def test_learning_rate_hand_checked(options: Options) -> None:
    run = options(steps=11, warmup_steps=2, peak_lr=3.0, min_lr=1.0)
    rates = [learning_rate(step, run) for step in range(11)]
    assert rates[:3] == pytest.approx([1.0, 2.0, 3.0])
    assert rates[6] == pytest.approx(2.0)  # half-way down the cosine
    assert rates[10] == pytest.approx(1.0)
    assert all(a > b for a, b in zip(rates[2:], rates[3:], strict=False))
    with pytest.raises(ValueError, match="outside"):
        learning_rate(11, run)
