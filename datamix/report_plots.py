"""The plots of a run's report, as HTML fragments (plotly; its script is embedded once, in the first plot)."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from plotly.io import to_html

from schemas.shard import read_index

__all__ = ["plots"]

# Okabe and Ito's palette: distinct with every common form of colour blindness
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#999999")
HEIGHT_PIXELS = 340
# A curve of a long training is drawn through at most this many points
CURVE_POINTS = 2000
FEW_POINTS = 20


def plots(run: Path, stats: dict[str, Any]) -> list[tuple[str, str]]:
    """(title, HTML) of each plot that the run's finished steps allow."""
    drawn: list[tuple[str, str]] = []
    for title, figure in _figures(run, stats):
        figure.update_layout(
            template="plotly_white",
            height=HEIGHT_PIXELS,
            margin={"l": 60, "r": 20, "t": 20, "b": 50},
            colorway=list(PALETTE),
            legend={"orientation": "h", "y": 1.12},
            font={"family": "system-ui, sans-serif", "size": 13},
        )
        drawn.append(
            (
                title,
                to_html(
                    figure,
                    include_plotlyjs=not drawn,
                    full_html=False,
                    div_id=f"plot-{len(drawn)}",
                    config={"displaylogo": False, "responsive": True},
                ),
            )
        )
    return drawn


def _figures(run: Path, stats: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if any("share" in entry for entry in stats.get("domains", {}).values()):
        yield "Shares of tokens: wanted and reached", _shares(stats["domains"])
    if "documents" in stats:
        yield "Documents left after each step", _documents(stats["domains"])
        if any(stats["documents"]["dropped"].values()):
            yield "Drops by reason", _drops(stats["documents"]["dropped"])
    composed = [stage for stage in stats["stages"] if stage.get("shares")]
    if composed:
        yield "Trained tokens of each SFT stage by kind: wanted and reached", _composition(composed)
    if stats["stages"]:
        yield "Segment lengths by stage", _lengths(run)
    if "training" in stats:
        yield "Training loss", _loss(run)
    heldout = stats.get("evaluation", {}).get("heldout")
    if heldout:
        yield "Held-out loss and a unigram model's on the same tokens", _heldout(heldout)


def _shares(domains: dict[str, Any]) -> Any:
    names = [html.escape(name) for name in domains]
    figure = go.Figure()
    figure.add_bar(name="wanted", x=names, y=[entry["target_share"] for entry in domains.values()])
    figure.add_bar(name="reached", x=names, y=[entry["share"] for entry in domains.values()])
    return figure.update_yaxes(tickformat=".0%", title="share of tokens")


def _documents(domains: dict[str, Any]) -> Any:
    figure = go.Figure()
    for name, entry in domains.items():
        steps = entry["documents"]
        figure.add_bar(name=html.escape(name), x=list(steps), y=list(steps.values()))
    return figure.update_layout(barmode="stack").update_yaxes(title="documents")


def _drops(dropped: dict[str, dict[str, int]]) -> Any:
    pairs = sorted(
        ((count, f"{step}: {reason}") for step, reasons in dropped.items() for reason, count in reasons.items())
    )
    shown = pairs[-25:]
    figure = go.Figure(
        go.Bar(x=[count for count, _ in shown], y=[html.escape(name) for _, name in shown], orientation="h")
    )
    return figure.update_xaxes(title="documents").update_yaxes(automargin=True)


def _composition(stages: list[dict[str, Any]]) -> Any:
    kinds = sorted({kind for stage in stages for kind in stage["shares"]})
    figure = go.Figure()
    for kind in kinds:
        x, y = [], []
        for stage in stages:
            share = stage["shares"].get(kind, {})
            for what in ("target_share", "share"):
                x.append(f"{html.escape(stage['name'])}<br>{'wanted' if what == 'target_share' else 'reached'}")
                y.append(share.get(what) or 0.0)
        figure.add_bar(name=html.escape(kind), x=x, y=y)
    return figure.update_layout(barmode="stack").update_yaxes(tickformat=".0%", title="share of trained tokens")


def _lengths(run: Path) -> Any:
    """Histograms over powers of two (half steps); a shard's column of lengths is small beside its tokens."""
    folder = run / "shards"
    figure = go.Figure()
    for stage in read_index(folder).stages:
        counts: dict[int, int] = {}
        for file in stage.files:
            for length, times in _segment_lengths(folder / file.path):
                counts[length] = counts.get(length, 0) + times
        bins = sorted(counts)
        figure.add_bar(
            name=html.escape(stage.name), x=[f"{2 ** (b / 2):,.0f}" for b in bins], y=[counts[b] for b in bins]
        )
    order = sorted({x for trace in figure.data for x in trace.x}, key=lambda text: int(text.replace(",", "")))
    figure.update_xaxes(title="tokens (from)", categoryorder="array", categoryarray=order, type="category")
    return figure.update_yaxes(type="log", dtick=1, title="segments")


def _segment_lengths(path: Path) -> Iterator[tuple[int, int]]:
    """(floor(2 log2 length), how many) of one shard file."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            lengths = reader.get_batch(number).column("segment_lengths").flatten().to_numpy(zero_copy_only=False)
            bins, times = np.unique(np.floor(2 * np.log2(lengths)).astype(int), return_counts=True)
            yield from zip(bins.tolist(), times.tolist(), strict=True)


def _loss(run: Path) -> Any:
    from trainer.metrics import read_metrics

    lines = [line for line in read_metrics(run / "train" / "metrics.jsonl") if line["loss"] is not None]
    figure = go.Figure()
    for stage in dict.fromkeys(line["stage"] for line in lines):
        own = [line for line in lines if line["stage"] == stage]
        own = own[:: max(1, len(own) // CURVE_POINTS)]
        figure.add_scatter(
            name=html.escape(stage),
            x=[line["step"] for line in own],
            y=[line["loss"] for line in own],
            mode="lines" if len(own) > FEW_POINTS else "lines+markers",  # a line through one point is invisible
        )
    return figure.update_xaxes(title="step").update_yaxes(title="loss, nats a trained token")


def _heldout(heldout: dict[str, Any]) -> Any:
    figure = go.Figure()
    for key, name in (("unigram_loss", "unigram"), ("pretrain_loss", "after pretraining"), ("loss", "after SFT")):
        losses = [domain[key] for domain in heldout.values()]
        if any(loss is not None for loss in losses):
            figure.add_bar(name=name, x=[html.escape(domain) for domain in heldout], y=losses)
    return figure.update_yaxes(title="loss, nats a token")
