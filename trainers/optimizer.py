"""AdamW with weight decay on matrices only, and its state by parameter name.

Decoupled decay (Loshchilov and Hutter 2019) pulls weights to 0. That is wanted for matrices
(embeddings included), not for the gains and biases, which are vectors.

The state is saved as named tensors and named step counts instead of torch's pickled dictionary
of parameter *numbers*, which silently means other parameters after a change of the model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from trainers.options import TrainingOptions

_MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's running means of gradient and squared gradient


class OptimizerStateError(ValueError):
    """A saved optimizer state that doesn't belong to the model."""


def build_optimizer(model: nn.Module, options: TrainingOptions) -> torch.optim.AdamW:
    """AdamW over the trainable parameters of ``model``; tied ones count once."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(
        [
            {
                "params": [p for p in trainable if p.ndim >= 2],
                "weight_decay": options.weight_decay,
            },
            {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=options.peak_lr,
        betas=(options.beta1, options.beta2),
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use ``rate`` for the next step of every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """(tensors ``<moment>.<parameter>``, steps by parameter), on the CPU, as saved."""
    tensors: dict[str, torch.Tensor] = {}
    steps: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter)
        if not state:  # no gradient has reached it yet
            continue
        steps[name] = int(state["step"])
        for moment in _MOMENTS:
            tensors[f"{moment}.{name}"] = state[moment].detach().cpu().contiguous()
    return tensors, steps


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    steps: Mapping[str, int],
) -> None:
    """Set the state that :func:`optimizer_state` gave; names and shapes must fit the model."""
    parameters = dict(model.named_parameters())
    _check(parameters, tensors, steps)
    numbers = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            numbers[parameter] = len(numbers)
    saved = optimizer.state_dict()
    saved["state"] = {
        numbers[parameters[name]]: {
            "step": torch.tensor(float(step)),
            **{moment: tensors[f"{moment}.{name}"] for moment in _MOMENTS},
        }
        for name, step in steps.items()
    }
    optimizer.load_state_dict(saved)


def _check(
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, torch.Tensor],
    steps: Mapping[str, int],
) -> None:
    expected = {f"{moment}.{name}" for name in steps for moment in _MOMENTS}
    strangers = sorted(set(steps) - set(parameters)) + sorted(expected ^ set(tensors))
    if strangers:
        raise OptimizerStateError(
            f"optimizer state doesn't fit the model: {strangers[:5]} of {len(strangers)} names "
            "have no counterpart; the checkpoint is of another model"
        )
    for name in steps:
        for moment in _MOMENTS:
            shape, wanted = tensors[f"{moment}.{name}"].shape, parameters[name].shape
            if shape != wanted:
                raise OptimizerStateError(
                    f"optimizer state {moment}.{name} has shape {tuple(shape)}, the parameter "
                    f"{tuple(wanted)}; the checkpoint is of another model"
                )
