"""A tiny model and small token streams, with and without a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.config import ModelConfig
from pipelines.shards.reader import INDEX_SCHEMA, MASK_DTYPE, TOKEN_DTYPE, ShardFiles, TokenStream
from trainers.options import TrainingOptions

VOCABULARY = 64
END = 1


@pytest.fixture(autouse=True)
def _tiny_matrices(one_thread: None) -> None:
    """One thread for all tests here."""


@pytest.fixture
def config() -> ModelConfig:
    return ModelConfig(
        vocab_size=VOCABULARY,
        n_layer=2,
        n_embd=32,
        n_head=2,
        n_kv_head=1,
        ffn_hidden=48,
        context_length=16,
        dropout=0.1,
    )


@pytest.fixture
def make_stream(tmp_path: Path) -> Callable[..., TokenStream]:
    """A stream of one shard, of documents of the given lengths (the end token included)."""

    def make(lengths: Sequence[int], seed: int = 0, masked: bool = False) -> TokenStream:
        folder = tmp_path / f"shard-{seed}-{masked}-{len(lengths)}"
        folder.mkdir()
        random = np.random.default_rng(seed)
        documents, rows, start = [], [], 0
        for number, length in enumerate(lengths):
            # Each document repeats one short pattern: something that can be learned.
            pattern = random.integers(2, VOCABULARY, 4)
            documents.append(np.append(np.resize(pattern, length - 1), END))
            half = (length - 1) // 2
            rows.append(
                {
                    "id": f"d{number}",
                    "start": start,
                    "tokens": length,
                    "characters": 3 * (length - 1),
                    "answer_characters": 3 * (length - 1 - half),
                }
            )
            start += length
        tokens = np.concatenate(documents).astype(TOKEN_DTYPE)
        tokens.tofile(folder / "tokens")
        pq.write_table(pa.Table.from_pylist(rows, schema=INDEX_SCHEMA), folder / "index")
        mask = None
        if masked:
            # The second half of each document is its answer.
            parts = [np.arange(n) >= (n - 1) // 2 for n in lengths]
            mask = folder / "mask"
            np.concatenate(parts).astype(MASK_DTYPE).tofile(mask)
        return TokenStream([ShardFiles(folder / "tokens", folder / "index", mask)])

    return make


@pytest.fixture
def streams(make_stream: Callable[..., TokenStream]) -> dict[str, TokenStream]:
    return {
        "web": make_stream([20, 33, 9, 41] * 4, seed=1),
        "chat": make_stream([15, 27, 12] * 5, seed=2, masked=True),
    }


@pytest.fixture
def options() -> Callable[..., TrainingOptions]:
    """Options of a short run; keywords replace the defaults."""

    def make(**changes: object) -> TrainingOptions:
        values = {
            "steps": 12,
            "micro_batch": 4,
            "accumulation": 1,
            "peak_lr": 5e-3,
            "min_lr": 5e-4,
            "warmup_steps": 2,
            "seed": 3,
            "mixture": {"web": 0.6, "chat": 0.4},
            "masked_loss": True,
            "precision": "fp32",
            "device": "cpu",
            "checkpoint_every": 4,
            "log_every": 1,
            **changes,
        }
        return TrainingOptions(**values)

    return make
