"""``samovar``: materialize, status, stages, sql, generate, summary, bench, setup, dev.

Imports of heavy packages (dagster, torch, duckdb) wait until a command needs them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pipelines.config import ConfigError
from pipelines.config.load import OVERRIDES_VARIABLE, PROFILE_VARIABLE
from pipelines.datasets import DatasetError
from pipelines.engine import DatasetLocked
from pipelines.sources.landing import SourceError
from pipelines.workspace import Workspace

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Brew a small Russian language model from raw text, stage by stage.",
)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

Profile = Annotated[
    str | None,
    typer.Option("--profile", "-p", help="Profile of dagster_project.toml.", show_default=False),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one setting: key.in.the.file=value. Repeatable."),
]


@app.command()
def materialize(
    selection: Annotated[
        str | None,
        typer.Argument(
            help="Assets in Dagster's syntax: documents/web, shards/chat+, +evaluation/bpc, "
            "group:chat. Default: all."
        ),
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only what is stale or missing, layer by layer.")
    ] = False,
    profile: Profile = None,
    overrides: Overrides = None,
) -> None:
    """Build assets. What is there already, chunk by chunk, isn't computed again."""
    with _explained():
        workspace = _workspace(profile, overrides)
        from cli.materialize import run

        raise typer.Exit(run(workspace, selection, stale, console))


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    profile: Profile = None,
    overrides: Overrides = None,
) -> None:
    """Which assets are fresh, stale or missing, and why."""
    with _explained():
        workspace = _workspace(profile, overrides)
        from cli.status import collect, show

        statuses = collect(workspace)
        if as_json:
            _print_json({"profile": workspace.project.profile, **statuses})
        else:
            show(statuses, console)


@app.command()
def stages(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    profile: Profile = None,
) -> None:
    """What each stage holds and what its latest build took: rows, tokens, seconds, peak memory."""
    with _explained():
        workspace = _workspace(profile, None)
        from cli.stages import collect, show

        if as_json:
            _print_json(collect(workspace))
        else:
            show(collect(workspace), console)


@app.command()
def sql(
    query: Annotated[
        str,
        typer.Argument(
            help="One statement over raw_documents, documents, measurements, drops, duplicates, "
            "dialogs, shards, training_steps, bpc, samples."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Rows as JSON objects.")] = False,
    limit: Annotated[int, typer.Option(help="Rows shown in the table.")] = 50,
    profile: Profile = None,
) -> None:
    """Ask the data: DuckDB over everything that was built."""
    with _explained():
        workspace = _workspace(profile, None)
        import duckdb

        from cli.tables import records, show_result
        from data_quality.views import connect

        try:
            cursor = connect(workspace).execute(query)
            if as_json:
                _print_json(records(cursor))
            else:
                show_result(cursor, limit, console)
        except duckdb.Error as error:
            raise UsageError(str(error)) from error


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="What to say to the model.")],
    checkpoint: Annotated[str, typer.Option(help="sft answers, pretrain goes on.")] = "sft",
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.8,
    top_k: int = 50,
    top_p: float = 0.95,
    repetition_penalty: float = 1.1,
    max_new_tokens: int = 128,
    seed: int = 0,
    device: str = "cpu",
    profile: Profile = None,
) -> None:
    """One answer of the SFT checkpoint, or a continuation by the pretrained one."""
    with _explained():
        workspace = _workspace(profile, None)
        if checkpoint not in ("sft", "pretrain"):
            raise UsageError(f"--checkpoint {checkpoint!r}: there are sft and pretrain")
        dataset = workspace.dataset(f"checkpoints/{checkpoint}")
        (chunk,) = dataset.chunks()
        from model.sampling import SamplingOptions
        from serving.generation import TextGenerator

        options = SamplingOptions(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            max_new_tokens=max_new_tokens,
            seed=seed,
        )
        generator = TextGenerator.load(
            dataset.path(chunk, "model.safetensors"), dataset.path(chunk, "tokenizer.json"), device
        )
        if checkpoint == "sft":
            written = generator.answer([("user", prompt)], options).text
        else:
            written = prompt + generator.continue_text(prompt, options).text
        console.print(written, markup=False, soft_wrap=True)


@app.command()
def summary(profile: Profile = None) -> None:
    """What came out: bits per character, one dialog, and where to look next."""
    with _explained():
        workspace = _workspace(profile, None)
        from cli.summary import show

        show(workspace, console)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="filters.")],
    data: Annotated[Path, typer.Option(help="A file or folder of texts to measure on.")] = Path(
        "sample"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    profile: Profile = None,
) -> None:
    """Speed against a peer in the same run."""
    with _explained():
        workspace = _workspace(profile, None)
        if name != "filters":
            raise UsageError(f"no benchmark is called {name!r}; there is: filters")
        from benchmarks.filters import run

        try:
            figures = run(workspace.project, data)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if as_json:
            _print_json(figures)
        else:
            for key, value in figures.items():
                console.print(f"{key:<20} {value:,}")


@app.command()
def setup(profile: Profile = None) -> None:
    """Prepare Dagster's home in the data root, and .env, so that `dagster dev` uses it."""
    with _explained():
        workspace = _workspace(profile, None)
        from assets.instance import write_env_file

        path = write_env_file(workspace)
        console.print(f"{path}: profile {workspace.project.profile}")


@app.command()
def dev(
    profile: Profile = None,
    host: Annotated[str, typer.Option(help="The loopback address unless told.")] = "127.0.0.1",
    port: int = 3000,
) -> None:
    """The Dagster UI of a profile."""
    with _explained():
        workspace = _workspace(profile, None)
        from assets.instance import write_env_file

        write_env_file(workspace)
        os.chdir(workspace.base)
        command = Path(sys.executable).with_name("dagster")
        os.execv(command, [str(command), "dev", "--host", host, "--port", str(port)])


class UsageError(ValueError):
    """What was asked for can't be done; the message is for the user."""


def _workspace(profile: str | None, overrides: list[str] | None) -> Workspace:
    """The workspace, and the same choice in the environment for processes started from here."""
    workspace = Workspace.open(profile, overrides or ())
    os.environ[PROFILE_VARIABLE] = workspace.project.profile
    if overrides:
        inherited = os.environ.get(OVERRIDES_VARIABLE, "")
        os.environ[OVERRIDES_VARIABLE] = "\n".join(filter(None, [inherited, *overrides]))
    return workspace


@contextmanager
def _explained() -> Iterator[None]:
    """Errors that a user can do something about, as a sentence instead of a traceback."""
    try:
        yield
    except (ConfigError, SourceError, DatasetError, DatasetLocked, UsageError) as error:
        errors.print(f"[red]error:[/red] {_escaped(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        errors.print("interrupted; the next run goes on from here")
        raise typer.Exit(130) from error


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_json(value: Any) -> None:
    # Plain print: rich would wrap long lines.
    print(json.dumps(value, ensure_ascii=False, indent=1, default=str))


if __name__ == "__main__":
    app()
