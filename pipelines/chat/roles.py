"""Role names as the data sets write them, and the three roles that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Role = Literal["system", "user", "assistant"]

ROLES_VERSION = 1  # part of the stage's config slice: raise it with every change of the names

_NAMES: dict[Role, str] = {
    "system": "system developer context система системный контекст инструкция",
    "user": "user human prompter client customer question q me instruction "
    "пользователь человек юзер клиент вопрос собеседник",
    "assistant": "assistant bot gpt chatgpt model ai answer a output response "
    "ассистент бот помощник модель ответ ии",
}
_ROLES: dict[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}


def role_of(name: str, further: Mapping[str, Role]) -> Role | None:
    """The role that ``name`` stands for, whatever its case; None for an unknown one.

    ``further`` maps names of the configuration, which come before the built-in ones.
    """
    key = name.strip().casefold()
    configured = {name.strip().casefold(): role for name, role in further.items()}
    return configured.get(key) or _ROLES.get(key)
