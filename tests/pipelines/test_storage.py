"""Storage: whole files or none, locally and on another file system of fsspec."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.storage import Storage, sha256_of_path


@pytest.fixture(params=["local", "memory"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    monkeypatch.setenv("SAMOVAR_CACHE", str(tmp_path / "cache"))
    if request.param == "local":
        return Storage(str(tmp_path / "root"))
    return Storage(f"memory://{tmp_path.name}")


def test_write_read_list_delete(storage: Storage) -> None:
    assert storage.size("a/b.json") is None
    assert list(storage.keys("a")) == []
    storage.write("a/b.json", "да".encode())
    storage.write("a/c/d.json", b"2")
    assert storage.read("a/b.json") == "да".encode()
    assert storage.size("a/b.json") == 4
    assert list(storage.keys("a")) == ["a/b.json", "a/c/d.json"]
    storage.write("a/b.json", b"new")
    assert storage.read("a/b.json") == b"new"
    storage.delete("a/b.json")
    storage.delete("a/b.json")
    assert not storage.exists("a/b.json")
    assert list(storage.keys("a")) == ["a/c/d.json"]


def test_publish_moves_a_finished_file(storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / "finished"
    path.write_bytes(b"content" * 1000)
    digest = sha256_of_path(path)
    storage.publish(path, "x/y.bin")
    assert not path.exists()
    assert sha256_of_path(storage.local("x/y.bin")) == digest


def test_missing_file(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("nothing")


def test_nothing_partial_is_left_beside(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("a/b", b"1")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    storage.delete("a/b")
    assert not (tmp_path / "a").exists()
