"""The declarative file as typed, closed models: every key of ``dagster_project.toml``.

Each model refuses unknown keys and wrong types. A stage reads only its own model (its *slice*),
so that a changed key makes stale exactly the assets that depend on it.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

MAX_VOCABULARY = 65_536  # token ids are stored as uint16

TextGroup = Literal["web", "articles"]
Group = Literal["web", "articles", "chat"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of every table: immutable, closed and strict about types.

    Strict but for the numbers: ``1`` is a fine float. A boolean or a string never is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Paths(Section):
    """Where data lives. ``{profile}`` in ``data_root`` is the active profile's name."""

    data_root: str = "data/{profile}"


class Execution(Section):
    """How work is spread. Never part of a stage's slice: it may not change any output."""

    workers: int = Field(0, ge=0, description="worker processes; 0: one a core")


class Datasets(Section):
    chunk_mb: int = Field(64, ge=1, le=1024, description="text of one raw chunk at most, in MB")


class Source(Section):
    """One raw source: where its files are and how their records are read."""

    kind: Literal["text", "dialogs"]
    group: Group
    paths: list[str] = Field(description="files, folders or globs; ${VAR} and ${VAR:-x} expand")
    title: str = ""
    licence: str = "not stated"
    origin: str = ""
    download: str = ""
    limit: int | None = Field(None, ge=1, description="records at most, in file order")
    text_column: str | None = None
    url_column: str | None = None
    delimiter: str = Field("auto", description="of CSV files; auto: comma, or tab in .tsv")
    separator: str | None = Field(None, description="a line that parts the documents of a .txt")
    long_documents: Literal["split", "drop"] = "drop"
    max_bad_share: Share = Field(0.01, description="malformed records above this share are fatal")

    @model_validator(mode="after")
    def _group_fits_kind(self) -> Source:
        if (self.kind == "dialogs") != (self.group == "chat"):
            raise ValueError(
                f"kind {self.kind!r} doesn't go with group {self.group!r}: "
                "dialogs belong to group 'chat', texts to 'web' or 'articles'"
            )
        return self


class Filters(Section):
    """Thresholds of the document selection, in the order in which they are applied."""

    min_chars: int = Field(50, ge=0)
    max_chars: int = Field(5_000, ge=1)
    min_letter_ratio: Share = 0.4
    max_special_ratio: Share = 0.25
    min_cyrillic_ratio: Share = Field(0.5, description="of the letters")
    stop_words: list[str] = Field(default_factory=list)
    max_stop_words: int = Field(0, ge=0, description="occurrences that are still accepted")
    language: str = "ru"
    lang_conf_threshold: Share = 0.6

    @model_validator(mode="after")
    def _bounds(self) -> Filters:
        if self.min_chars > self.max_chars:
            raise ValueError(
                f"min_chars {self.min_chars} is above max_chars {self.max_chars}: nothing is kept"
            )
        return self


class NearDuplicates(Section):
    """64-bit simhash; a document within this Hamming distance of a kept one is dropped."""

    simhash_threshold: int = Field(3, ge=0, le=7)


class Chat(Section):
    """Dialog normalisation and repeats."""

    roles: dict[str, Literal["system", "user", "assistant"]] = Field(
        default_factory=dict, description="further role names, beside the built-in ones"
    )
    simhash_threshold: int = Field(3, ge=0, le=7)


class Tokenizer(Section):
    """Byte-level BPE."""

    vocab_size: int = Field(16_384, ge=300, le=MAX_VOCABULARY)
    corpus_chars: int = Field(200_000_000, ge=1_000)
    mix: dict[Group, Share] = Field(
        default_factory=lambda: {"web": 0.4, "articles": 0.2, "chat": 0.4}
    )
    min_frequency: int = Field(2, ge=1)

    @field_validator("mix")
    @classmethod
    def _mix(cls, mix: dict[str, float]) -> dict[str, float]:
        return sums_to_one(mix)


class Shards(Section):
    max_tokens: int = Field(1_000_000, ge=1_000, le=1_000_000)
    validation_share: Share = 0.005


class Preset(Section):
    """A shape of the decoder family; the fields of ``model.config.ModelConfig``."""

    vocab_size: int = Field(ge=300, le=MAX_VOCABULARY)
    n_layer: int = Field(ge=1)
    n_embd: int = Field(ge=2)
    n_head: int = Field(ge=1)
    n_kv_head: int = Field(ge=1)
    ffn_hidden: int = Field(ge=1)
    context_length: int = Field(ge=8)
    positions: Literal["rope", "learned"] = "rope"
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    mlp: Literal["swiglu", "gelu"] = "swiglu"
    tied_embeddings: bool = True
    bias: bool = False
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    rope_theta: float = Field(10_000.0, gt=0)
    norm_eps: float = Field(1e-5, gt=0)

    @model_validator(mode="after")
    def _heads(self) -> Preset:
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd {self.n_embd} must be a multiple of n_head {self.n_head}")
        if self.n_head % self.n_kv_head:
            raise ValueError(f"n_head {self.n_head} must be a multiple of n_kv_head")
        return self


class Model(Section):
    preset: str = "main"


class Phase(Section):
    """One phase of training. A step is micro_batch · accumulation · context tokens."""

    tokens: int = Field(ge=1)
    mix: dict[Group, Share]
    peak_lr: float = Field(gt=0)
    min_lr_ratio: Share = 0.1
    warmup_share: Share = 0.02
    micro_batch: int = Field(24, ge=1)
    accumulation: int = Field(2, ge=1)
    weight_decay: float = Field(0.1, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    grad_clip: float = Field(1.0, gt=0)
    masked_loss: bool = False
    seed: int = 1

    @field_validator("mix")
    @classmethod
    def _mix(cls, mix: dict[str, float]) -> dict[str, float]:
        return sums_to_one(mix)


class Training(Section):
    pretrain: Phase
    sft: Phase
    precision: Literal["fp32", "bf16", "auto"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = Field(2, ge=1, description="CPU threads; fixed, since sums depend on it")
    checkpoint_every: int = Field(500, ge=1, description="steps")


class Sampling(Section):
    prompts: list[str] = Field(default_factory=lambda: ["Привет! Как дела?"])
    max_new_tokens: int = Field(96, ge=1)
    temperature: float = Field(0.8, ge=0)
    top_k: int = Field(50, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    repetition_penalty: float = Field(1.1, ge=1)
    seed: int = 7


class Evaluation(Section):
    max_characters: int = Field(
        2_000_000, ge=1, description="of each held-out group, from its front"
    )
    stride: int | None = Field(None, ge=1, description="tokens; default: half the context")
    batch_size: int = Field(16, ge=1)
    samples: Sampling = Sampling()


class Quality(Section):
    """Bounds of the checks that guard the data."""

    min_kept_share: Share = Field(0.01, description="of a group's documents; less fails the check")


class Project(Section):
    """Everything, for one profile: the merged file as the stages see it."""

    profile: str
    use_sources: list[str]
    paths: Paths = Paths()
    execution: Execution = Execution()
    datasets: Datasets = Datasets()
    sources: dict[str, Source]
    filters: Filters = Filters()
    near_duplicates: NearDuplicates = NearDuplicates()
    chat: Chat = Chat()
    tokenizer: Tokenizer = Tokenizer()
    shards: Shards = Shards()
    presets: dict[str, Preset]
    model: Model = Model()
    training: Training
    evaluation: Evaluation = Evaluation()
    quality: Quality = Quality()

    @model_validator(mode="after")
    def _references(self) -> Project:
        problems = []
        for name in self.use_sources:
            if name not in self.sources:
                problems.append(
                    f"use_sources names {name!r}; known sources: {', '.join(sorted(self.sources))}"
                )
        for name in self.sources:
            if not name.replace("_", "").isalnum() or not name.isascii() or name == "chat":
                problems.append(
                    f"sources.{name}: a source's name is made of a-z, 0-9 and _, and isn't 'chat'"
                )
        if len(set(self.use_sources)) != len(self.use_sources):
            problems.append("use_sources names a source twice")
        if self.model.preset not in self.presets:
            problems.append(
                f"model.preset is {self.model.preset!r}; known presets: {', '.join(self.presets)}"
            )
        elif self.tokenizer.vocab_size > self.preset.vocab_size:
            problems.append(
                f"tokenizer.vocab_size is {self.tokenizer.vocab_size}; the preset "
                f"{self.model.preset!r} has room for {self.preset.vocab_size}"
            )
        if not problems:
            groups = {source.group for source in self.active_sources.values()}
            for key, mix in (
                ("tokenizer.mix", self.tokenizer.mix),
                ("training.pretrain.mix", self.training.pretrain.mix),
                ("training.sft.mix", self.training.sft.mix),
            ):
                problems += [
                    f"{key}.{group} is {weight}, and no source of use_sources is in that group; "
                    f"groups with a source: {', '.join(sorted(groups))}"
                    for group, weight in mix.items()
                    if weight > 0 and group not in groups
                ]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def active_sources(self) -> dict[str, Source]:
        """The sources of this profile in priority order (the order of ``use_sources``)."""
        return {name: self.sources[name] for name in self.use_sources}

    @property
    def preset(self) -> Preset:
        return self.presets[self.model.preset]

    def sources_of(self, group: str) -> list[str]:
        """Names of the active sources of one group, in priority order."""
        return [name for name, source in self.active_sources.items() if source.group == group]

    @property
    def groups(self) -> list[Group]:
        """Groups that have at least one active source, in the fixed order of the stages."""
        return [group for group in ("web", "articles", "chat") if self.sources_of(group)]

    def steps(self, phase: str) -> int:
        """Optimizer steps of a phase: its tokens over the tokens of a step, at least 1."""
        p: Phase = getattr(self.training, phase)
        return max(1, p.tokens // (p.micro_batch * p.accumulation * self.preset.context_length))


def sums_to_one(mix: dict[str, float]) -> dict[str, float]:
    """``mix`` unchanged, or ValueError with the sum that it has."""
    total = math.fsum(mix.values())
    if abs(total - 1) > 1e-9:
        raise ValueError(f"the shares sum to {total:g}; they must sum to 1")
    return mix
