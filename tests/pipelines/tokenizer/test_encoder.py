"""Round trips, special tokens, and equality with ``transformers`` on the same file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tokenizer import SPECIAL_TOKENS, TextTokenizer
from pipelines.tokenizer.encoder import TokenizerError
from pipelines.tokenizer.training import train_bpe


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, prose: list[str]) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_bpe(iter(prose[:30]), 700, 2).save(str(path))
    return path


@pytest.fixture(scope="module")
def tokenizer(file: Path) -> TextTokenizer:
    return TextTokenizer.load(file)


# Lone surrogates can't be encoded as UTF-8; texts with them don't get past the raw stage.
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_round_trip(tokenizer: TextTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.sampled_from([*SPECIAL_TOKENS, "Привет", " ", "\n", "<|", "|>"]), max_size=8))
def test_spelled_special_tokens_stay_text(tokenizer: TextTokenizer, pieces: list[str]) -> None:
    text = "".join(pieces)
    ids = tokenizer.encode(text)
    assert not set(ids) & set(tokenizer.special_ids)
    assert tokenizer.decode(ids) == text


def test_prose_round_trip_and_batch(tokenizer: TextTokenizer, prose: list[str]) -> None:
    assert tokenizer.encode_batch(prose) == [tokenizer.encode(text) for text in prose]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(prose)] == prose


def test_special_ids_are_the_first(tokenizer: TextTokenizer) -> None:
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert tokenizer.decode([tokenizer.user, tokenizer.end_of_text]) == "<|user|><|endoftext|>"


def test_transformers_reads_the_same_ids(
    file: Path, tokenizer: TextTokenizer, prose: list[str]
) -> None:
    from transformers import PreTrainedTokenizerFast

    reference = PreTrainedTokenizerFast(tokenizer_file=str(file))
    for text in prose[:20]:
        assert reference.encode(text, add_special_tokens=False) == tokenizer.encode(text)


def test_training_is_deterministic(file: Path, prose: list[str], tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    train_bpe(iter(prose[:30]), 700, 2).save(str(again))
    assert again.read_bytes() == file.read_bytes()


def test_damaged_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"version": "1.0"', encoding="utf-8")
    with pytest.raises(TokenizerError, match="tokenizer.json"):
        TextTokenizer.load(path)


def test_tokenizer_without_special_tokens_is_refused() -> None:
    from tokenizers import Tokenizer, models

    with pytest.raises(TokenizerError, match="<|assistant|>"):
        TextTokenizer(Tokenizer(models.BPE()))
