"""`datamix export-shards`: the packed rows in the files of another trainer."""

from __future__ import annotations

from pathlib import Path

import click

from datamix.output import emit_json, stdout_console, table
from schemas.errors import UsageError
from schemas.shard import INDEX_NAME

__all__ = ["command"]


@click.command()
@click.argument("folder", metavar="RUN|SHARDS")
@click.option("--to", required=True, metavar="FORMAT", help="trl, megatron or olmo-core.")
@click.option("--out", required=True, metavar="DIR", help="Folder to write, one file for each shard file.")
@click.option("--stage", metavar="NAME", help="Only this stage (sft-0-65536, …).")
@click.option("--tokenizer", metavar="FOLDER", help="The shards' tokenizer, where it is not beside them.")
@click.option("--json", "as_json", is_flag=True, help="Print files and counts as JSON.")
def command(folder: str, to: str, out: str, stage: str | None, tokenizer: str | None, as_json: bool) -> None:
    """Write packed shards for another trainer: same rows, masks and boundaries.

    The argument is a run or its shards folder. trl: Parquet with input_ids, labels, position_ids and seq_lengths.
    megatron: packed Parquet with input_ids, rolled loss_mask and seq_start_id. olmo-core: raw arrays of ids and label
    masks. Nothing is packed again or cut.
    """
    from pipelines.curriculum.export import export_shards
    from pipelines.synthesis.tokens import load_tokenizer

    given = Path(folder)
    shards = given if (given / INDEX_NAME).is_file() else given / "shards"
    target = Path(out)
    if target.is_dir() and any(target.iterdir()):
        raise UsageError(f"--out {out}: is not empty. Give a new folder")
    loaded = load_tokenizer(tokenizer or shards.resolve().parent / "tokenizer")
    report = export_shards(shards, target, to, loaded, stage=stage)
    if as_json:
        emit_json({"shards": str(shards), "to": to, "out": out, **report})
        return
    rows = [(name.replace("_", " "), report[name]) for name in ("rows", "tokens", "trained_tokens")]
    stdout_console().print(table(f"{out} for {to}", ("what", "count"), [("files", len(report["files"])), *rows]))
