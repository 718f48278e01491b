"""The declarative configuration: models of every key, and their reading."""

from pipelines.config.load import ConfigError, expand, find_project_file, load_project
from pipelines.config.models import MAX_VOCABULARY, Project, Source

__all__ = [
    "MAX_VOCABULARY",
    "ConfigError",
    "Project",
    "Source",
    "expand",
    "find_project_file",
    "load_project",
]
