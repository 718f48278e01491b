"""Group ``checkpoints``: pretraining and SFT as datasets of one chunk.

``model.safetensors`` (with its configuration), ``tokenizer.json`` (the one that its token ids
mean something in) and ``steps.parquet`` (STEPS, one row an optimizer step). A run that was killed
goes on from its last checkpoint: the trainer's work folder belongs to the recipe.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from assets import figures
from assets.nodes import Check, Node, Verdict
from model.config import ModelConfig, count_parameters
from pipelines.config import Project
from pipelines.engine import BuildReport, Observer, Part, Progress, Stage, Task, TaskContext, build
from pipelines.schemas import STEPS
from pipelines.shards.writer import open_stream
from pipelines.tokenizer.training import FILE as TOKENIZER_FILE
from pipelines.tokenizer.training import KEY as TOKENIZER
from pipelines.tokenizer.training import tokenizer_path
from pipelines.workspace import Workspace

GROUP = "checkpoints"
VERSION = 1
MODEL_FILE = "model.safetensors"
STEPS_TABLE = "steps.parquet"
PHASES = {"pretrain": None, "sft": "pretrain"}  # a phase, and the one whose weights it starts from


def nodes(workspace: Workspace) -> Iterator[Node]:
    project = workspace.project
    parameters = count_parameters(model_config(project))
    for phase, start in PHASES.items():
        plan = getattr(project.training, phase)
        yield Node(
            key=f"checkpoints/{phase}",
            group=GROUP,
            description=(
                f"Preset {project.model.preset} ({parameters:,} parameters), {phase}: "
                f"{plan.tokens:,} tokens in {project.steps(phase):,} steps, "
                + ", ".join(f"{share:.0%} {group}" for group, share in plan.mix.items())
                + (". On chat only the answers count." if plan.masked_loss else ".")
            ),
            deps=(
                *(f"shards/{group}" for group in mixed_groups(project, phase)),
                TOKENIZER,
                *([f"checkpoints/{start}"] if start else []),
            ),
            stage=stage(project, phase),
            build=lambda ws, observer, phase=phase: build_checkpoint(ws, phase, observer),
            figures=_figures,
            checks=(FINITE_LOSS,),
            kinds=("pytorch",),
        )


def model_config(project: Project) -> ModelConfig:
    return ModelConfig.from_dict(project.preset.model_dump())


def mixed_groups(project: Project, phase: str) -> list[str]:
    """The groups that a phase trains on, in the fixed order."""
    mix = getattr(project.training, phase).mix
    return [group for group in project.groups if mix.get(group)]


def stage(project: Project, phase: str) -> Stage:
    plan = getattr(project.training, phase)
    config = {
        "model": project.preset.model_dump(),
        "phase": plan.model_dump(),
        "precision": project.training.precision,
        "device": project.training.device,
        "threads": project.training.threads,
    }
    return Stage(f"checkpoints/{phase}", VERSION, config)


def build_checkpoint(
    workspace: Workspace, phase: str, observer: Observer | None = None
) -> BuildReport:
    """Train a phase, or go on with the run that was interrupted."""
    inputs = {
        f"shards/{group}": workspace.dataset(f"shards/{group}").manifest().data_version
        for group in mixed_groups(workspace.project, phase)
    }
    inputs[TOKENIZER] = workspace.dataset(TOKENIZER).manifest().data_version
    if start := PHASES[phase]:
        key = f"checkpoints/{start}"
        inputs[key] = workspace.dataset(key).manifest().data_version
    task = Task(phase, train_phase, (workspace, phase, observer), inputs)
    dataset = workspace.dataset(f"checkpoints/{phase}")
    return build(dataset, stage(workspace.project, phase), [task])


def train_phase(
    context: TaskContext, workspace: Workspace, phase: str, observer: Observer | None
) -> Iterator[Part]:
    """Task function: train in the recipe's own scratch folder."""
    from trainers.loop import train  # torch: seconds to import, and most processes don't train
    from trainers.metrics import read_steps

    config = model_config(workspace.project)
    options = training_options(workspace.project, phase)
    streams = {
        group: open_stream(workspace.storage, group, "train")
        for group in mixed_groups(workspace.project, phase)
    }
    initial = None
    if start := PHASES[phase]:
        dataset = workspace.dataset(f"checkpoints/{start}")
        (chunk,) = dataset.chunks()
        initial = dataset.path(chunk, MODEL_FILE)

    def report(step: Any) -> None:
        if observer is not None:
            what = f"loss {step.loss:.3f}, {step.tokens_per_second:,.0f} tokens/s"
            observer(Progress(f"checkpoints/{phase}", step.step, options.steps, what))

    result = train(config, options, streams, context.scratch, initial, report)
    rows = [_step_row(step) for step in read_steps(result.steps)]
    # The trainer's folder holds optimizer states: it goes once the part is recorded.
    model, tokenizer = context.scratch / "publish.safetensors", context.scratch / "tokenizer.json"
    shutil.copyfile(result.weights, model)
    shutil.copyfile(tokenizer_path(workspace.storage), tokenizer)
    yield Part(
        tables={"steps": pa.Table.from_pylist(rows, schema=STEPS)},
        files={MODEL_FILE: model, TOKENIZER_FILE: tokenizer},
        stats={
            "steps": len(rows),
            "tokens": rows[-1]["tokens"],
            "parameters": count_parameters(config),
            "final_loss": rows[-1]["loss"],
        },
    )


def training_options(project: Project, phase: str) -> Any:
    """The trainer's options of a phase."""
    from trainers.options import TrainingOptions

    plan, training = getattr(project.training, phase), project.training
    steps = project.steps(phase)
    return TrainingOptions(
        steps=steps,
        micro_batch=plan.micro_batch,
        accumulation=plan.accumulation,
        peak_lr=plan.peak_lr,
        min_lr=plan.peak_lr * plan.min_lr_ratio,
        warmup_steps=min(int(steps * plan.warmup_share), steps - 1),
        weight_decay=plan.weight_decay,
        beta1=plan.beta1,
        beta2=plan.beta2,
        grad_clip=plan.grad_clip,
        seed=plan.seed,
        mixture={group: plan.mix[group] for group in mixed_groups(project, phase)},
        masked_loss=plan.masked_loss,
        precision=training.precision,
        threads=training.threads,
        checkpoint_every=training.checkpoint_every,
        device=training.device,
    )


def _step_row(step: Any) -> dict[str, Any]:
    row = {name: getattr(step, name) for name in STEPS.names if name != "tokens_by_group"}
    return {**row, "tokens_by_group": sorted(step.tokens_by_group.items())}


def _figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    (chunk,) = report.manifest.chunks
    steps = report.dataset.table(chunk, STEPS_TABLE)
    return {
        "parameters": chunk.stats["parameters"],
        "steps": chunk.stats["steps"],
        "tokens": chunk.stats["tokens"],
        "final loss": chunk.stats["final_loss"],
        "loss": figures.loss_curve(steps),
    }


def _finite_loss(workspace: Workspace, report: BuildReport) -> Verdict:
    import numpy as np

    (chunk,) = report.manifest.chunks
    loss = report.dataset.table(chunk, STEPS_TABLE, ["loss"])["loss"].to_numpy()
    finite = bool(len(loss)) and bool(np.isfinite(loss).all())
    return Verdict(finite, {"first loss": float(loss[0]), "last loss": float(loss[-1])})


FINITE_LOSS = Check("finite_loss", "Every step's loss is a finite number.", _finite_loss)
