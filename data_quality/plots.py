"""Plots as SVG text: small, deterministic (no dates, no random ids), with the text as text."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_POINTS = 400
_COLOUR = "#b4532a"  # copper, as a samovar is
LENGTH_BINS = np.concatenate([[0], np.geomspace(10, 1e6, 51)])  # characters


def loss_curve(steps: Sequence[int], losses: Sequence[float], title: str = "") -> str:
    """Loss in nats a token over optimizer steps; long runs are thinned to some hundred points."""
    figure, axes = _figure(title, "step", "loss, nats a token")
    stride = max(1, len(steps) // _MAX_POINTS)
    axes.plot(np.asarray(steps)[::stride], np.asarray(losses)[::stride], color=_COLOUR, lw=1.2)
    return _svg(figure)


def length_histogram(counts: np.ndarray, title: str = "", marks: Sequence[float] = ()) -> str:
    """Documents by length: ``counts`` (51,) over LENGTH_BINS; ``marks`` are drawn as thresholds."""
    figure, axes = _figure(title, "characters", "documents")
    used = np.flatnonzero(counts)
    if len(used):
        first, last = used[0], used[-1] + 1
        axes.stairs(counts[first:last], LENGTH_BINS[first : last + 1], fill=True, color=_COLOUR)
        axes.set_xscale("symlog", linthresh=10)
        _mark(axes, marks)
    return _svg(figure)


def share_histogram(counts: np.ndarray, title: str, marks: Sequence[float] = ()) -> str:
    """Documents by a value between 0 and 1: ``counts`` (n,) over n equal bins."""
    figure, axes = _figure(title, "", "documents")
    axes.stairs(counts, np.linspace(0, 1, len(counts) + 1), fill=True, color=_COLOUR)
    axes.set_yscale("symlog", linthresh=10)
    _mark(axes, marks)
    return _svg(figure)


def bars(values: Mapping[str, float], title: str, unit: str = "") -> str:
    """Horizontal bars, the first on top, each with its value."""
    figure, axes = _figure(title, unit, "", height=0.9 + 0.28 * max(1, len(values)))
    names = list(values)
    drawn = axes.barh(names, [values[name] for name in names], color=_COLOUR)
    axes.bar_label(drawn, fmt="{:,.6g}", padding=3, fontsize=8)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    return _svg(figure)


def as_markdown(svg: str, alt: str) -> str:
    """An SVG as a markdown image with its content inside: Dagster's UI shows it."""
    return f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _mark(axes: Axes, marks: Sequence[float]) -> None:
    for mark in marks:
        axes.axvline(mark, color="black", lw=0.8, ls="--")


def _figure(title: str, xlabel: str, ylabel: str, height: float = 2.6) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(xlabel, fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Figure) -> str:
    import matplotlib

    buffer = io.StringIO()
    # A fixed salt makes the ids in the file, and so its bytes, a function of what is drawn.
    with matplotlib.rc_context({"svg.hashsalt": "samovar", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
