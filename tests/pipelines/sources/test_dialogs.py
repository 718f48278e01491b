"""Dialog layouts: each one recognised, none guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.sources.dialogs import read_dialogs, to_messages
from pipelines.sources.landing import SourceError
from pipelines.sources.records import BadRecord

PAIR = [("user", "Вопрос?"), ("assistant", "Ответ.")]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"messages": [{"role": "user", "content": "А"}, {"role": "bot", "content": "Б"}]},
            [("user", "А"), ("bot", "Б")],
        ),
        ({"messages": {"role": ["user"], "content": ["А"]}}, [("user", "А")]),
        ({"conversation": [{"role": "system", "content": "С"}]}, [("system", "С")]),
        ({"conversations": [{"from": "human", "value": "А"}]}, [("human", "А")]),
        ({"question": "Вопрос?", "answer": "Ответ."}, PAIR),
        ({"instruction": "Вопрос?", "input": "", "output": "Ответ."}, PAIR),
        (
            {"instruction": "Сложи", "input": "2 и 2", "output": "4"},
            [("user", "Сложи\n2 и 2"), ("assistant", "4")],
        ),
        ({"prompt": "Вопрос?", "completion": "Ответ."}, PAIR),
        ({"prompt": "Вопрос?", "response": "Ответ."}, PAIR),
        ({"sample": ["Вопрос?", "Ответ."], "score": 1}, PAIR),
        ({"dialogue": ["Вопрос?", "Ответ.", "Ещё?"]}, [*PAIR, ("user", "Ещё?")]),
    ],
)
def test_layouts(record: dict, expected: list[tuple[str, str]]) -> None:
    messages = to_messages(record, "here")
    assert [(m["role"], m["content"]) for m in messages] == expected


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"messages": [{"role": "user", "content": None}]}, "turn_without_text"),
        ({"messages": [{"content": "А"}]}, "malformed_dialog"),
        ({"messages": "А"}, "malformed_dialog"),
        ({"messages": {"role": ["user"], "content": []}}, "malformed_dialog"),
        ({"question": "А?", "answer": None}, "turn_without_text"),
        ({"sample": ["А", 5]}, "malformed_dialog"),
    ],
)
def test_unusable_records_have_a_reason(record: dict, reason: str) -> None:
    result = to_messages(record, "here")
    assert isinstance(result, BadRecord)
    assert result.reason == reason


def test_unknown_layout_names_the_columns_and_the_known_layouts() -> None:
    with pytest.raises(SourceError, match=r"(?s)here.*columns title, body.*messages"):
        to_messages({"title": "А", "body": "Б"}, "here")


def test_plain_layout(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(
        "\ufeff- Привет!\n- Здравствуй.\nКак дела?\n\n— Раз\r\n– Два\r\n\n"
        "без тире\n- Нет\n\n-\n- Да\n",
        encoding="utf-8",
    )
    records = list(read_dialogs(path))
    assert records[0] == {"dialog": ["Привет!", "Здравствуй.\nКак дела?"]}
    assert records[1] == {"dialog": ["Раз", "Два"]}
    assert isinstance(records[2], BadRecord) and records[2].reason == "no_turn_mark"
    assert records[3] == {"dialog": ["", "Да"]}
