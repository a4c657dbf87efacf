"""The errors that datamix raises on purpose.

    DatamixError              exit code 1: the work failed
    ├── InputError            a file or record that cannot be used
    ├── CheckError            a file on disk is not what its manifest says
    └── UsageError            exit code 2: the command or the recipe is wrong
        └── RecipeError       a field of a recipe

Every message names the place (file, line or row, field), the value received, what is allowed and
what to do next. Anything else that escapes is a defect of datamix.
"""

from __future__ import annotations

__all__ = ["CheckError", "DatamixError", "InputError", "RecipeError", "UsageError"]


class DatamixError(Exception):
    """Root of all deliberate errors. `exit_code` is what the command returns."""

    exit_code = 1


class InputError(DatamixError):
    """A file or record that cannot be used.

    `path` is the file, `line` the 1-based line (text) or row (tables), `field` the column or key.
    """

    def __init__(
        self, problem: str, *, path: str = "", line: int | None = None, field: str = "", todo: str = ""
    ) -> None:
        self.problem, self.path, self.line, self.field, self.todo = problem, path, line, field, todo
        place = path + (f":{line}" if line is not None else "")
        parts = [place] if place else []
        if field:
            parts.append(f"field '{field}'")
        message = ": ".join([*parts, problem])
        super().__init__(f"{message}. {todo}" if todo else message)


class CheckError(DatamixError):
    """A file on disk differs from what its manifest records."""


class UsageError(DatamixError):
    """The command line or the request is wrong; nothing was done."""

    exit_code = 2


class RecipeError(UsageError):
    """One or more fields of a recipe are wrong; the message lists them all."""
