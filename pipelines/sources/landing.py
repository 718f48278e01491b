"""The files of a source: resolving paths, listing them cheaply, hashing only what changed."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import Source, expand
from pipelines.datasets import digest
from pipelines.storage import Storage, sha256_of_path

FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
COMPRESSIONS = ("", ".gz", ".zst")
SUFFIXES = tuple(f + c for f in FORMATS for c in COMPRESSIONS if not (f == ".parquet" and c))


class SourceError(ValueError):
    """A source can't be read; the message names source, file and remedy."""


@dataclass(frozen=True)
class LandedFile:
    """One raw file. ``name`` is its place within the source, the same on every machine."""

    name: str
    path: Path
    size: int
    modified_ns: int


def landed_files(name: str, source: Source, base: Path) -> list[LandedFile]:
    """The files that a source's ``paths`` name, sorted by name within each entry.

    A folder stands for all files of a known suffix below it, a glob for what it matches. Relative
    paths start at ``base`` (the folder of the project file). Raises SourceError when an entry
    matches nothing, or two files have one name.
    """
    found: dict[str, LandedFile] = {}
    for entry in source.paths:
        pattern = Path(expand(entry, f"sources.{name}.paths"))
        pattern = pattern if pattern.is_absolute() else base / pattern
        files = list(_matches(pattern))
        if not files:
            hint = f" To get the data: {source.download}" if source.download else ""
            raise SourceError(
                f"source {name!r}: nothing at {pattern} (a file, a folder with "
                f"{', '.join(FORMATS)} files, or a glob). Put the files there, or set "
                f"sources.{name}.paths to where they are.{hint}"
            )
        for relative, path in files:
            stat = path.stat()
            file = LandedFile(_slug(relative), path, stat.st_size, stat.st_mtime_ns)
            if file.name in found:
                raise SourceError(
                    f"source {name!r}: {found[file.name].path} and {path} would both be "
                    f"called {file.name!r}; rename one"
                )
            found[file.name] = file
    return list(found.values())


def listing_digest(files: list[LandedFile]) -> str:
    """Digest of names, sizes and modification times: what an observation compares."""
    return digest([(file.name, file.size, file.modified_ns) for file in files])


class ContentHashes:
    """sha256 of landed files, remembered by (name, size, modification time).

    A file that was only touched is hashed again and found equal; one that wasn't isn't read.
    """

    def __init__(self, storage: Storage, source: str) -> None:
        self._storage = storage
        self._key = f"landing/{source}.json"
        try:
            self._known: dict[str, list] = json.loads(storage.read(self._key))
        except (FileNotFoundError, ValueError):
            self._known = {}

    def of(self, files: list[LandedFile]) -> dict[str, str]:
        """Digest by file name; hashes what is new and remembers it."""
        hashes = {}
        known = {}
        for file in files:
            stamp = [file.size, file.modified_ns]
            entry = self._known.get(file.name)
            sha = entry[2] if entry and entry[:2] == stamp else sha256_of_path(file.path)
            known[file.name] = [*stamp, sha]
            hashes[file.name] = sha
        if known != self._known:
            self._known = known
            self._storage.write(self._key, json.dumps(known, ensure_ascii=False).encode())
        return hashes


def _matches(pattern: Path) -> Iterator[tuple[str, Path]]:
    """(name relative to the pattern's fixed part, path), sorted by name."""
    text = str(pattern)
    if pattern.is_file():
        yield pattern.name, pattern
        return
    if pattern.is_dir():
        base, paths = pattern, _walk(pattern)
    elif glob.has_magic(text):
        fixed = re.split(r"[*?\[]", text, maxsplit=1)[0]
        base = Path(fixed if fixed.endswith("/") else os.path.dirname(fixed))
        paths = [Path(p) for p in glob.glob(text, recursive=True) if os.path.isfile(p)]
    else:
        return
    yield from sorted((path.relative_to(base).as_posix(), path) for path in paths)


def _walk(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name.lower().endswith(SUFFIXES) and path.name[0] != "."
    ]


def _slug(name: str) -> str:
    """A file name that is safe as part of a key: letters, digits and ``._-+`` stay as they are.

    Folders are joined by ``+``. When anything had to be replaced, a few digits of the name's
    digest keep two such names apart.
    """
    joined = name.replace("/", "+")
    safe = re.sub(r"[^\w.+-]", "_", joined)
    if safe == joined and len(safe.encode()) <= 120:
        return safe
    tag = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    while len(safe.encode()) > 120:  # file systems allow 255 bytes for a name and its suffixes
        safe = safe[1:]
    return f"{safe}~{tag}"
