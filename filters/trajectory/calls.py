"""Reading one tool call: decoded arguments, a key for "the same call", its targets, and whether it only looks.

Calls come as JSON text that a model wrote, so nothing here trusts it: what cannot be decoded gets a problem
name instead of an exception.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from filters.trajectory.shell import simple_commands, word_set
from schemas.files import canonical_json
from schemas.trajectory import ToolCall

__all__ = [
    "Decoded",
    "call_key",
    "call_targets",
    "command_text",
    "decode_arguments",
    "edit_strings",
    "is_check",
    "is_edit",
    "is_edit_tool",
    "is_read_only",
    "is_reproduction",
    "is_terminal",
    "is_test_run",
]

_SPACE = re.compile(r"\s+")
_COMMAND_KEYS = ("command", "cmd", "code", "script", "action", "query", "sql", "input", "keystrokes", "commands")
_PATH_KEYS = ("path", "file_path", "filepath", "file", "filename", "file_name", "notebook_path", "target_file", "uri")
_OLD_KEYS = ("old_str", "old_string", "old", "oldText", "search", "old_text", "find")
_NEW_KEYS = ("new_str", "new_string", "new", "newText", "replace", "new_text", "replacement", "content", "file_text")
_VERBATIM_KEYS = frozenset({*_OLD_KEYS, *_NEW_KEYS, "code", "script", "text", "insert_text", "patch", "diff"})
_PATH_TOKEN = re.compile(r"[\w.~-]*/[\w./~+-]*\w|\b[\w-]+\.[A-Za-z]\w{0,7}\b")

_LOOKING = word_set(
    "read view cat open show list ls dir find search grep glob get fetch look query describe stat head tail think "
    "scroll goto lookup retrieve inspect check browse count help calculate calculator"
)
_EDITING = word_set(
    "edit write create insert replace str_replace str_replace_editor str_replace_based_edit_tool patch apply_patch "
    "multiedit multi_edit edit_file write_file create_file notebookedit update modify"
)
_TERMINAL = word_set(
    "submit finish done complete task_complete end stop final_answer answer exit terminate attempt_completion "
    "give_up give_answer transfer_to_human_agents"
)
_TERMINAL_SQUEEZED = frozenset(name.replace("_", "") for name in _TERMINAL)
_ENDING_WORDS = word_set("submit finish complete done terminate exit")
_FILLER_WORDS = word_set("mark task final the run result solution patch work answer episode")
# Programs that leave files, processes and databases as they were (POSIX utilities, coreutils, git's queries).
_QUIET_PROGRAMS = word_set(
    "ls cat head tail grep egrep fgrep rg ag ack find fd wc sort uniq cut tr awk sed stat file du df pwd echo printf "
    "which whereis type command test [ [[ diff cmp comm tree less more env printenv date whoami id uname ps pgrep "
    "md5sum sha1sum sha256sum basename dirname realpath readlink nl od xxd strings jq column paste join seq expr true "
    "false cd pytest hostname uptime free groups man help history jobs lsof top"
)
_QUIET_GIT = word_set("status log diff show branch blame grep ls-files rev-parse describe remote reflog")
_WRITES_ANYWAY = re.compile(r"(?<![<>&\d=-])>>?(?!\s*(?:/dev/null|&\d))|\bsed\s+(?:-\w*\s+)*-\w*i|\s-delete\b|\btee\b")
_RUNS_OTHERS = re.compile(r"\s-(?:exec|execdir|ok)\s+(\S+)|\bxargs\s+(?:-\S+\s+)*([^\s-]\S*)")
_SQL_READS = re.compile(r"\s*(?:\(\s*)*(?:select|show|describe|desc|explain|with|pragma|values|use)\b", re.I)
_SQL_WRITES = re.compile(
    r"\s*(?:insert|update|delete|create|drop|alter|truncate|replace|merge|grant|begin|commit)\b", re.I
)
_TEST_COMMAND = re.compile(
    r"(?:(?:poetry|uv|pipenv|hatch|pdm|rye|conda) run |npx |bunx |timeout (?:-\S+ )*\S+ |coverage run (?:-\S+ )*"
    r"|xvfb-run )*"
    r"(?:(?:\S*/)?(?:pytest|py\.test|nosetests|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|runtests?(?:\.\w+)?)\b"
    r"|(?:\S*/)?python[\d.]* (?:-\S+ )*?-m (?:pytest|unittest|nose2?|doctest|tox)\b"
    r"|(?:(?:\S*/)?(?:python|node|ruby|bash|sh|perl|php)[\d.]* (?:-\S+ )*|\./|/)\S*?(?:\b(?:run)?tests?"
    r"|\btest_[\w-]+|\w_tests?)"
    r"\.(?:py|m?js|ts|sh|rb|pl|php)\b"
    r"|(?:npm|yarn|pnpm|bun|make|go|cargo|mvn|gradle|(?:\./)?gradlew|(?:\./)?mvnw|dotnet|mix|swift|bazel|rake"
    r"|bin/rails) "
    r"(?:run |-\S+ )*(?:[\w:-]*:)?(?:test|check)\b|python[\d.]* manage\.py test\b)"
)
_CHECK_COMMAND = re.compile(
    r"(?:(?:poetry|uv|pipenv|hatch|pdm|rye) run |npx |bunx )*(?:\S*/)?"
    r"(?:python[\d.]* -m )?(?:(?:tsc|tsgo|mypy|pyright|flake8|pylint|eslint|shellcheck|phpstan|rubocop"
    r"|golangci-lint|pyflakes)\b"
    r"|ruff (?:check )?|biome (?:check|lint)|(?:black|prettier|isort) (?:\S+ )*--?(?:check|c)\b|cargo (?:check"
    r"|clippy)|go vet"
    r"|(?:npm|yarn|pnpm|bun) (?:run )?(?:check|lint|typecheck|type-check|tsc)(?:$|[\s:]))"
)
_REPRODUCTION = re.compile(
    r"\S*(?:repro|reproduce|reproduction|demonstrate|issue|bug)\w*\.(?:py|js|ts|rb|sh|php|go|rs|java)\b", re.I
)
_TEST_TOOL = re.compile(r"(?:^|_)(?:run_?)?(?:unit_?)?tests?(?:_|$)", re.I)
_KEY_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Decoded:
    """`value` is the arguments object; `problem` is "" or why there is none: not_json, not_an_object, encoded_twice.

    encoded_twice comes with a value: a JSON string that holds the object, which readers accept.
    """

    value: dict[str, Any]
    problem: str = ""


@lru_cache(maxsize=512)
def decode_arguments(text: str) -> Decoded:
    """Decode a call's arguments; empty text means no arguments. Never raises. The value is shared."""
    if not text.strip():
        return Decoded({})
    try:
        value = orjson.loads(text)
    except ValueError:
        return Decoded({}, "not_json")
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except ValueError:
            return Decoded({}, "not_json")
        return Decoded(value, "encoded_twice") if isinstance(value, dict) else Decoded({}, "not_an_object")
    return Decoded(value) if isinstance(value, dict) else Decoded({}, "not_an_object")


def _collapse(value: Any) -> Any:
    """Strings with runs of blanks made one space and trimmed, at any depth; text to find, to put in or to run as a
    program stays, for there blanks matter."""
    if isinstance(value, str):
        return _SPACE.sub(" ", value).strip()
    if isinstance(value, list):
        return [_collapse(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key in _VERBATIM_KEYS else _collapse(item) for key, item in value.items()}
    return value


def call_key(call: ToolCall) -> str:
    """Equal for calls that ask the same thing: tool name and arguments, key order and blanks aside."""
    decoded = decode_arguments(call.arguments)
    body = _collapse(call.arguments) if decoded.problem == "not_json" else canonical_json(_collapse(decoded.value))
    return f"{call.name}\0{body}"


def command_text(call: ToolCall) -> str:
    """The shell, SQL or Python text that the call runs, or ""."""
    return _command(call.arguments)


# Several detectors ask the same of one call: answers are kept for as many calls as a long run has.
@lru_cache(maxsize=512)
def _command(arguments: str) -> str:
    decoded = decode_arguments(arguments)
    if decoded.problem == "not_json":
        return arguments
    for key in _COMMAND_KEYS:
        value = decoded.value.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return " ".join(value)
    return ""


def call_targets(call: ToolCall) -> frozenset[str]:
    """What the call is about: paths in its arguments and short argument values, for matching a fix to a mistake."""
    decoded = decode_arguments(call.arguments)
    if decoded.problem == "not_json":
        return frozenset(_PATH_TOKEN.findall(call.arguments[:_KEY_LIMIT]))
    found: set[str] = set()
    for key in _PATH_KEYS:
        value = decoded.value.get(key)
        if isinstance(value, str) and value:
            found.update((value, value.rsplit("/", 1)[-1]))
    for key, value in decoded.value.items():
        if key in _COMMAND_KEYS and isinstance(value, str):
            found.update(_PATH_TOKEN.findall(value[:_KEY_LIMIT]))
        elif isinstance(value, str) and 3 <= len(value) <= 80:
            found.add(value)
    return frozenset(found)


def edit_strings(call: ToolCall) -> tuple[str, str, str]:
    """(path, text replaced, text put in its place) of an edit; "" for what it does not have."""
    value = decode_arguments(call.arguments).value

    def first(keys: tuple[str, ...]) -> str:
        return next((value[key] for key in keys if isinstance(value.get(key), str)), "")

    return first(_PATH_KEYS), first(_OLD_KEYS), first(_NEW_KEYS)


@lru_cache(maxsize=4096)
def _name_words(name: str) -> frozenset[str]:
    """A tool name in words: read_file, readFile and mcp__fs__read give {read, file}, …"""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return frozenset(word for word in re.split(r"[^a-z0-9]+", spaced) if word) | {name.lower()}


def is_edit_tool(name: str) -> bool:
    """Whether a tool's name says that it changes text."""
    return bool(_name_words(name) & _EDITING)


def is_edit(call: ToolCall) -> bool:
    """Whether the call changes a file by text: an editing tool with a path or a text to put in (not `view`)."""
    if not is_edit_tool(call.name):
        return False
    decoded = decode_arguments(call.arguments)
    if decoded.problem:
        return True
    keys = decoded.value.keys()
    return decoded.value.get("command") != "view" and not keys.isdisjoint((*_PATH_KEYS, *_OLD_KEYS, *_NEW_KEYS))


def is_terminal(call: ToolCall) -> bool:
    """Whether the call ends the run (submit, finish, mark_task_complete, the shell command `submit`, …)."""
    if re.sub(r"[^a-z]", "", call.name.lower()) in _TERMINAL_SQUEEZED:
        return True
    words = _name_words(call.name) - {call.name.lower()}
    if words & _ENDING_WORDS and not words - _TERMINAL - _FILLER_WORDS:
        return True
    command = command_text(call).strip()
    return command == "submit" or (len(command) < 4000 and "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in command)


def is_test_run(call: ToolCall) -> bool:
    """Whether the call runs tests: by the tool's name or by the command (pytest, npm test, go test, …)."""
    return _runs_tests(call.name, command_text(call))


@lru_cache(maxsize=512)
def _runs_tests(name: str, command: str) -> bool:
    if _TEST_TOOL.search(name):
        return True
    return any(_TEST_COMMAND.match(" ".join(words)) for words in simple_commands(command))


def is_check(call: ToolCall) -> bool:
    """Whether the last command is a type checker, a linter or a formatter's check."""
    commands = simple_commands(command_text(call))
    return bool(commands) and _CHECK_COMMAND.match(" ".join(commands[-1])) is not None


def is_reproduction(call: ToolCall) -> bool:
    """Whether the call runs a script that is named for showing a fault (reproduce.py, bug_123.js): it should fail."""
    return any(
        len(words) > 1 and words[0] not in _QUIET_PROGRAMS and _REPRODUCTION.fullmatch(words[-1])
        for words in simple_commands(command_text(call))
    )


def is_read_only(call: ToolCall) -> bool:
    """Whether the call surely leaves the world as it was. Unknown tools count as changing it."""
    words = _name_words(call.name)
    command = command_text(call)
    if command and not is_edit(call):
        if _SQL_READS.match(command):
            return True
        if _SQL_WRITES.match(command) or _WRITES_ANYWAY.search(command):
            return False
        if is_test_run(call):
            return True
        segments = simple_commands(command)
        others = [[name or other] for name, other in _RUNS_OTHERS.findall(command)]
        if segments and all(_quiet(words) for words in [*segments, *others]):
            return True
    if decode_arguments(call.arguments).value.get("command") == "view" or _TEST_TOOL.search(call.name):
        return True
    return bool(words & _LOOKING) and not words & _EDITING


def _quiet(words: list[str]) -> bool:
    program = words[0].rsplit("/", 1)[-1]
    if program == "git":
        return len(words) > 1 and words[1] in _QUIET_GIT
    return program in _QUIET_PROGRAMS or program == "xargs"
