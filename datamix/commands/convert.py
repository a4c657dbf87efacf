"""`datamix convert`: trajectories to what a training framework reads, with the losses stated."""

from __future__ import annotations

import click

from datamix.output import emit_json, stdout_console, table

__all__ = ["command"]


@click.command()
@click.argument("file")
@click.option("--to", "target", required=True, metavar="TARGET", help="openai, axolotl, trl, llamafactory, swift, …")
@click.option("--out", required=True, metavar="FILE", help="File to write (jsonl; parquet for trl, megatron, verl).")
@click.option("--policy", metavar="NAME", help="Decide the masks with this policy first (nanbeige, outcome-only, …).")
@click.option("--tokenizer", metavar="FOLDER", help="Hugging Face tokenizer folder, for trl and megatron.")
@click.option(
    "--history",
    type=click.Choice(["refuse", "split"]),
    default="refuse",
    show_default=True,
    help="trl and megatron: what to do where the chat template rewrites earlier turns.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def command(
    file: str, target: str, out: str, policy: str | None, tokenizer: str | None, history: str, as_json: bool
) -> None:
    """Write trajectories with their masks for a training framework.

    FILE is a trajectory file (Parquet). Targets: openai, axolotl, trl, llamafactory, swift, slime, tinker, verl,
    sharegpt, atif, megatron. What a target cannot say is printed and counted; a row that it cannot hold is left out
    and counted.
    """
    from pipelines.synthesis.convert import convert_file

    report = convert_file(file, target, out, policy=policy, tokenizer=tokenizer, history=history)
    if as_json:
        emit_json({"file": file, "out": out, "policy": policy, **report.to_dict()})
        return
    rows: list[tuple[str, int]] = [
        ("trajectories read", report.read),
        ("rows written", report.rows),
        ("trained turns", report.trained_turns),
        ("masked turns", report.masked_turns),
    ]
    if report.undecided:
        rows.append(("turns without a decision, trained if the model's own (see --policy)", report.undecided))
    rows += [(f"left out: {reason}", count) for reason, count in report.left_out.most_common()]
    rows += [(f"loss: {loss}", count) for loss, count in report.losses.most_common()]
    stdout_console().print(table(f"{out} for {target}", ("what", "count"), rows))
