"""Groups ``tokenizer`` and ``shards``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assets import figures
from assets.nodes import Check, Node, Verdict
from pipelines.engine import BuildReport
from pipelines.groups import CHAT, records_key
from pipelines.shards import checks as shard_checks
from pipelines.shards import writer
from pipelines.tokenizer import corpus, training
from pipelines.workspace import Workspace


def nodes(workspace: Workspace) -> Iterator[Node]:
    project = workspace.project
    yield Node(
        key=corpus.KEY,
        group="tokenizer",
        description=(
            "The text that the tokenizer is trained on, cut from the front of each group by "
            "tokenizer.mix: appended data leaves it as it is."
        ),
        deps=tuple(records_key(group) for group in project.groups),
        stage=corpus.stage(project),
        build=lambda ws, observer: corpus.build_corpus(ws.project, ws.storage, observer),
        figures=lambda ws, report: {
            "mix": figures.table(
                ["group", "texts", "characters"],
                [(c.name, c.stats["rows"], c.stats["characters"]) for c in report.manifest.chunks],
            )
        },
    )
    yield Node(
        key=training.KEY,
        group="tokenizer",
        description="Byte-level BPE: decode(encode(text)) == text for every text.",
        deps=(corpus.KEY,),
        stage=training.stage(project),
        build=lambda ws, observer: training.build_tokenizer(ws.project, ws.storage, observer),
        figures=_tokenizer_figures,
        checks=(ROUND_TRIP,),
        kinds=("python", "huggingface"),
    )
    for group in project.groups:
        checks = (SHARDS_ADD_UP, MASK_ONLY_ON_ANSWERS) if group == CHAT else (SHARDS_ADD_UP,)
        yield Node(
            key=f"shards/{group}",
            group="shards",
            description=(
                f"Group {group} as uint16 token shards of at most {project.shards.max_tokens:,} "
                "tokens, split into train and validation by a stable hash of the document id"
                + (", with SFT masks." if group == CHAT else ".")
            ),
            deps=(records_key(group), training.KEY),
            stage=writer.stage(project, group),
            build=lambda ws, observer, group=group: writer.build_shards(
                ws.project, ws.storage, group, ws.project.execution.workers, observer
            ),
            figures=_shard_figures,
            checks=checks,
        )


def _tokenizer_figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    stats = report.manifest.chunks[0].stats
    return {
        "vocabulary": stats["vocab_size"],
        "characters a token": stats["corpus_characters"] / max(1, stats["corpus_tokens"]),
    }


def _shard_figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    total = report.manifest.total
    rows = [
        (split, total(f"{split}_documents"), total(f"{split}_characters"), total(f"{split}_tokens"))
        for split in ("train", "validation")
    ]
    return {
        "splits": figures.table(["split", "documents", "characters", "tokens"], rows),
        "tokens": sum(row[3] for row in rows),
        "shards": len(report.manifest.chunks),
    }


def _round_trip(workspace: Workspace, report: BuildReport) -> Verdict:
    stats = report.manifest.chunks[0].stats
    failures = stats["round_trip_failures"]
    return Verdict(failures == 0, {"failures": failures, "characters": stats["corpus_characters"]})


def _shards_add_up(workspace: Workspace, report: BuildReport) -> Verdict:
    group = report.dataset.key.rpartition("/")[2]
    records = workspace.dataset(records_key(group)).manifest().total("rows")
    problems = shard_checks.index_problems(workspace.storage, report.manifest.chunks)
    total = report.manifest.total
    written = total("train_documents") + total("validation_documents")
    if written != records:
        problems.append(f"{records} records, {written} documents in the shards")
    return Verdict(not problems, {"documents": written, "problems": "; ".join(problems[:5])})


def _mask_only_on_answers(workspace: Workspace, report: BuildReport) -> Verdict:
    tokenizer = training.load_tokenizer(workspace.storage)
    wrong = shard_checks.mask_errors(workspace.storage, report.manifest.chunks, tokenizer)
    return Verdict(wrong == 0, {"tokens with a wrong mask": wrong})


ROUND_TRIP = Check(
    "round_trip",
    "decode(encode(text)) == text for the whole corpus and for texts that it doesn't have.",
    _round_trip,
)
SHARDS_ADD_UP = Check(
    "shards_add_up",
    "Each record is one document of the index, and the index covers every token once.",
    _shards_add_up,
)
MASK_ONLY_ON_ANSWERS = Check(
    "mask_only_on_answers",
    "The mask is 1 exactly from after <|assistant|> to the <|endoftext|> that ends the answer.",
    _mask_only_on_answers,
)
