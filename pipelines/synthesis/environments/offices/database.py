"""The office's database: sqlite in memory, with SQL of a model kept within limits.

A query may only read, an update only change rows of the task's tables, each one statement; functions are those of a
list (none that reads the clock or chance); work is bounded by steps of sqlite's machine (not time), results by rows,
texts and the whole database by size.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from pipelines.synthesis.environments.base import ToolResult
from pipelines.synthesis.environments.offices.world import Table

__all__ = ["OfficeDatabase"]

STEPS_A_TICK, MOST_TICKS = 1_000, 500  # half a million steps: some milliseconds, at most 40,000 rows to sort
SHOWN_ROWS, SHOWN_TEXT = 100, 300
MOST_PAGES = 2_000  # of 4 KiB
MOST_SQL, MOST_TEXT, MOST_COLUMNS = 20_000, 4_000, 64  # bytes, bytes; with the steps they bound the memory
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_FUNCTIONS = frozenset(
    {
        *("abs", "avg", "ceil", "ceiling", "coalesce", "count", "dense_rank", "first_value", "floor", "format", "glob"),
        *("group_concat", "ifnull", "iif", "instr", "lag", "last_value", "lead", "length", "like", "lower", "ltrim"),
        *("max", "min", "nullif", "printf", "rank", "replace", "round", "row_number", "rtrim", "sign", "substr"),
        *("substring", "sum", "total", "trim", "typeof", "upper"),
    }
)
_WHERE = re.compile(r"\bwhere\b", re.I)


class OfficeDatabase:
    """One task's tables. Raises nothing for what a model writes: failures are results."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._names = list(tables)
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute("PRAGMA temp_store = MEMORY")
        self._connection.execute(f"PRAGMA max_page_count = {MOST_PAGES}")
        for name, table in tables.items():
            self._connection.execute(table.ddl)
            if table.rows:
                marks = ", ".join("?" * len(table.rows[0]))
                self._connection.executemany(f"INSERT INTO {name} VALUES ({marks})", table.rows)  # noqa: S608 - own names
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_TEXT)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MOST_SQL)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MOST_COLUMNS)
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._ticks = 0
        self._refused = ""

    def close(self) -> None:
        """Free the memory."""
        self._connection.close()

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables, by key."""
        return {name: self._connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in self._names}  # noqa: S608

    def query(self, sql: str) -> ToolResult:
        """Run a SELECT; at most 100 rows are shown."""
        if not sql.lstrip().lower().startswith(("select", "with", "values")):
            return ToolResult(
                "Error: query_database takes one SELECT; update_database changes rows", True, "tool_error"
            )
        cursor, problem = self._run(sql, _READS)
        if cursor is None:
            return problem
        rows, columns, _ = cursor
        if not rows:
            return ToolResult("no rows", signal="empty")
        lines = [" | ".join(columns), *(" | ".join(map(_shown, row)) for row in rows[:SHOWN_ROWS])]
        if len(rows) > SHOWN_ROWS:
            lines.append(f"only the first {SHOWN_ROWS} rows are shown")
        return ToolResult("\n".join(lines))

    def update(self, sql: str) -> ToolResult:
        """Run one INSERT, UPDATE or DELETE; the last two need a WHERE and must match a row."""
        word = sql.split(None, 1)[0].lower() if sql.strip() else ""
        if word not in ("insert", "update", "delete"):
            return ToolResult("Error: update_database takes one INSERT, UPDATE or DELETE", True, "tool_error")
        if word != "insert" and not _WHERE.search(sql):
            return ToolResult(
                f"Error: {word.upper()} without WHERE would change every row; refused", True, "tool_error"
            )
        cursor, problem = self._run(sql, _READS | _WRITES)
        if cursor is None:
            return problem
        if cursor[2] == 0:
            return ToolResult("Error: no row matches the condition; nothing was changed", True, "no_change")
        return ToolResult(f"{cursor[2]} row{'s' if cursor[2] != 1 else ''} changed")

    def _run(
        self, sql: str, allowed: set[int]
    ) -> tuple[tuple[list[tuple[Any, ...]], list[str], int] | None, ToolResult]:
        """((rows, column names, rows changed), -) or (None, the failure)."""
        self._ticks, self._refused = 0, ""

        def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
            if action == sqlite3.SQLITE_FUNCTION:
                fine = (second or "").lower() in _FUNCTIONS
                self._refused = self._refused or ("" if fine else f"the function {second} is not available")
            else:
                fine = action in allowed and not (action in _WRITES and first not in self._names)
                self._refused = self._refused or ("" if fine else "this statement is not allowed here")
            return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

        def tick() -> int:
            self._ticks += 1
            return int(self._ticks > MOST_TICKS)

        self._connection.set_authorizer(authorize)
        self._connection.set_progress_handler(tick, STEPS_A_TICK)
        try:
            cursor = self._connection.execute(sql)
            rows = cursor.fetchmany(SHOWN_ROWS + 1) if cursor.description else []
            columns = [str(column[0]) for column in cursor.description or ()]
            changed = cursor.rowcount
            cursor.close()
            return (rows, columns, changed), ToolResult("")
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            if self._ticks > MOST_TICKS:
                return None, ToolResult("Error: stopped, the statement takes too much work", True, "timeout")
            text = str(error)
            if "one statement" in text:
                text = "give one statement at a time"
            return None, ToolResult(f"Error: {self._refused or text}", True, "tool_error")
        finally:
            self._connection.set_authorizer(None)
            self._connection.set_progress_handler(None, 0)


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return format(value, ".10g")
    if isinstance(value, bytes):
        return f"x'{value[: SHOWN_TEXT // 2].hex()}'"
    text = str(value)
    return text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 1] + "…"
