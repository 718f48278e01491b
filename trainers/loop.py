"""The training loop: one process, exact, resumable to the bit.

Input: a model configuration, options, one token stream a group, a work folder. Output in that
folder: ``steps.jsonl`` (one line a step), ``step-…/`` (the last two checkpoints) and, at the end,
``final/model.safetensors``.

The loss of a step is ``sum(loss * mask) / max(1, sum(mask))`` over *all* its micro-batches. A
mean of the micro-batches' means would weigh a supervised token by how many others its
micro-batch happens to have; with one divisor, 1 x 8 and 8 x 1 are the same step.

Nothing but weights, optimizer moments and the number of finished steps is carried from step to
step: batches, learning rate and dropout are functions of the step. On one machine with one number
of threads, a run that was interrupted anywhere and resumed therefore ends in the same bytes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from model.config import ModelConfig
from model.transformer import Transformer, init_weights
from model.weights import load_weights, save_weights
from pipelines.shards.reader import TokenStream
from trainers import checkpoint as checkpoints
from trainers.counter_random import key
from trainers.environment import choose_device, choose_precision, deterministic_numerics
from trainers.identity import differences, run_identity
from trainers.loader import Batch, TokenLoader
from trainers.metrics import StepLog, StepMetrics, read_steps
from trainers.optimizer import build_optimizer, set_learning_rate
from trainers.options import TrainingOptions
from trainers.schedule import learning_rate

STEPS_FILE = "steps.jsonl"
FINAL_FOLDER = "final"

_log = logging.getLogger(__name__)


class TrainingDiverged(RuntimeError):
    """A step whose loss or gradient isn't finite; its update was not applied."""


class WorkFolderMismatch(ValueError):
    """The work folder has checkpoints of a run with other options, model, weights or data."""


class TokenOutOfVocabulary(ValueError):
    """A token id that the model has no row for: shards and model are of different tokenizers."""


@dataclass(frozen=True)
class TrainingResult:
    """``weights``: the final safetensors file; ``steps``: the step log; ``last``: its last step;
    ``choices``: device and precision, with the reason of each choice."""

    weights: Path
    steps: Path
    last: StepMetrics
    choices: tuple[str, ...]


@dataclass
class _Run:
    """A run in progress. ``completed`` steps are in the weights and in the log; ``whole`` is
    False while an update is being applied; ``saved`` is the step of the last checkpoint."""

    model: Transformer
    optimizer: torch.optim.AdamW
    loader: TokenLoader
    options: TrainingOptions
    device: torch.device
    precision: str
    work_dir: Path
    identity: dict
    completed: int
    saved: int
    whole: bool = True


def train(
    model_config: ModelConfig,
    options: TrainingOptions,
    streams: Mapping[str, TokenStream],
    work_dir: Path,
    initial_weights: Path | None = None,
    on_step: Callable[[StepMetrics], None] | None = None,
) -> TrainingResult:
    """Train to ``options.steps``, from the latest intact checkpoint in ``work_dir`` if any.

    ``initial_weights`` (safetensors of the same model) replace random ones at step 0. ``on_step``
    gets the metrics every ``log_every`` steps and at the last; what it raises stops the run. Any
    exception between steps, an interrupt too, leaves a checkpoint of the last whole step.

    Raises :class:`TrainingDiverged`, :class:`WorkFolderMismatch`, and the loader's errors.
    """
    device, why_device = choose_device(options.device)
    precision, why_precision = choose_precision(options.precision, device)
    for reason in (why_device, why_precision):
        _log.info("training on %s", reason)
    work_dir.mkdir(parents=True, exist_ok=True)
    loader = TokenLoader(streams, options, model_config.context_length)
    identity = run_identity(model_config, options, loader.streams, initial_weights)
    with deterministic_numerics(options.threads, device):
        model = Transformer(model_config).to(device)
        optimizer = build_optimizer(model, options)
        completed = _load_start(work_dir, identity, model, optimizer, options, initial_weights)
        run = _Run(
            *(model, optimizer, loader, options, device, precision),
            *(work_dir, identity, completed, completed),
        )
        steps = work_dir / STEPS_FILE
        with StepLog(steps, keep=completed) as log:
            _train_steps(run, log, on_step)
        weights = _write_final(run)
    *_, last = read_steps(steps)
    return TrainingResult(weights, steps, last, (why_device, why_precision))


def masked_loss_sum(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Cross-entropy in nats, summed over the targets whose mask is 1; logits are (B, T, V)."""
    losses = functional.cross_entropy(
        logits.flatten(0, 1).float(), batch.targets.flatten(), reduction="none"
    )
    return (losses * batch.mask.flatten()).sum()


def _load_start(
    work_dir: Path,
    identity: dict,
    model: Transformer,
    optimizer: torch.optim.AdamW,
    options: TrainingOptions,
    initial_weights: Path | None,
) -> int:
    """Fill model and optimizer for the first step to do; returns how many are done."""
    checkpoint = checkpoints.latest(work_dir)
    if checkpoint is None:
        if initial_weights is None:
            init_weights(model, options.seed)
        else:
            model.load_state_dict(load_weights(initial_weights, model.config))
        return 0
    changed = differences(checkpoint.identity, identity)
    if changed:
        raise WorkFolderMismatch(
            f"{checkpoint.folder} is of another run: {'; '.join(changed)}. Use another work "
            "folder for the new run, or delete this one to give up the old"
        )
    checkpoints.restore(checkpoint, model, optimizer)
    _log.info("resumed from %s", checkpoint.folder)
    return checkpoint.step


def _train_steps(run: _Run, log: StepLog, on_step: Callable[[StepMetrics], None] | None) -> None:
    options = run.options
    run.model.train()
    try:
        while run.completed < options.steps:
            metrics = _step(run, log)
            at_end = run.completed == options.steps
            if on_step and (at_end or run.completed % options.log_every == 0):
                on_step(metrics)
            if at_end or run.completed % options.checkpoint_every == 0:
                _save(run, log)
    except BaseException as interruption:
        try:
            _save(run, log)
        except Exception as failure:  # the interruption is what the caller must see
            interruption.add_note(f"and no checkpoint could be written: {failure!r}")
        raise


def _step(run: _Run, log: StepLog) -> StepMetrics:
    """One optimizer step and its line in the log."""
    started = time.perf_counter()
    options, step = run.options, run.completed
    first = step * options.accumulation
    micro_steps = range(first, first + options.accumulation)
    batches = [run.loader.batch(micro_step) for micro_step in micro_steps]
    for batch in batches:
        _check_vocabulary(batch, run.model)
    supervised = sum(int(batch.mask.sum()) for batch in batches)
    run.optimizer.zero_grad(set_to_none=True)
    loss = 0.0
    for micro_step, batch in zip(micro_steps, batches, strict=True):
        loss += _backward(run, micro_step, batch, max(1, supervised))
    norm = float(nn.utils.clip_grad_norm_(run.model.parameters(), options.grad_clip))
    _check_finite(step, loss, norm, options)
    rate = learning_rate(step, options)
    set_learning_rate(run.optimizer, rate)

    run.whole = False  # from here on an interruption leaves weights and log between two steps
    run.optimizer.step()
    tokens_by_group = run.loader.tokens_by_group(step + 1)
    tokens = options.samples_per_step * run.loader.context
    metrics = StepMetrics(
        step=step + 1,
        tokens=(step + 1) * tokens,
        loss=loss,
        learning_rate=rate,
        gradient_norm=norm,
        supervised_tokens=supervised,
        tokens_by_group=tokens_by_group,
        tokens_per_second=tokens / (time.perf_counter() - started),
    )
    log.append(metrics)
    run.completed = step + 1
    run.whole = True
    return metrics


def _backward(run: _Run, micro_step: int, batch: Batch, divisor: int) -> float:
    """Add the micro-batch's share of the step's gradient; returns its share of the loss."""
    torch.manual_seed(key(run.options.seed, "dropout", micro_step))
    on_device = batch.to(run.device)
    mixed = torch.autocast(run.device.type, torch.bfloat16)
    with mixed if run.precision == "bf16" else nullcontext():
        logits = run.model(on_device.tokens)
    loss = masked_loss_sum(logits, on_device) / divisor
    loss.backward()
    return loss.item()


def _check_vocabulary(batch: Batch, model: Transformer) -> None:
    largest = max(int(batch.tokens.max()), int(batch.targets.max()))
    if largest >= model.config.vocab_size:
        raise TokenOutOfVocabulary(
            f"the shards hold token {largest}, but the model's vocabulary is "
            f"{model.config.vocab_size}; rebuild the shards with the model's tokenizer or set "
            "vocab_size to the tokenizer's"
        )


def _check_finite(step: int, loss: float, norm: float, options: TrainingOptions) -> None:
    if math.isfinite(loss) and math.isfinite(norm):
        return
    raise TrainingDiverged(
        f"step {step + 1} of {options.steps}: loss {loss}, gradient norm {norm} (before "
        f"clipping). Its update was not applied. Try a lower peak_lr (now {options.peak_lr}), "
        f"more warmup_steps (now {options.warmup_steps}), a lower grad_clip (now "
        f"{options.grad_clip}) or precision = 'fp32', in a new work folder"
    )


def _save(run: _Run, log: StepLog) -> None:
    """A checkpoint of the last whole step, unless there is one or an update was torn."""
    if not run.whole or run.completed == run.saved:
        return
    log.sync()
    checkpoints.save(
        run.work_dir,
        step=run.completed,
        identity=run.identity,
        model=run.model,
        optimizer=run.optimizer,
    )
    run.saved = run.completed


def _write_final(run: _Run) -> Path:
    target = run.work_dir / FINAL_FOLDER
    with checkpoints.whole_folder(target) as folder:
        save_weights(run.model, folder / checkpoints.MODEL_FILE)
    return target / checkpoints.MODEL_FILE
