"""What runs inside the sandbox for the repair family: trying functions on made inputs, running calls.

A plugin of the sandbox: standard library only, one JSON value in, one out, run in a fork beside the untrusted code.

An outcome is a list: ["value", text], ["repr", text], ["list", text] (an iterator's items), ["effect", position, text]
(nothing returned, the argument at that position changed), ["raises", type name], or ["unsupported"]. `text` is a
Python expression. Outcomes are compared as they are.
"""

from __future__ import annotations

import ast
import builtins
import copy
import io
import itertools
import random
import signal
import sys
import types
import warnings
from typing import Any

import values  # type: ignore[import-not-found,unused-ignore]

MAX_LINE_EVENTS = 5_000  # of one traced call: an endless loop ends at the same line on every machine
MAX_TEXT = 240
CALL_CPU_SECONDS = 1.0


class OutOfBudget(BaseException):
    """A call ran too many lines or too long."""


def probe_module(payload: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """{function: [{"arguments": [text, …], "outcome": […]}, …]} for the functions that behave well on made inputs.

    payload: {"source", "seed", "functions": [{"name", "hints", "optional", "examples"}]}; hints and optional are
    [[parameter, annotation or default's type], …] of required and optional parameters, examples are argument texts.
    """
    code = compile(payload["source"], "probed.py", "exec")
    module, fresh = load(code), load(code)
    found = {}
    for description in payload["functions"]:
        name = description["name"]
        function = getattr(module, name, None)
        if not isinstance(function, types.FunctionType):
            continue
        generator = random.Random(f"{payload['seed']}:{name}")  # noqa: S311 - seeded on purpose
        calls = choose_calls(function, description, generator)
        twin = getattr(fresh, name, None)  # without the state that the first calls may have left, and in another order
        again = [traced_outcome(twin, call["arguments"]) for call in reversed(calls)]
        if calls and again == [call["outcome"] for call in reversed(calls)]:
            found[name] = calls
    return found


def choose_calls(
    function: Any, description: dict[str, Any], generator: random.Random, wanted: int = 10
) -> list[dict[str, Any]]:
    """Calls of one function with distinct arguments: varied outcomes, at most a third of them exceptions; [] if dull.

    Plans of argument kinds are tried three times each; the calls come from the docstring's examples and the two best
    plans (most results, then most different ones, then the likelier plan).
    """
    seen: set[tuple[str, ...]] = set()

    def attempts(plan: list[str], times: int) -> list[dict[str, Any]]:
        return tried([[values.make(kind, generator) for kind in plan] for _ in range(times)])

    def tried(rows: list[list[str]]) -> list[dict[str, Any]]:
        calls = []
        for arguments in rows:
            if tuple(arguments) in seen or sum(map(len, arguments)) > MAX_TEXT:
                continue
            seen.add(tuple(arguments))
            outcome = traced_outcome(function, arguments)
            if outcome[0] != "unsupported":
                calls.append({"arguments": arguments, "outcome": outcome})
        return calls

    calls = tried(description["examples"])
    optional = [values.kind_of(*hint) for hint in description["optional"]]
    plans = values.plans(description["hints"], generator)
    first: list[list[dict[str, Any]]] = []
    for plan in plans:
        first.append(attempts(plan, 3))
        if len(first) == 1 and len({repr(call["outcome"]) for call in results(first[0])}) >= 2:
            break  # the guess from names and annotations is good: nothing else is tried
    scores = [(len(results(c)), len({repr(call["outcome"]) for call in results(c)})) for c in first]
    best = sorted(range(len(first)), key=lambda i: (-scores[i][0], -scores[i][1], i))[:2]
    for rank, index in enumerate(best):
        if scores[index][0]:
            calls += first[index] + attempts(plans[index], 9 - 4 * rank)
            if optional:
                calls += attempts(plans[index] + optional[: 1 + rank % len(optional)], 5)
    good = results(calls)
    if len({repr(call["outcome"]) for call in good}) < (2 if len(good) >= 4 else 3):
        return []
    good = spread(good, wanted)
    return good + spread([call for call in calls if call["outcome"][0] == "raises"], min(len(good) // 2, 2))


def results(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls that raised nothing."""
    return [call for call in calls if call["outcome"][0] != "raises"]


def spread(calls: list[dict[str, Any]], wanted: int) -> list[dict[str, Any]]:
    """At most `wanted` calls: a first one of every outcome, then the others, in the order found."""
    first: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    seen = set()
    for call in calls:
        key = repr(call["outcome"])
        (rest if key in seen else first).append(call)
        seen.add(key)
    return (first + rest)[:wanted]


def probe_variants(payload: dict[str, Any]) -> list[Any]:
    """For every variant of a module: {function: [outcome, …]} of its calls, or null when a definition does not load.

    payload: {"source", "variants": [{function: new definition}, …], "calls": {function: [[argument text, …], …]}}.
    The definitions replace the module's own for the length of the variant.
    """
    module = load(payload["source"])
    results: list[Any] = []
    for variant in payload["variants"]:
        originals = {name: module.__dict__[name] for name in variant}
        try:
            for definition in variant.values():
                exec(compile(definition, "probed.py", "exec"), module.__dict__)  # noqa: S102 - inside the sandbox
            results.append(
                {
                    name: [traced_outcome(getattr(module, name, None), arguments) for arguments in calls]
                    for name, calls in payload["calls"].items()
                }
            )
        except (Exception, OutOfBudget):
            results.append(None)
        module.__dict__.update(originals)
    return results


def probe_modules(payload: dict[str, Any]) -> list[Any]:
    """Like `probe_variants` for whole texts: payload is {"sources": [text, …], "calls": …}."""
    results: list[Any] = []
    for source in payload["sources"]:
        try:
            module = load(source)
        except (Exception, OutOfBudget):
            results.append(None)
            continue
        results.append(
            {
                name: [traced_outcome(getattr(module, name, None), arguments) for arguments in calls]
                for name, calls in payload["calls"].items()
            }
        )
    return results


def probe_fault(payload: dict[str, Any]) -> dict[str, Any]:
    """Both at once, for one fork less: {"modules": `probe_modules`, "variants": `probe_variants`} of their payloads."""
    return {"modules": probe_modules(payload["modules"]), "variants": probe_variants(payload["variants"])}


def run_calls(payload: dict[str, Any]) -> dict[str, Any]:
    """Outcomes of calls on modules of the workspace: {"dotted.module": {function: [outcome, …] or null}}.

    payload: {"dotted.module": {function: [[argument text, …], …]}}. Expected outcomes are not in it: they stay outside.
    """
    results: dict[str, Any] = {}
    for module_name, functions in payload.items():
        try:
            module = timed(lambda name=module_name: importlib_import(name))
        except BaseException:
            results[module_name] = dict.fromkeys(functions)
            continue
        results[module_name] = {
            name: [timed_outcome(getattr(module, name, None), arguments) for arguments in calls]
            for name, calls in functions.items()
        }
    return results


def importlib_import(name: str) -> Any:
    """Import a dotted module of the workspace without printing its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        __import__(name)
    return sys.modules[name]


def load(source: str | types.CodeType) -> Any:
    """A fresh module from text or compiled text; what it prints or warns of at import is not shown."""
    module = types.ModuleType("probed")
    sys.modules["probed"] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, "probed.py", "exec") if isinstance(source, str) else source
        exec(code, module.__dict__)  # noqa: S102 - inside the sandbox
    return module


def evaluate(texts: list[str]) -> list[Any]:
    """Argument texts to fresh values."""
    return [ast.literal_eval(text) for text in texts]


def traced_outcome(function: Any, texts: list[str]) -> list[Any]:
    """The outcome of a call that may run 5,000 lines. A slower one is ["unsupported"]."""
    budget = MAX_LINE_EVENTS

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal budget
        budget -= 1
        if budget < 0:
            raise OutOfBudget
        return trace

    sys.settrace(trace)
    try:
        return outcome(function, texts)
    finally:
        sys.settrace(None)


def timed(action: Any) -> Any:
    """Run something that may take one CPU second; raises OutOfBudget beyond."""

    def ring(number: int, frame: Any) -> None:
        raise OutOfBudget

    signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, CALL_CPU_SECONDS)
    try:
        return action()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def timed_outcome(function: Any, texts: list[str]) -> list[Any]:
    """The outcome of a call that may take one CPU second."""
    try:
        return timed(lambda: outcome(function, texts))  # type: ignore[no-any-return]
    except BaseException:
        return ["unsupported"]


def outcome(function: Any, texts: list[str]) -> list[Any]:
    """Call a function on fresh arguments and describe what happened. What it prints is thrown away."""
    arguments = evaluate(texts)
    before = copy.deepcopy(arguments)
    stdout, sys.stdout = sys.stdout, io.StringIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function(*arguments)
            if isinstance(value, types.GeneratorType | map | filter | zip | itertools.chain):
                return described("list", list(itertools.islice(value, 100)))
            if value is None:
                changed = [i for i, (a, b) in enumerate(zip(arguments, before, strict=True)) if a != b]
                if len(changed) == 1:
                    text = described("value", arguments[changed[0]])
                    return ["effect", changed[0], text[1]] if text[0] == "value" else ["unsupported"]
            return described("value", value)
    except OutOfBudget:
        return ["unsupported"]
    except Exception as error:
        name = type(error).__name__
        stable = getattr(builtins, name, None) is type(error) and name not in ("RecursionError", "MemoryError")
        return ["raises", name] if stable else ["unsupported"]
    finally:
        sys.stdout = stdout


def described(kind: str, value: Any) -> list[Any]:
    """[kind, expression] for plain data, ["repr", expression] for other values with a stable repr."""
    try:
        if values.is_plain(value):
            text = values.literal(value)
            return [kind, text] if len(text) <= MAX_TEXT else ["unsupported"]
        text = repr(value)
    except (ValueError, TypeError, RecursionError):
        return ["unsupported"]
    if " at 0x" in text or "<" in text or "{" in text or kind != "value" or len(text) > MAX_TEXT:
        return ["unsupported"]
    return ["repr", repr(text)]
