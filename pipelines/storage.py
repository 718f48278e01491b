"""All access to files of the data root, on fsspec: a local folder and ``s3://…`` alike.

Keys are ``/``-separated paths below the root. A file appears under its key whole or not at all:
it is written aside, synced and renamed (local), or uploaded as one object (remote).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import fsspec

SCRATCH = ".scratch"  # temporary files; on the data root's own file system, so a rename is atomic
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Storage:
    """A data root; picklable, so that worker processes open it anew."""

    root: str

    @cached_property
    def _fs(self) -> fsspec.AbstractFileSystem:
        return fsspec.core.url_to_fs(self.root)[0]

    @property
    def is_local(self) -> bool:
        return "://" not in self.root or self.root.startswith("file://")

    @property
    def local_root(self) -> Path:
        """The data root itself, or a local cache folder that stands for a remote one."""
        if self.is_local:
            return Path(self.root.removeprefix("file://")).absolute()
        cache = Path(os.environ.get("SAMOVAR_CACHE") or Path.home() / ".cache" / "samovar")
        return cache / hashlib.sha256(self.root.encode()).hexdigest()[:16]

    def url(self, key: str) -> str:
        """Where a key lies, as a path or URL that other tools (DuckDB, pyarrow) can open."""
        return str(self.local_root / key) if self.is_local else f"{self.root.rstrip('/')}/{key}"

    def exists(self, key: str) -> bool:
        return self.size(key) is not None

    def size(self, key: str) -> int | None:
        """Bytes of the file at ``key``; None where there is none."""
        try:
            if self.is_local:
                return os.stat(self.url(key)).st_size
            self._fs.invalidate_cache()
            return self._fs.size(self.url(key))
        except FileNotFoundError:
            return None

    def read(self, key: str) -> bytes:
        """The whole content; for small files (manifests, records)."""
        with self.open(key) as file:
            return file.read()

    def open(self, key: str) -> IO[bytes]:
        """A binary file for streaming reads."""
        return open(self.url(key), "rb") if self.is_local else self._fs.open(self.url(key), "rb")

    def local(self, key: str) -> Path:
        """A path on this machine with the content of ``key``; remote files are cached by size.

        Keys of chunk files carry their content's digest, so a cached copy never goes stale.
        """
        path = self.local_root / key
        if not self.is_local and (not path.exists() or path.stat().st_size != self.size(key)):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
            self._fs.get_file(self.url(key), str(partial))
            os.replace(partial, path)
        return path

    def write(self, key: str, content: bytes) -> None:
        """Write a small file atomically."""
        scratch = self.scratch_folder() / uuid.uuid4().hex
        scratch.write_bytes(content)
        self.publish(scratch, key)

    def publish(self, path: Path, key: str) -> None:
        """Move a finished local file to ``key``: synced, then renamed or uploaded."""
        if not self.is_local:
            self._fs.put_file(str(path), self.url(key))
            path.unlink()
            return
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
        target = Path(self.url(key))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(path, target)
        except OSError:  # a scratch folder on another file system: copy beside, then rename
            beside = target.with_name(f"{target.name}.{uuid.uuid4().hex}.partial")
            shutil.copyfile(path, beside)
            os.replace(beside, target)
            path.unlink()
        _sync_folder(target.parent)

    def scratch_folder(self, name: str = "files") -> Path:
        """A local folder for unfinished files, on a local data root's own file system."""
        base = self.local_root if self.is_local else Path(tempfile.gettempdir()) / "samovar"
        folder = base / SCRATCH / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keys(self, prefix: str) -> Iterator[str]:
        """All file keys below a folder, sorted; nothing where it doesn't exist."""
        if self.is_local:
            base = Path(self.url(prefix))
            found = (
                Path(folder, name).relative_to(self.local_root).as_posix()
                for folder, _, names in os.walk(base)
                for name in names
            )
        else:
            self._fs.invalidate_cache()
            base = self._fs._strip_protocol(self.root).rstrip("/")
            paths = self._fs.find(f"{base}/{prefix}") if self._fs.exists(f"{base}/{prefix}") else []
            found = (path.removeprefix(base).lstrip("/") for path in paths)
        yield from sorted(found)

    def delete(self, key: str) -> None:
        """Remove a file, and locally the folders that it leaves empty; a missing one is fine."""
        if not self.is_local:
            if self._fs.exists(self.url(key)):
                self._fs.rm_file(self.url(key))
            (self.local_root / key).unlink(missing_ok=True)
            return
        path = Path(self.url(key))
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self.local_root or not folder.exists() or any(folder.iterdir()):
                break
            folder.rmdir()


def sha256_of(file: IO[bytes]) -> str:
    """Hex digest of a binary file's remaining content, read in blocks."""
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def sha256_of_path(path: Path) -> str:
    with open(path, "rb") as file:
        return sha256_of(file)


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable (POSIX); elsewhere the rename alone must do."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
