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
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE.KEY=VALUE",
    help="Change one rule of the policy: --rule R5.action=drop, --rule R14.characters=50000. Repeatable.",
)
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
    file: str,
    target: str,
    out: str,
    policy: str | None,
    rules: tuple[str, ...],
    tokenizer: str | None,
    history: str,
    as_json: bool,
) -> None:
    """Write trajectories with their masks for a training framework.

    FILE is a trajectory file (Parquet). Targets: openai, axolotl, trl, llamafactory, swift, slime, tinker, verl,
    sharegpt, atif, megatron. What a target cannot say is printed and counted; a row that it cannot hold is left out
    and counted.
    """
    from filters.trajectory.configure import parse_rule_options
    from pipelines.synthesis.convert import convert_file

    changes = parse_rule_options(rules)
    report = convert_file(file, target, out, policy=policy, rules=changes, tokenizer=tokenizer, history=history)
    if as_json:
        emit_json({"file": file, "out": out, "policy": policy, "rules": changes, **report.to_dict()})
        return
    rows: list[tuple[str, int]] = [
        ("trajectories read", report.read),
        ("rows written", report.rows),
        ("trained turns", report.trained_turns),
        ("masked turns", report.masked_turns),
    ]
    if report.undecided:
        rows.append(("turns without a decision, trained if the model's own (see --policy)", report.undecided))
    if report.copies and policy is None:
        rows.append(("rows with the id of an earlier one, written too (--policy leaves them out)", report.copies))
    rows += [(f"left out: {reason}", count) for reason, count in report.left_out.most_common()]
    rows += [(f"loss: {loss}", count) for loss, count in report.losses.most_common()]
    rows += [(f"redacted: {kind}", count) for kind, count in report.redacted.most_common()]
    if report.cut_characters:
        rows.append(("characters cut from oversized observations (R14)", report.cut_characters))
    stdout_console().print(table(f"{out} for {target}", ("what", "count"), rows))
