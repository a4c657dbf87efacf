"""Which reader a record belongs to, decided by its content. A new format is one line in `_readers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.synthesis.ingest.records import Reader
from schemas.errors import UsageError

__all__ = ["FORMATS", "Readers", "score_of"]

_SURE = 0.9


def _readers() -> dict[str, Callable[[], Reader]]:
    """Every format by name; when two score the same the earlier one is taken."""
    from pipelines.synthesis.ingest.formats.agent_data import AgentData
    from pipelines.synthesis.ingest.formats.anthropic import Anthropic
    from pipelines.synthesis.ingest.formats.atif import Atif
    from pipelines.synthesis.ingest.formats.canonical import Canonical
    from pipelines.synthesis.ingest.formats.claude_code import ClaudeCode
    from pipelines.synthesis.ingest.formats.codex import Codex
    from pipelines.synthesis.ingest.formats.gemini_cli import GeminiCli
    from pipelines.synthesis.ingest.formats.harbor_traces import HarborTraces
    from pipelines.synthesis.ingest.formats.hermes import FunctionText, Hermes
    from pipelines.synthesis.ingest.formats.inspect_log import InspectLog
    from pipelines.synthesis.ingest.formats.intercode import InterCode
    from pipelines.synthesis.ingest.formats.llamafactory import LlamaFactory
    from pipelines.synthesis.ingest.formats.mini_swe import MiniSwe
    from pipelines.synthesis.ingest.formats.openai_chat import OpenAIChat
    from pipelines.synthesis.ingest.formats.openhands import OpenHands
    from pipelines.synthesis.ingest.formats.openhands_sdk import OpenHandsSdk
    from pipelines.synthesis.ingest.formats.pi_session import PiSession
    from pipelines.synthesis.ingest.formats.sharegpt import ShareGPT
    from pipelines.synthesis.ingest.formats.swe_agent import SweAgent
    from pipelines.synthesis.ingest.formats.swe_agent_hub import SweAgentHub
    from pipelines.synthesis.ingest.formats.tau import Tau2, TauBench, TauFewShot
    from pipelines.synthesis.ingest.formats.toolbench import ToolBench, ToolEval

    classes: list[Callable[[], Reader]] = [
        Canonical,
        ClaudeCode,
        PiSession,
        Codex,
        Atif,
        InspectLog,
        SweAgent,
        SweAgentHub,
        OpenHandsSdk,
        OpenHands,
        MiniSwe,
        TauBench,
        Tau2,
        TauFewShot,
        InterCode,
        ToolBench,
        ToolEval,
        GeminiCli,
        AgentData,
        HarborTraces,
        LlamaFactory,
        Anthropic,
        Hermes,
        FunctionText,
        ShareGPT,
        OpenAIChat,
    ]
    return {str(getattr(make, "name", "")): make for make in classes}


FORMATS: dict[str, Callable[[], Reader]] = _readers()


class Readers:
    """The readers of one file: one object a format, the last one used tried first."""

    def __init__(self, format_name: str = "auto") -> None:
        """Raises UsageError for a format that does not exist."""
        if format_name != "auto" and format_name not in FORMATS:
            raise UsageError(f"format {format_name!r} is unknown. Use auto or one of: {', '.join(sorted(FORMATS))}")
        names = list(FORMATS) if format_name == "auto" else [format_name]
        self.fixed = format_name != "auto"
        self._readers = [FORMATS[name]() for name in names]
        self._last: Reader | None = None

    def best(self, value: Any) -> Reader | None:
        """The reader with the highest score above zero (the fixed one whatever its score); None when none matches."""
        if self.fixed:
            return self._readers[0]
        if self._last is not None and score_of(self._last, value) >= _SURE:
            return self._last
        score, best = 0.0, None
        for reader in self._readers:
            found = score_of(reader, value)
            if found > score:
                score, best = found, reader
        self._last = best
        return best


def score_of(reader: Reader, value: Any) -> float:
    """`reader.matches(value)`; a value of a shape that the reader did not expect at all does not match."""
    try:
        return reader.matches(value)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return 0.0
