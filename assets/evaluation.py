"""Group ``evaluation``: bits per character of both checkpoints, and a few generated samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from assets import figures
from assets.checkpoints import MODEL_FILE, PHASES, TOKENIZER_FILE
from assets.nodes import Check, Node, Verdict
from data_quality.compression import COMPRESSORS, compress
from pipelines.datasets import Dataset
from pipelines.engine import BuildReport, Observer, Part, Progress, Stage, Task, TaskContext, build
from pipelines.schemas import BPC, SAMPLES
from pipelines.shards.writer import open_stream
from pipelines.tokenizer.training import KEY as TOKENIZER
from pipelines.tokenizer.training import load_tokenizer
from pipelines.workspace import Workspace

GROUP = "evaluation"
VERSION = 1
BPC_KEY = "evaluation/bpc"
BPC_TABLE = "bpc.parquet"
SAMPLES_KEY = "evaluation/samples"
SAMPLES_TABLE = "samples.parquet"


def nodes(workspace: Workspace) -> Iterator[Node]:
    project = workspace.project
    checkpoints = tuple(f"checkpoints/{phase}" for phase in PHASES)
    shards = tuple(f"shards/{group}" for group in project.groups)
    yield Node(
        key=BPC_KEY,
        group=GROUP,
        description=(
            "Bits per character on the held-out documents of each group, before and after SFT: "
            "total negative log-likelihood in bits over the characters of the text, each counted "
            "once; and what xz -9 and zstd -19 need for the same text."
        ),
        deps=(*checkpoints, *shards, TOKENIZER),
        stage=bpc_stage(workspace),
        build=build_bpc,
        figures=_bpc_figures,
        checks=(FINITE_BPC,),
        kinds=("pytorch",),
    )
    yield Node(
        key=SAMPLES_KEY,
        group=GROUP,
        description="What both checkpoints write for the prompts of evaluation.samples.",
        deps=checkpoints,
        stage=samples_stage(workspace),
        build=build_samples,
        figures=_sample_figures,
        kinds=("pytorch",),
    )


# -- bits per character ----------------------------------------------------------------------


def bpc_stage(workspace: Workspace) -> Stage:
    evaluation, training = workspace.project.evaluation, workspace.project.training
    config = {
        "max_characters": evaluation.max_characters,
        "stride": evaluation.stride,
        "batch_size": evaluation.batch_size,
        "threads": training.threads,
        "device": training.device,
        "groups": workspace.project.groups,
    }
    return Stage(BPC_KEY, VERSION, config, choosing=("groups",))


def build_bpc(workspace: Workspace, observer: Observer | None = None) -> BuildReport:
    """One chunk for each model and group: another group's new text evaluates only that group."""
    tokenizer = workspace.dataset(TOKENIZER).manifest().data_version
    tasks = []
    for model in (*PHASES, *COMPRESSORS):
        for group in workspace.project.groups:
            shards = workspace.dataset(f"shards/{group}").manifest()
            if not shards.total("validation_characters"):
                continue
            inputs = {"shards": shards.data_version, "tokenizer": tokenizer}
            function = compressor_bpc
            if model in PHASES:
                function = checkpoint_bpc
                inputs["checkpoint"] = (
                    workspace.dataset(f"checkpoints/{model}").manifest().data_version
                )
            name = f"{model.replace(' ', '')}/{group}"
            tasks.append(Task(name, function, (workspace, model, group, observer), inputs))
    if not tasks:
        raise ValueError(
            "evaluation/bpc: no group has a held-out document; raise shards.validation_share "
            f"(now {workspace.project.shards.validation_share}) or add data"
        )
    return build(workspace.dataset(BPC_KEY), bpc_stage(workspace), tasks, observer=observer)


def checkpoint_bpc(
    context: TaskContext,
    workspace: Workspace,
    phase: str,
    group: str,
    observer: Observer | None,
) -> Iterator[Part]:
    """Task function: one row of BPC for a checkpoint and a group."""
    from model.weights import load_model
    from trainers.bpc import bits_per_character
    from trainers.environment import choose_device, deterministic_numerics

    evaluation, training = workspace.project.evaluation, workspace.project.training
    device, _ = choose_device(training.device)
    dataset, chunk = _checkpoint(workspace, phase)

    def report(done: int, total: int) -> None:
        if observer is not None:
            observer(Progress(BPC_KEY, done, total, f"tokens of {phase}/{group}"))

    with deterministic_numerics(training.threads, device):
        result = bits_per_character(
            load_model(dataset.path(chunk, MODEL_FILE), device),
            open_stream(workspace.storage, group, "validation"),
            start_token=load_tokenizer(workspace.storage).end_of_text,
            max_characters=evaluation.max_characters,
            stride=evaluation.stride,
            batch_size=evaluation.batch_size,
            on_progress=report,
        )
    yield _bpc_part({"model": phase, "group": group, **asdict(result)})


def compressor_bpc(
    context: TaskContext,
    workspace: Workspace,
    compressor: str,
    group: str,
    observer: Observer | None,
) -> Iterator[Part]:
    """Task function: one row of BPC for a compressor and a group."""
    stream = open_stream(workspace.storage, group, "validation")
    tokenizer = load_tokenizer(workspace.storage)
    result = compress(compressor, stream, tokenizer, workspace.project.evaluation.max_characters)
    yield _bpc_part(
        {
            "model": compressor,
            "group": group,
            "bits_per_character": result.bits_per_character,
            **asdict(result),
        }
    )


def _bpc_part(row: Mapping[str, Any]) -> Part:
    table = pa.Table.from_pylist([dict(row)], schema=BPC)
    return Part(tables={"bpc": table}, stats={"rows": 1})


def _bpc_figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    rows = [row for table in report.dataset.tables(BPC_TABLE) for row in table.to_pylist()]
    return {
        # Numbers of their own are plotted over time in the UI.
        **{
            f"BPC {row['model']}, {row['group']}": row["bits_per_character"]
            for row in rows
            if row["model"] in PHASES
        },
        "BPC": figures.table(
            ["model", "group", "bits per character", "answers only", "characters"],
            [
                (
                    row["model"],
                    row["group"],
                    round(row["bits_per_character"], 4),
                    _rounded(row["answer_bits_per_character"]),
                    row["characters"],
                )
                for row in rows
            ],
        ),
    }


def _rounded(value: float | None) -> float | str:
    return "" if value is None else round(value, 4)


def _finite_bpc(workspace: Workspace, report: BuildReport) -> Verdict:
    values = [
        value
        for table in report.dataset.tables(BPC_TABLE)
        for value in table["bits_per_character"].to_pylist()
    ]
    finite = bool(values) and all(math.isfinite(value) and value > 0 for value in values)
    return Verdict(finite, {"values": len(values)})


FINITE_BPC = Check("finite_bpc", "Every BPC is a finite number above 0.", _finite_bpc)


# -- samples ---------------------------------------------------------------------------------


def samples_stage(workspace: Workspace) -> Stage:
    config = {
        **workspace.project.evaluation.samples.model_dump(),
        "threads": workspace.project.training.threads,
    }
    return Stage(SAMPLES_KEY, VERSION, config)


def build_samples(workspace: Workspace, observer: Observer | None = None) -> BuildReport:
    tasks = []
    for phase in PHASES:
        checkpoint = workspace.dataset(f"checkpoints/{phase}").manifest()
        inputs = {"checkpoint": checkpoint.data_version}
        tasks.append(Task(phase, write_samples, (workspace, phase), inputs))
    dataset = workspace.dataset(SAMPLES_KEY)
    return build(dataset, samples_stage(workspace), tasks, observer=observer)


def write_samples(context: TaskContext, workspace: Workspace, phase: str) -> Iterator[Part]:
    """Task function: a checkpoint's texts for every prompt; answers after SFT."""
    import torch

    from model.sampling import SamplingOptions
    from serving.generation import TextGenerator
    from trainers.environment import deterministic_numerics

    config = workspace.project.evaluation.samples
    options = SamplingOptions(
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        repetition_penalty=config.repetition_penalty,
        max_new_tokens=config.max_new_tokens,
        seed=config.seed,
    )
    dataset, chunk = _checkpoint(workspace, phase)
    rows = []
    with deterministic_numerics(workspace.project.training.threads, torch.device("cpu")):
        generator = TextGenerator.load(
            dataset.path(chunk, MODEL_FILE), dataset.path(chunk, TOKENIZER_FILE)
        )
        for prompt in config.prompts:
            if phase == "sft":
                written = generator.answer([("user", prompt)], options)
            else:
                written = generator.continue_text(prompt, options)
            rows.append(
                {
                    "model": phase,
                    "kind": "answer" if phase == "sft" else "continuation",
                    "prompt": prompt,
                    **asdict(written),
                }
            )
    yield Part(
        tables={"samples": pa.Table.from_pylist(rows, schema=SAMPLES)}, stats={"rows": len(rows)}
    )


def _sample_figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    rows = [row for table in report.dataset.tables(SAMPLES_TABLE) for row in table.to_pylist()]
    columns = ["model", "prompt", "text", "tokens", "finished"]
    return {
        "samples": figures.table(columns, [tuple(row[name] for name in columns) for row in rows])
    }


def _checkpoint(workspace: Workspace, phase: str) -> tuple[Dataset, Any]:
    dataset = workspace.dataset(f"checkpoints/{phase}")
    (chunk,) = dataset.chunks()
    return dataset, chunk
