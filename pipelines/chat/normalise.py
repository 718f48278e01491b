"""One raw dialog to alternating user and assistant messages, or the reason why it can't be.

In this order:

1. role names become ``system``, ``user`` or ``assistant``; an unknown one drops the dialog;
2. contents are normalised like documents; empty messages are left out (and counted);
3. system text is put before the first user message, since it has no token of its own;
4. adjacent messages of one role are joined by a newline;
5. a dialog that doesn't start with the user, or without any answer, is dropped;
6. user messages after the last answer are cut off (and counted): nothing is learned from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.chat.roles import Role, role_of
from pipelines.text import normalise

JOIN = "\n"


@dataclass(frozen=True)
class Dialog:
    """Messages ``(role, content)``: user, assistant, …, assistant; no content is empty."""

    messages: tuple[tuple[Role, str], ...]
    empty_messages: int = 0
    unanswered_messages: int = 0

    @property
    def text(self) -> str:
        """All contents, joined by newlines: what repeats are compared by."""
        return "\n".join(content for _, content in self.messages)

    @property
    def turns(self) -> int:
        """Answers of the assistant."""
        return sum(role == "assistant" for role, _ in self.messages)

    @property
    def characters(self) -> int:
        return sum(len(content) for _, content in self.messages)

    @property
    def answer_characters(self) -> int:
        return sum(len(content) for role, content in self.messages if role == "assistant")


@dataclass(frozen=True)
class Rejection:
    """Why a dialog was dropped."""

    reason: str
    detail: str | None = None


def normalise_dialog(
    messages: Sequence[Mapping[str, str]], further_roles: Mapping[str, Role]
) -> Dialog | Rejection:
    """Normalise ``{"role": …, "content": …}`` messages; see the module for the rules."""
    system: list[str] = []
    joined: list[tuple[Role, list[str]]] = []
    empty = 0
    for message in messages:
        role = role_of(message["role"], further_roles)
        if role is None:
            return Rejection("unknown_role", message["role"])
        content = normalise(message["content"])
        if not content:
            empty += 1
        elif role == "system":
            system.append(content)
        elif joined and joined[-1][0] == role:
            joined[-1][1].append(content)
        else:
            joined.append((role, [content]))
    if not joined:
        return Rejection("empty_dialog", f"{len(messages)} messages, no text of either side")
    if joined[0][0] != "user":
        return Rejection("starts_without_user", f"starts with {joined[0][0]}")
    joined[0] = ("user", [*system, *joined[0][1]])
    unanswered = 0
    if joined[-1][0] == "user":
        unanswered = len(joined.pop()[1])
    if not joined:
        return Rejection("no_answer")
    return Dialog(
        tuple((role, JOIN.join(contents)) for role, contents in joined), empty, unanswered
    )
