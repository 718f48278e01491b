"""Read ``dagster_project.toml``: profile overlay, overrides, environment, errors in words.

The order, later wins: the file's own tables, the profile's overlay (``[profiles.NAME]``), the
overrides of ``SAMOVAR_SET`` (one ``key=value`` a line), those of the caller (``--set``).
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pipelines.config.models import Project

PROJECT_FILE = "dagster_project.toml"
PROFILE_VARIABLE = "SAMOVAR_PROFILE"
OVERRIDES_VARIABLE = "SAMOVAR_SET"
PROJECT_VARIABLE = "SAMOVAR_PROJECT"


class ConfigError(ValueError):
    """The configuration can't be used; the message names key, value and what is allowed."""


def find_project_file() -> Path:
    """The project file: ``SAMOVAR_PROJECT``, the working folder or one above, or beside the code.

    Raises ConfigError when there is none.
    """
    if given := os.environ.get(PROJECT_VARIABLE):
        path = Path(given)
        path = path / PROJECT_FILE if path.is_dir() else path
        if not path.is_file():
            raise ConfigError(f"{PROJECT_VARIABLE}={given}: there is no {PROJECT_FILE}")
        return path.resolve()
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
    raise ConfigError(f"no {PROJECT_FILE} in {here} or above it; set {PROJECT_VARIABLE}")


def load_project(
    profile: str | None = None, overrides: Sequence[str] = (), file: Path | None = None
) -> Project:
    """The validated project of a profile (default: ``SAMOVAR_PROFILE``, then the file's own).

    ``overrides`` are ``dotted.key=value`` with the value in TOML (a bare word is a string).
    Raises ConfigError; all problems at once.
    """
    file = file or find_project_file()
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no valid TOML: {error}") from error
    profiles = raw.pop("profiles", {})
    profile = profile or os.environ.get(PROFILE_VARIABLE) or raw.get("profile")
    if profile not in profiles:
        raise ConfigError(f"unknown profile {profile!r}; {file.name} has: {', '.join(profiles)}")
    merged = merge(raw, profiles[profile])
    merged["profile"] = profile
    from_environment = [
        line.strip() for line in os.environ.get(OVERRIDES_VARIABLE, "").splitlines() if line.strip()
    ]
    for override in (*from_environment, *overrides):
        _apply(merged, override)
    try:
        return Project.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(explain(error, f"{file.name}, profile {profile!r}")) from error


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """``overlay`` laid over ``base``; tables merge, except mixes and lists, which replace."""
    result = dict(base)
    for key, value in overlay.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping) and key != "mix":
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def _apply(config: dict[str, Any], override: str) -> None:
    """Set one ``dotted.key=value`` in place."""
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set {override!r}: write it as key.in.the.file=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word needs no quotes on the command line
    *tables, last = key.split(".")
    for name in tables:
        child = config.get(name, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override!r}: {name!r} is a value, not a table")
        config[name] = dict(child)
        config = config[name]
    config[last] = value


_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


def expand(path: str, key: str) -> str:
    """``${VAR}`` and ``${VAR:-default}`` in a path; ConfigError for a variable that isn't set."""

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match["name"]) or match["default"]
        if found is None:
            raise ConfigError(f"{key} = {path!r}: the variable {match['name']} isn't set")
        return found

    return _VARIABLE.sub(value, path)


def explain(error: ValidationError, where: str) -> str:
    """Pydantic's errors in the words of this file: key, value, what is allowed."""
    lines = [f"{where}: {error.error_count()} problem(s)"]
    for problem in error.errors(include_url=False):
        location = [str(part) for part in problem["loc"] if part != "[key]"]
        key = ".".join(location) or "the file as a whole"
        if problem["type"] == "extra_forbidden":
            allowed = _keys_at(location[:-1])
            near = difflib.get_close_matches(location[-1], allowed, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            text = f"unknown key; {hint}Allowed here: {', '.join(allowed)}"
        elif problem["type"] == "missing":
            text = "is missing"
        else:
            text = problem["msg"].removeprefix("Value error, ")
            if problem["type"] != "value_error" or location:
                text = f"is {problem['input']!r}: {text}"
        lines.append(f"  {key}: {text}")
    return "\n".join(lines)


def _keys_at(location: Sequence[str]) -> list[str]:
    """The keys that the table at ``location`` may have."""
    model: Any = Project
    for part in location:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[part].annotation
        else:
            model = typing.get_args(model)[1]  # the values of a dict
        if isinstance(model, types.UnionType):
            model = next(arg for arg in typing.get_args(model) if arg is not type(None))
    return sorted(model.model_fields)
