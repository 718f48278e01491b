"""The declarative file: every profile loads, and every mistake is explained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from model.config import ModelConfig, count_parameters
from pipelines.config import ConfigError, Project, expand, load_project

PROFILES = ("sample", "local", "main", "gpt2-small", "gpt2-medium", "gpt2-large", "modern")


@pytest.fixture
def project_file(make_project: Callable[[], Path]) -> Path:
    return make_project()


def load(file: Path, *overrides: str) -> Project:
    return load_project(None, overrides, file)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_loads(profile: str) -> None:
    project = load_project(profile)
    assert project.profile == profile
    assert project.groups == ["web", "articles", "chat"]
    assert project.steps("pretrain") > project.steps("sft") > 0


@pytest.mark.parametrize(
    ("profile", "parameters"),
    [
        ("sample", 1_311_872),
        ("main", 111_695_616),
        ("gpt2-small", 125_164_032),
        ("gpt2-medium", 355_788_800),
        ("gpt2-large", 776_547_840),
        ("modern", 316_670_976),
    ],
)
def test_presets_have_their_parameters(profile: str, parameters: int) -> None:
    preset = load_project(profile).preset
    assert count_parameters(ModelConfig.from_dict(preset.model_dump())) == parameters


def test_numbers_of_the_main_profile() -> None:
    project = load_project("main")
    assert (project.filters.min_chars, project.filters.max_chars) == (50, 5_000)
    assert (project.filters.min_letter_ratio, project.filters.max_special_ratio) == (0.4, 0.25)
    assert (project.filters.lang_conf_threshold, project.near_duplicates.simhash_threshold) == (
        *(0.6, 3),
    )
    pretrain = project.training.pretrain
    assert pretrain.micro_batch * pretrain.accumulation * project.preset.context_length == 36_864
    assert pretrain.mix == {"web": 0.68, "articles": 0.05, "chat": 0.27}
    assert project.training.sft.masked_loss and not pretrain.masked_loss


@pytest.mark.parametrize(
    ("override", "key", "value", "allowed"),
    [
        ("filters.min_char=3", "filters.min_char", "", "min_chars"),
        ("nonsense=1", "nonsense", "", "filters"),
        ("filters.min_chars=long", "filters.min_chars", "long", "integer"),
        ("filters.min_letter_ratio=true", "filters.min_letter_ratio", "True", "number"),
        ("filters.min_letter_ratio=1.5", "filters.min_letter_ratio", "1.5", "1"),
        ("tokenizer.vocab_size=65537", "tokenizer.vocab_size", "65537", "65536"),
        ("tokenizer.mix={web=0.5, chat=0.4}", "tokenizer.mix", "0.9", "sum to 1"),
        ("training.sft.mix={chat=0.95, web=0.1}", "training.sft.mix", "1.05", "sum to 1"),
        ("model.preset=huge", "model.preset", "huge", "nano"),
        ("tokenizer.vocab_size=700", "tokenizer.vocab_size", "700", "640"),
        ('use_sources=["web", "wbe"]', "use_sources", "wbe", "articles"),
        ("shards.max_tokens=2000000", "shards.max_tokens", "2000000", "1000000"),
        ("sources.web.kind=dialogs", "sources.web", "dialogs", "chat"),
        ("filters.max_chars=10", "filters", "10", "50"),
        ("presets.nano.n_embd=33", "presets.nano", "33", "n_head 2"),
        ("training.precision=fp8", "training.precision", "fp8", "bf16"),
    ],
)
def test_mistakes_name_key_value_and_what_is_allowed(
    project_file: Path, override: str, key: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(project_file, override)
    message = str(caught.value)
    for expected in (key, value, allowed):
        assert expected in message, message


def test_all_mistakes_at_once(project_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)2 problem.*min_char:.*nonsense"):
        load(project_file, "filters.min_char=3", "nonsense=1")


def test_unknown_profile_lists_the_profiles(project_file: Path) -> None:
    with pytest.raises(ConfigError, match="'big'.*small, other"):
        load_project("big", (), project_file)


def test_order_of_overrides(project_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMOVAR_SET", "filters.min_chars=60\nfilters.max_chars=600")
    project = load(project_file, "filters.min_chars=70")
    assert (project.filters.min_chars, project.filters.max_chars) == (70, 600)
    monkeypatch.setenv("SAMOVAR_PROFILE", "other")
    assert load(project_file).profile == "other"


def test_broken_toml_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dagster_project.toml"
    path.write_text("profile = ", encoding="utf-8")
    with pytest.raises(ConfigError, match="dagster_project.toml is no valid TOML"):
        load(path)


def test_variables_in_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTS", "/texts")
    assert expand("${TEXTS}/a", "k") == "/texts/a"
    assert expand("${TEXTS_X:-landing}/a", "k") == "landing/a"
    with pytest.raises(ConfigError, match="TEXTS_X"):
        expand("${TEXTS_X}/a", "sources.web.paths")
