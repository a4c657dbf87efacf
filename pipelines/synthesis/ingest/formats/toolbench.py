"""ToolBench: DFSDT search trees of Thought / Action / Action Input nodes, and tooleval result files.

Each leaf gives one trajectory: the winning path first (success, when the search ended with an answer), then the other
leaves in tree order as failed runs. A node that an earlier trajectory already held is author "copied" in later ones,
so every node is the model's own turn exactly once. observation_code: 0 ok, 3 final answer, 4 gave the branch up,
anything else an error. The prompt that told the model of earlier candidates is not in the tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.synthesis.ingest.assemble import assemble
from pipelines.synthesis.ingest.parts import arguments_text, tools_text
from pipelines.synthesis.ingest.records import Notes, Place, RecordError, SetAside
from schemas.trajectory import Message, Outcome, Task, ToolCall, Trajectory

__all__ = ["ToolBench", "ToolEval"]

_NO_ERROR = {0, 3, 4}
_MAX_DEPTH = 2000

Node = Mapping[str, Any]


class ToolBench:
    """One tree a file."""

    name = "toolbench"

    def matches(self, value: Any) -> float:
        """`answer_generation` beside a `tree` (a chain file: `trys`)."""
        if not isinstance(value, dict) or not isinstance(value.get("answer_generation"), dict):
            return 0.0
        return 0.95 if isinstance(value.get("tree"), dict) else 0.5

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a leaf."""
        tree = value.get("tree")
        root = tree.get("tree") if isinstance(tree, dict) else None
        if not isinstance(root, dict):
            raise RecordError("tree.tree", "must be the root node", root)
        answer = value["answer_generation"]
        leaves = sorted(_leaves(root), key=lambda path: not _wins(path))  # stable: the rest stays in tree order
        given: set[int] = set()
        for index, path in enumerate(leaves):
            yield self._path(path, given, answer, place.inside(f"leaf {index}"), won=bool(value.get("win")))
            given.update(id(node) for node in path)

    def _path(
        self, path: list[Node], given: set[int], answer: Mapping[str, Any], place: Place, won: bool
    ) -> Trajectory:
        notes = Notes()
        messages = _prompt(answer)
        turn: Message | None = None
        for node in path[1:]:
            kind, text = node.get("node_type"), str(node.get("description") or "")
            copied = "copied" if id(node) in given else None
            if kind == "Thought":
                turn = Message(role="assistant", content=text, author=copied)
                messages.append(turn)
            elif kind == "Action":
                if turn is None or turn.tool_calls:
                    turn = Message(role="assistant", author=copied)
                    messages.append(turn)
                turn.author = copied  # a shared thought with a new action is a new turn
                turn.tool_calls.append(ToolCall("", text, "{}"))
            elif kind == "Action Input":
                if turn is None or not turn.tool_calls:
                    raise RecordError("tree", "an Action Input node without an Action above it", text)
                turn.author = copied
                turn.tool_calls[0].arguments = arguments_text(text, notes)
                messages.append(_observation(node))
                turn = None
            else:
                raise RecordError("tree.node_type", "must be Thought, Action or Action Input", kind)
        if any(id(node) in given for node in path[1:]):
            notes.add("turns shared with an earlier path of the tree, copied")
        pruned = any(node.get("pruned") for node in path)
        wins = _wins(path)
        return assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(instruction=str(answer.get("query") or "")),
            tools=tools_text(answer.get("function"), notes),
            outcome=Outcome(wins and won, None, "finish_type" if wins else "search"),
            extra={"finish_type": answer.get("finish_type") if wins else None, "pruned": pruned or None},
        )


def _leaves(root: Node) -> Iterator[list[Node]]:
    """Every root-to-leaf path, in tree order (iterative: trees can be deep)."""
    stack: list[list[Node]] = [[root]]
    while stack:
        path = stack.pop()
        children = path[-1].get("children") or []
        if len(path) > _MAX_DEPTH:
            raise RecordError("tree", f"deeper than {_MAX_DEPTH} nodes")
        if not children and len(path) > 1:
            yield path
        stack.extend([*path, child] for child in reversed(children) if isinstance(child, dict))


def _wins(path: list[Node]) -> bool:
    return path[-1].get("observation_code") == 3


def _prompt(answer: Mapping[str, Any]) -> list[Message]:
    """The system and user turns, from the training messages when the file has them."""
    trained = answer.get("train_messages")
    first = trained[0] if isinstance(trained, list) and trained and isinstance(trained[0], list) else []
    messages = []
    for raw in first:
        if not isinstance(raw, dict) or raw.get("role") not in ("system", "user"):
            break
        messages.append(Message(role=raw["role"], content=str(raw.get("content") or "")))
    return messages or [Message(role="user", content=str(answer.get("query") or ""))]


def _observation(node: Node) -> Message:
    code = node.get("observation_code")
    message = Message(role="tool", content=str(node.get("observation") or ""))
    if isinstance(code, int):
        message.error, message.signal = code not in _NO_ERROR, f"observation_code={code}"
    return message


class ToolEval:
    """tooleval records {query, available_tools, answer: {answer_details}}."""

    name = "tooleval"

    def matches(self, value: Any) -> float:
        """`answer.answer_details` beside `query`."""
        answer = value.get("answer") if isinstance(value, dict) else None
        return 0.95 if isinstance(answer, dict) and "answer_details" in answer and "query" in value else 0.0

    def read(self, value: Any, place: Place) -> Iterator[Trajectory | SetAside]:
        """One trajectory a record; its first chain. Records whose calls the source cut short are set aside."""
        notes = Notes()
        messages: list[Message] = []
        details = value["answer"]["answer_details"]
        node = details[0] if isinstance(details, list) and details else None
        while isinstance(node, dict):
            messages.extend(_tooleval_turns(node, notes))
            following = node.get("next") or []
            if len(following) > 1:
                notes.add("other branches of the search, left out")
            node = following[0] if following else None
        if messages and messages[0].role == "system" and not messages[0].content:
            messages.pop(0)
        query = str(value["query"])
        if messages and messages[0].role == "user" and query.startswith(messages[0].content):
            messages[0].content = query
        yield assemble(
            source=self.name,
            place=place,
            messages=messages,
            notes=notes,
            task=Task(instruction=query),
            tools=tools_text(value.get("available_tools"), notes),
            extra={"method": value["answer"].get("method")},
        )


def _tooleval_turns(node: Node, notes: Notes) -> Iterator[Message]:
    role, text = node.get("role"), str(node.get("message") or "")
    if role != "tool":
        yield Message(
            role="assistant" if role == "assistant" else "system" if role == "system" else "user", content=text
        )
        return
    try:
        body = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        problem = "the call was cut short by the program that wrote it, its arguments are lost"
        raise RecordError("answer.answer_details.message", problem, text) from None
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        raise RecordError("answer.answer_details.message", "a tool node must hold a call with a name", text)
    call = ToolCall("", body["name"], arguments_text(body.get("arguments"), notes))
    yield Message(role="assistant", tool_calls=[call])
    if "response" in body:
        yield Message(role="tool", content=str(body["response"]))
