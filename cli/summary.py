"""``samovar summary``: bits per character, one dialog, where to look next."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from data_quality.views import connect
from pipelines.workspace import Workspace


def show(workspace: Workspace, console: Console) -> None:
    connection = connect(workspace)
    bpc = connection.sql(
        'SELECT model, "group", bits_per_character, answer_bits_per_character, characters '
        "FROM bpc ORDER BY list_position(['pretrain', 'sft'], model) NULLS LAST, model, "
        "list_position(['web', 'articles', 'chat'], \"group\")"
    ).fetchall()
    if not bpc:
        console.print("No evaluation yet: run `samovar materialize --stale`.")
        return
    groups = list(dict.fromkeys(row[1] for row in bpc))
    table = Table(title="Bits per character on held-out text", title_justify="left", box=None)
    table.add_column("")
    for group in groups:
        table.add_column(group, justify="right")
    for model in dict.fromkeys(row[0] for row in bpc):
        values = {row[1]: row[2] for row in bpc if row[0] == model}
        cells = [f"{values[group]:.3f}" if group in values else "" for group in groups]
        table.add_row(model, *cells)
    characters = {row[1]: row[4] for row in bpc}
    table.add_row("characters", *(f"{characters[group]:,}" for group in groups), style="dim")
    console.print(table)
    answers = [row for row in bpc if row[3] is not None]
    for model, group, _, value, _ in answers:
        console.print(f"{model}, answers of {group} alone: {value:.3f}", style="dim")
    samples = connection.sql(
        "SELECT prompt, text FROM samples WHERE kind = 'answer' LIMIT 1"
    ).fetchall()
    for prompt, text in samples:
        console.print(f"\n[bold]user:[/bold] {escape(prompt)}", soft_wrap=True)
        console.print(f"[bold]model:[/bold] {escape(text)}", soft_wrap=True)
    profile = workspace.project.profile
    report = workspace.dataset("data_quality/report")
    console.print("\nWhere to look next", style="bold")
    lines = [
        (f"samovar dev --profile {profile}", "the graph, every asset's figures and plots"),
        ("samovar status", "what is fresh, what is stale, and why"),
        (
            'samovar sql "SELECT stage, reason, count(*) FROM drops GROUP BY ALL ORDER BY ALL"',
            "what was dropped",
        ),
        ('samovar generate "Привет! Как дела?"', "talk to the model"),
    ]
    for command, what in lines:
        console.print(f"  {escape(command)}  [dim]{what}[/dim]", soft_wrap=True)
    if (manifest := report.find_manifest()) is not None:
        page = report.path(manifest.chunks[0], "report.html")
        console.print(f"  {escape(str(page))}  [dim]the report page[/dim]", soft_wrap=True)
