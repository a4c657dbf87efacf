"""`datamix export`: write a checkpoint in another program's form, say where it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from datamix.checkpoints import find_checkpoint
from datamix.output import emit_json

__all__ = ["command"]


@click.command()
@click.argument("checkpoint", metavar="CHECKPOINT|RUN")
@click.option("--to", "form", type=click.Choice(["hf", "gguf", "llama"]), required=True, help="What to write.")
@click.option("--out", required=True, metavar="PATH", help="A new folder (hf, llama) or a .gguf file.")
@click.option(
    "--type", "kind", default="bf16", show_default=True, help="f32, f16 or bf16 of the weights; q8_0 in GGUF only."
)
@click.option("--json", "as_json", is_flag=True, help="Print which files were written, as JSON.")
def command(checkpoint: str, form: str, out: str, kind: str, as_json: bool) -> None:
    """Write a checkpoint for Hugging Face or llama.cpp.

    hf: a folder with config.json (model_type nanbeige), safetensors, tokenizer and chat template. gguf: one file for
    llama.cpp (needs the extra `gguf`); serve it with llama-server -m M.gguf --jinja. llama: a plain Llama folder with
    the layers repeated, which equals the model only where skip_loop_final_norm is true. A RUN means its final
    checkpoint.
    """
    source = find_checkpoint(checkpoint)
    if form == "gguf":
        from trainer.gguf_file import export_gguf

        written = [export_gguf(source, out, kind, partial(click.echo, err=True))]
    else:
        from trainer.export import export_hf, export_llama

        written = (export_hf if form == "hf" else export_llama)(source, out, kind)
    sizes = {str(path): Path(path).stat().st_size for path in written}
    if as_json:
        emit_json({"form": form, "type": kind, "checkpoint": str(source), "files": sizes})
        return
    for path, size in sizes.items():
        click.echo(f"{path}: {size:,} bytes")
