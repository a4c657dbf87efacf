"""What `datamix stats` prints of trajectories: a row a count, a row a family."""

from __future__ import annotations

from rich.console import Console

from datamix.stats_view import _counted, _trajectories


def test_counts_by_name_are_a_row_each() -> None:
    assert _counted("pool", {"tried": 3, "left_out": {"dull": 2}, "files": ["a", "b"]}) == [
        ("pool: tried", 3),
        ("pool: left_out: dull", 2),
        ("pool: files", "2 entries"),
    ]


def test_a_family_is_a_row_of_a_table_of_its_own() -> None:
    console = Console(record=True, width=100)
    families = {"office": {"tasks": 6, "solved": 5}, "repair": {"tasks": 1600, "solved": 16}}
    _trajectories({"synthesize": {"tasks": 1606, "by_family": families}}, console)
    lines = [line.replace("│", "|").split("|") for line in console.export_text().splitlines() if "│" in line]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines]
    assert cells == [["tasks", "1,606"], ["office", "6", "5"], ["repair", "1,600", "16"]]
