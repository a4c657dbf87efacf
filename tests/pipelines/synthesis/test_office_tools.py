"""The office's tools: what they give, how each fails, and that nothing gets out of the folder or out of hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.synthesis.environments.base import ToolResult
from pipelines.synthesis.environments.office import OfficeEnvironment
from pipelines.synthesis.environments.offices.database import OfficeDatabase
from pipelines.synthesis.environments.offices.documents import Appointment, make_calendar, make_mail, make_sheet
from pipelines.synthesis.environments.offices.folder import OfficeFolder
from pipelines.synthesis.environments.offices.tools import TOOLS
from pipelines.synthesis.environments.offices.world import Goal, Table, Want, World
from pipelines.synthesis.sandbox import WorkspaceError
from schemas.trajectory import ToolCall

EVENT = Appointment("u-1", "Stock count", datetime(2026, 3, 4, 9, 30), datetime(2026, 3, 4, 10), ("a@b.example",))
FILES = {
    "Area/note.md": b"# Note\nalpha\nbeta\n",
    "Area/hours.xlsx": make_sheet({"Hours": [["name", "W10", "W11"], ["Ada", 7, None], ["Bo", 3, 4]]}),
    "Area/team.ics": make_calendar("team", [EVENT]),
    "Area/mail.eml": make_mail({"From": "a@b.example", "Message-ID": "<1@b.example>", "Subject": "Hi"}, "Ask"),
    "Area/broken.xlsx": b"PK no",
}
TABLES = {"orders": Table("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT NOT NULL, amount REAL)",
                          ((1, "a", 1.5), (2, "b", 2.25), (3, "c", None)))}  # fmt: skip


@pytest.fixture
def office() -> Iterator[OfficeEnvironment]:
    """An environment on a small office of its own."""
    opened = OfficeEnvironment()
    goal = Goal("file", "", (Want("w", {("file", "Area/x.md"): b"x"}),), frozenset(), None)
    opened._world = World("", "", FILES, frozenset({"Area", "Drafts"}), TABLES, (goal,))
    opened._folder = OfficeFolder()
    opened._folder.fill(FILES, opened._world.folders)
    opened._database = OfficeDatabase(TABLES)
    opened.tools = TOOLS
    with opened:
        yield opened


def use(office: OfficeEnvironment, name: str, **arguments: Any) -> ToolResult:
    return office.invoke(ToolCall("c", name, json.dumps(arguments)))


def cell(place: str, value: Any, **other: Any) -> dict[str, Any]:
    return {"path": "Area/hours.xlsx", "sheet": "Hours", "cells": [{"cell": place, "value": value}], **other}


FAILING = [
    ("list_folder", {"path": "Nope"}, "not_found"),
    ("list_folder", {"path": "Area/note.md"}, "tool_error"),
    ("read_file", {"path": "note.md"}, "not_found"),
    ("read_file", {"path": "Area"}, "tool_error"),
    ("read_file", {"path": "Area/note.md", "first_line": 9}, "bad_arguments"),
    ("read_file", {"path": "Area/note.md", "first_line": 0}, "bad_arguments"),
    ("read_file", {"path": "Area/broken.xlsx"}, "tool_error"),
    ("read_file", {"path": "Area/no\nte.md"}, "tool_error"),
    ("read_file", {"path": "a" * 200}, "tool_error"),
    ("read_file", {"path": "\ud800"}, "malformed_arguments"),
    ("search_text", {"text": "a", "path": "Nope"}, "not_found"),
    ("search_text", {"text": ""}, "bad_arguments"),
    ("write_file", {"path": "Area/note.md", "content": "x"}, "tool_error"),
    ("write_file", {"path": "Area/note.md", "content": "# Note\nalpha\nbeta\n", "overwrite": True}, "no_change"),
    ("write_file", {"path": "Area/new.xlsx", "content": "x"}, "tool_error"),
    ("write_file", {"path": "Nope/new.md", "content": "x"}, "not_found"),
    ("write_file", {"path": "Area/new.md", "content": "x" * 1_100_000}, "tool_error"),
    ("write_file", {"path": "Area/new.md", "content": "\udc80"}, "malformed_arguments"),
    ("move_file", {"path": "Area/nope.md", "to": "Area/x.md"}, "not_found"),
    ("move_file", {"path": "Area/note.md", "to": "Area/mail.eml"}, "tool_error"),
    ("move_file", {"path": "Area/note.md", "to": "Area"}, "tool_error"),
    ("move_file", {"path": "Area/note.md", "to": "Nope/x.md"}, "not_found"),
    ("move_file", {"path": "Area/note.md", "to": "Area/./note.md"}, "no_change"),
    ("make_folder", {"path": "Area"}, "no_change"),
    ("make_folder", {"path": "Area/note.md/in"}, "tool_error"),
    ("delete_file", {"path": "Area"}, "tool_error"),
    ("delete_file", {"path": "."}, "tool_error"),
    ("delete_file", {"path": "Area/nope"}, "not_found"),
    ("edit_sheet", cell("A2", 5), "tool_error"),  # a number in a column of text
    ("edit_sheet", cell("B2", "seven"), "tool_error"),
    ("edit_sheet", cell("B1", "W9"), "tool_error"),
    ("edit_sheet", cell("B9", 1), "not_found"),
    ("edit_sheet", cell("D2", 1), "not_found"),
    ("edit_sheet", cell("B2", 7), "no_change"),
    ("edit_sheet", cell("C2", "=B2"), "tool_error"),
    ("edit_sheet", cell("C2", float("nan")), "tool_error"),
    ("edit_sheet", cell("C2", 1e300), "tool_error"),
    ("edit_sheet", cell("A4", "\x01"), "tool_error"),
    ("edit_sheet", cell("2B", 1), "bad_arguments"),
    ("edit_sheet", cell("B2", True), "bad_arguments"),
    ("edit_sheet", cell("B2", 1, sheet="Sheet1"), "not_found"),
    ("edit_sheet", cell("B2", 1, path="Area/note.md"), "tool_error"),
    ("move_event", {"path": "Area/team.ics", "uid": "u-9", "start": "2026-03-05 10:00"}, "not_found"),
    ("move_event", {"path": "Area/team.ics", "uid": "u-1", "start": "2026-02-30 10:00"}, "bad_arguments"),
    ("move_event", {"path": "Area/team.ics", "uid": "u-1", "start": "tomorrow"}, "bad_arguments"),
    ("move_event", {"path": "Area/team.ics", "uid": "u-1", "start": "2026-03-04 09:30"}, "no_change"),
    ("move_event", {"path": "Area/note.md", "uid": "u-1", "start": "2026-03-04 09:30"}, "tool_error"),
    ("draft_mail", {"to": "Ada", "subject": "s", "body": "b"}, "tool_error"),
    ("draft_mail", {"to": "a@b.example, c@d.example", "subject": "s", "body": "b"}, "tool_error"),
    ("draft_mail", {"to": "a@b.example", "subject": "s\nBcc: x@y.example", "body": "b"}, "tool_error"),
    ("draft_mail", {"to": "a@b.example", "subject": "s", "body": "b", "in_reply_to": "<2@b.example>"}, "not_found"),
    ("query_database", {"sql": "SELECT nope FROM orders"}, "tool_error"),
    ("query_database", {"sql": "UPDATE orders SET name = 'x' WHERE id = 1"}, "tool_error"),
    ("query_database", {"sql": "SELECT 1; SELECT 2"}, "tool_error"),
    ("update_database", {"sql": "UPDATE orders SET name = 'x'"}, "tool_error"),
    ("update_database", {"sql": "UPDATE orders SET name = 'x' WHERE id = 9"}, "no_change"),
    ("update_database", {"sql": "UPDATE orders SET name = NULL WHERE id = 1"}, "tool_error"),
    ("update_database", {"sql": "SELECT 1"}, "tool_error"),
    ("update_database", {"sql": " "}, "tool_error"),
    ("send_mail", {"to": "a@b.example"}, "unknown_tool"),
]


@pytest.mark.parametrize(("name", "arguments", "signal"), FAILING)
def test_each_way_to_fail_has_its_signal_and_changes_nothing(
    office: OfficeEnvironment, name: str, arguments: dict[str, Any], signal: str
) -> None:
    result = use(office, name, **arguments)
    assert (result.error, result.signal) == (True, signal), result.text
    assert result.text.startswith("Error: ")
    assert office._folder is not None
    assert str(office._folder.root) not in result.text
    assert office.verdict().touched == []
    assert office._folder.tree() == (FILES, {"Area", "Drafts"})


ESCAPES = [
    "../x.md",
    "Area/../../x.md",
    "/etc/passwd",
    "/tmp/x.md",
    "Area/link/x.md",
    "Area/link",
    "//etc/hosts",
    "x\0.md",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leaves_the_folder(office: OfficeEnvironment, path: str, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("secret")
    assert office._folder is not None
    (office._folder.root / "Area" / "link").symlink_to(tmp_path)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": path}),
        ("list_folder", {"path": path}),
        ("write_file", {"path": path, "content": "y", "overwrite": True}),
        ("move_file", {"path": "Area/note.md", "to": path}),
        ("move_file", {"path": path, "to": "Area/got.md"}),
        ("make_folder", {"path": path}),
        ("delete_file", {"path": path}),
        ("search_text", {"text": "secret", "path": path}),
    ]
    for name, arguments in calls:
        result = use(office, name, **arguments)
        assert result.error, (name, result.text)
        assert "secret" not in result.text
    assert (tmp_path / "x.md").read_text() == "secret"
    assert list(tmp_path.iterdir()) == [tmp_path / "x.md"]
    assert use(office, "search_text", text="secret").signal == "empty"


def test_tools_that_work_say_what_they_did(office: OfficeEnvironment) -> None:
    assert use(office, "list_folder").text == "Area/\nDrafts/"
    assert use(office, "list_folder", path="Drafts").signal == "empty"
    assert use(office, "read_file", path="Area/note.md", first_line=2).text == (
        "Area/note.md, lines 2 to 3 of 3\nalpha\nbeta"
    )
    assert use(office, "search_text", text="Ada").text == "Area/hours.xlsx:4: 2 | Ada | 7 |"
    assert use(office, "write_file", path="Area/new.csv", content="a,b\n1,2\n").text == "Area/new.csv written, 2 lines"
    assert use(office, "make_folder", path="Area/New/Deep").text == "folder Area/New/Deep made"
    assert use(office, "move_file", path="Area/new.csv", to="Area/New/Deep/new.csv").text == (
        "Area/new.csv is now Area/New/Deep/new.csv"
    )
    assert use(office, "edit_sheet", **cell("C2", 8)).text == "Area/hours.xlsx, Hours: C2 = 8"
    assert use(office, "edit_sheet", **cell("A4", "Cy")).error is False
    assert use(office, "read_file", path="Area/hours.xlsx").text.endswith(
        "2 | Ada | 7 | 8\n3 | Bo | 3 | 4\n4 | Cy |  | "
    )
    assert use(office, "move_event", path="Area/team.ics", uid="u-1", start="2026-03-05 11:00").text == (
        "Stock count is now 2026-03-05 11:00 to 11:30"
    )
    first = use(office, "draft_mail", to="a@b.example", subject="Re", body="x", in_reply_to="<1@b.example>")
    assert first.text == "Drafts/draft-1.eml saved"
    assert use(office, "draft_mail", to="Ada <a@b.example>", subject="Re", body="x").text == "Drafts/draft-2.eml saved"
    assert use(office, "delete_file", path="Drafts/draft-1.eml").text == "Drafts/draft-1.eml deleted"
    assert use(office, "query_database", sql="SELECT name, amount FROM orders").text == (
        "name | amount\na | 1.5\nb | 2.25\nc | NULL"
    )
    assert use(office, "query_database", sql="SELECT * FROM orders WHERE id = 9").signal == "empty"
    assert use(office, "update_database", sql="UPDATE orders SET amount = 3 WHERE id = 3").text == "1 row changed"
    touched = office.verdict().touched
    assert touched == [
        "cell Area/hours.xlsx Hours A4",
        "cell Area/hours.xlsx Hours C2",
        "event Area/team.ics u-1",
        "file Area/New/Deep/new.csv",
        "file Drafts/draft-2.eml",
        "folder Area/New",
        "folder Area/New/Deep",
        "row orders 3",
    ]


REFUSED_SQL = [
    "ATTACH DATABASE '/tmp/x.db' AS x",
    "PRAGMA table_info(orders)",
    "WITH x AS (SELECT 1) DELETE FROM orders WHERE id = 1",
    "SELECT random()",
    "SELECT CURRENT_TIMESTAMP",
    "SELECT date('now')",
    "SELECT load_extension('x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT replace(printf('%3000d', 1), ' ', '12345')",
    "SELECT " + ", ".join(["1"] * 100),
    "SELECT '" + "x" * 30_000 + "'",
    "SELECT \0",
    "SELECT '\ud800'",
    "SELEC",
    "",
]


@pytest.mark.parametrize("sql", REFUSED_SQL)
def test_sql_that_is_not_a_small_read_is_refused(sql: str) -> None:
    database = OfficeDatabase(TABLES)
    result = database.query(sql)
    assert (result.error, result.signal) == (True, "tool_error"), result.text
    assert database.rows() == {"orders": list(TABLES["orders"].rows)}


def test_sql_without_end_is_stopped_by_steps_and_undone() -> None:
    database = OfficeDatabase(TABLES)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
    assert database.query(f"{endless} SELECT count(*) FROM c").signal == "timeout"
    assert (
        database.update(f"INSERT INTO orders SELECT x + 10, 'y', 1 FROM ({endless} SELECT x FROM c)").signal
        == "timeout"
    )
    assert database.rows() == {"orders": list(TABLES["orders"].rows)}
    many = database.query("SELECT a.id FROM orders a, orders b, orders c, orders d, orders e")
    assert many.text.count("\n") == 101
    assert many.text.endswith("only the first 100 rows are shown")
    assert database.update("INSERT INTO sqlite_master VALUES (1, 2, 3, 4, 5)").error
    assert database.update("DROP TABLE orders").error
    assert database.update("INSERT INTO orders VALUES (4, CAST(x'ff' AS TEXT), 1)").error is False
    assert database.rows()["orders"][-1] == (4, "\ufffd", 1.0)


def test_the_folder_is_bounded_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.synthesis.environments.offices.folder.MAX_FILES", 3)
    folder = OfficeFolder()
    folder.fill({"a": b"1", "b": b"2"}, frozenset())
    folder.put("c", b"3")
    with pytest.raises(WorkspaceError, match="at most 3 files"):
        folder.put("d", b"4")
    folder.put("c", b"5")
    assert folder.bytes_of("c") == b"5"
    root = folder.root
    folder.close()
    assert not root.exists()
    assert not root.parent.exists()
