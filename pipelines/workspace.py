"""A project opened for work: its configuration, its data root, and where relative paths start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import Project, expand, load_project
from pipelines.config.load import find_project_file
from pipelines.datasets import Dataset
from pipelines.storage import Storage


@dataclass(frozen=True)
class Workspace:
    """``base`` is the folder of the project file."""

    project: Project
    storage: Storage
    base: Path

    @classmethod
    def open(
        cls, profile: str | None = None, overrides: Sequence[str] = (), file: Path | None = None
    ) -> Workspace:
        """The workspace of a profile; see ``pipelines.config.load_project`` for the defaults.

        Raises ConfigError.
        """
        file = file or find_project_file()
        project = load_project(profile, overrides, file)
        return cls(project, Storage(_data_root(project, file.parent)), file.parent)

    def dataset(self, key: str) -> Dataset:
        return Dataset(self.storage, key)


def _data_root(project: Project, base: Path) -> str:
    root = expand(project.paths.data_root, "paths.data_root")
    root = root.replace("{profile}", project.profile)
    return root if "://" in root else str((base / root).absolute())
