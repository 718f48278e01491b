"""Rules of dialog normalisation, each with a hand-checked case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.chat.normalise import Dialog, Rejection, normalise_dialog
from pipelines.chat.roles import role_of


def dialog(*messages: tuple[str, str], roles: dict | None = None) -> Dialog | Rejection:
    records = [{"role": role, "content": content} for role, content in messages]
    return normalise_dialog(records, roles or {})


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("human", "user"),
        ("Prompter", "user"),
        ("ПОЛЬЗОВАТЕЛЬ", "user"),
        ("bot", "assistant"),
        ("gpt", "assistant"),
        ("ассистент", "assistant"),
        (" System ", "system"),
        ("moderator", None),
        ("", None),
    ],
)
def test_role_names(name: str, role: str | None) -> None:
    assert role_of(name, {}) == role


def test_configured_role_comes_first() -> None:
    assert role_of("Рассказчик", {"рассказчик": "assistant"}) == "assistant"
    assert role_of("bot", {"bot": "user"}) == "user"


def test_plain_dialog() -> None:
    result = dialog(("user", "Привет!"), ("bot", "Привет! Чем помочь?"))
    assert result == Dialog((("user", "Привет!"), ("assistant", "Привет! Чем помочь?")))
    assert (result.turns, result.characters, result.answer_characters) == (1, 26, 19)


def test_system_text_goes_before_the_first_user_message() -> None:
    result = dialog(("system", "Отвечай кратко."), ("user", "Кто ты?"), ("assistant", "Бот."))
    assert result.messages[0] == ("user", "Отвечай кратко.\nКто ты?")


def test_adjacent_messages_are_joined() -> None:
    result = dialog(("user", "Раз."), ("human", "Два."), ("bot", "Три."), ("gpt", "Четыре."))
    assert result.messages == (("user", "Раз.\nДва."), ("assistant", "Три.\nЧетыре."))


def test_empty_messages_are_left_out_and_counted() -> None:
    result = dialog(("user", "Вопрос?"), ("bot", " \u200b\n"), ("bot", "Ответ."))
    assert result.messages == (("user", "Вопрос?"), ("assistant", "Ответ."))
    assert result.empty_messages == 1


def test_unanswered_end_is_cut_and_counted() -> None:
    result = dialog(("user", "А?"), ("bot", "Б."), ("user", "В?"), ("user", "Г?"))
    assert result.messages == (("user", "А?"), ("assistant", "Б."))
    assert result.unanswered_messages == 2


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([("user", "А?"), ("moderator", "Нельзя.")], "unknown_role"),
        ([("user", " "), ("bot", "")], "empty_dialog"),
        ([], "empty_dialog"),
        ([("system", "Только правила.")], "empty_dialog"),
        ([("bot", "Здравствуйте!"), ("user", "Привет.")], "starts_without_user"),
        ([("user", ""), ("bot", "Ответ на ничто.")], "starts_without_user"),
        ([("user", "Есть кто?")], "no_answer"),
        ([("user", "Есть кто?"), ("bot", "\n")], "no_answer"),
    ],
)
def test_rejections(messages: list[tuple[str, str]], reason: str) -> None:
    result = dialog(*messages)
    assert isinstance(result, Rejection)
    assert result.reason == reason


_ROLES = st.sampled_from(["system", "user", "human", "bot", "assistant"])


@given(st.lists(st.tuples(_ROLES, st.text(max_size=12)), max_size=8))
def test_kept_dialogs_alternate_and_lose_no_text(messages: list[tuple[str, str]]) -> None:
    result = dialog(*messages)
    if isinstance(result, Rejection):
        return
    roles = [role for role, _ in result.messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2)
    assert all(content for _, content in result.messages)
    again = dialog(*result.messages)
    assert again == Dialog(result.messages)
