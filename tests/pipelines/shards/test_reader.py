"""The token stream: windows over shards equal their concatenation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.shards.reader import INDEX_SCHEMA, ShardError, ShardFiles, TokenStream


def write(folder: Path, shards: list[list[int]], masked: bool = False) -> TokenStream:
    files = []
    for number, tokens in enumerate(shards):
        base = folder / str(number)
        np.array(tokens, "<u2").tofile(f"{base}.tokens")
        row = {
            "id": str(number),
            "start": 0,
            "tokens": len(tokens),
            "characters": 1,
            "answer_characters": 1,
        }
        pq.write_table(pa.Table.from_pylist([row], schema=INDEX_SCHEMA), f"{base}.index")
        mask = None
        if masked:
            mask = Path(f"{base}.mask")
            np.array([t % 2 for t in tokens], "u1").tofile(mask)
        files.append(ShardFiles(Path(f"{base}.tokens"), Path(f"{base}.index"), mask))
    return TokenStream(files)


@given(
    st.lists(st.lists(st.integers(0, 65_535), max_size=9), min_size=1, max_size=5),
    st.data(),
)
def test_windows(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[int]], data: st.DataObject
) -> None:
    stream = write(tmp_path_factory.mktemp("shards"), shards, masked=True)
    whole = [token for shard in shards for token in shard]
    assert len(stream) == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, len(whole) - start))
    assert stream.tokens(start, length).tolist() == whole[start : start + length]
    assert stream.mask(start, length).tolist() == [t % 2 for t in whole[start : start + length]]
    starts = np.cumsum([0, *map(len, shards)])[:-1].tolist()
    assert [document.start for document in stream.documents()] == starts


def test_beyond_the_end(tmp_path: Path) -> None:
    stream = write(tmp_path, [[1, 2], [3]])
    for start, length in ((0, 4), (3, 1), (-1, 1)):
        with pytest.raises(IndexError):
            stream.tokens(start, length)


def test_without_masks_all_count(tmp_path: Path) -> None:
    stream = write(tmp_path, [[1, 2], [3]])
    assert not stream.has_mask
    assert stream.mask(0, 3).tolist() == [1, 1, 1]


def test_odd_size_and_mask_of_another_length(tmp_path: Path) -> None:
    stream = write(tmp_path, [[1, 2]], masked=True)
    (shard,) = stream.shards
    shard.mask.write_bytes(b"\x00")
    with pytest.raises(ShardError, match="1 mask values for the 2 tokens"):
        TokenStream([shard])
    shard.tokens.write_bytes(b"\x00\x01\x02")
    with pytest.raises(ShardError, match="3 bytes"):
        TokenStream([shard])
