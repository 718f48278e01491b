"""Learning rate as a pure function of the step: linear warm-up, then a cosine to the minimum.

A pure function has no state that a resume could lose. The shape is that of SGDR without restarts
(Loshchilov and Hutter 2017) with the warm-up of GPT-3; ``step`` counts optimizer steps from 0.

    step <  warmup:  peak * (step + 1) / (warmup + 1)
    step >= warmup:  min + (peak - min) * (1 + cos(pi * p)) / 2,
                     p = (step - warmup) / (steps - 1 - warmup)

so the first step already learns, ``step == warmup`` has exactly the peak and the last step has
exactly the minimum.
"""

from __future__ import annotations

import math

from trainers.options import TrainingOptions


def learning_rate(step: int, options: TrainingOptions) -> float:
    """AdamW's learning rate for optimizer step ``step``, 0 to ``options.steps - 1``."""
    if not 0 <= step < options.steps:
        raise ValueError(f"step {step} is outside the run's 0 to {options.steps - 1}")
    warmup, peak, low = options.warmup_steps, options.peak_lr, options.min_lr
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    decay_steps = options.steps - 1 - warmup
    progress = (step - warmup) / decay_steps if decay_steps else 0.0
    return low + (peak - low) * (1 + math.cos(math.pi * progress)) / 2
