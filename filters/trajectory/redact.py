"""Secrets and people (R20): found by shape, replaced by typed placeholders, counted.

`<EMAIL_1>`, `<TOKEN_2>`, …: within one record equal values get equal placeholders, so a name that an observation
showed and a later call used still agree. Works on any text; `redact_trajectory` goes over all messages and calls.

What it knows: private key blocks, tokens whose issuers give them a fixed prefix, credentials in addresses, values
assigned to names such as `api_key` when they look random, e-mail addresses, home folders, public IP addresses,
international and North American phone numbers, payment cards (Luhn) and IBANs (ISO 13616). What it does not know:
names of people in prose, postal addresses, secrets without a shape. Addresses reserved for documentation
(RFC 2606, RFC 5737) and private networks stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from filters.trajectory.shell import word_set
from schemas.trajectory import Message, ToolCall, Trajectory

__all__ = ["Redactor", "redact_text", "redact_trajectory"]

_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----[\s\S]{0,12000}?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?:"
    r" BLOCK)?-----"
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}"  # GitHub
    r"|glpat-[A-Za-z0-9_-]{20,64}"  # GitLab
    r"|sk-(?:ant-|proj-|or-v1-|svcacct-)?[A-Za-z0-9_-]{20,200}"  # OpenAI, Anthropic, OpenRouter
    r"|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,400}"  # Google
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,250}"  # Slack
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,200}"  # Stripe
    r"|hf_[A-Za-z0-9]{30,64}|npm_[A-Za-z0-9]{36}|pypi-AgEI[A-Za-z0-9_-]{50,400}"  # registries
    r"|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}"  # SendGrid
    r"|dop_v1_[a-f0-9]{64}|r8_[A-Za-z0-9]{37}|gsk_[A-Za-z0-9]{40,64}|tvly-[A-Za-z0-9-]{20,64}"
    r"|eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"  # JWT
    r")(?![A-Za-z0-9_])"
)
_BEARER = re.compile(
    r"(?<=\bBearer )[A-Za-z0-9._~+/-]{20,2000}=*|(?<=\bBasic )[A-Za-z0-9+/]{16,500}={0,2}(?![A-Za-z0-9])"
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s/:@'\"<>]{1,100}:[^\s/@'\"<>]{1,200}(?=@[\w.-])")
_ASSIGNED = re.compile(
    r"(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token|access[_-]?token|private[_-]?key"
    r"|client[_-]?secret)"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z0-9+/_.~!@#$%^&*-]{12,200})(?![A-Za-z0-9(\[])",
    re.I,
)
_EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,24}(?![\w@-])")
_HOME = re.compile(
    r"(?:(?<=/home/)|(?<=/Users/)|(?<=\\Users\\)|(?<=/export/home/))[A-Za-z][\w.-]{1,31}(?=[/\\\s'\":,;)\]}]|$)"
)
_IPV4 = re.compile(r"(?<![\w.=-])(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){2,7}(?:[0-9a-fA-F]{1,4}|:)(?::?[0-9a-fA-F]{1,4}){0,6}(?![\w:])")
_PHONE = re.compile(
    r"(?<![\w.+/-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]\d{2,4}){1,4}|\+\d{9,14}"
    r"|\(\d{3}\) ?\d{3}-\d{4}|(?:1-)?[2-9]\d{2}-[2-9]\d{2}-\d{4})(?![\w-]|\.\d)"
)
_CARD = re.compile(r"(?<![\w.-])(?:\d[ -]?){12,18}\d(?![\w-]|\.\d)")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_PLACEHOLDER = re.compile(r"<[A-Z_]+_\d+>")

_GENERIC_USERS = word_set(
    "user users root ubuntu debian runner vagrant node app admin guest shared public default travis circleci jovyan "
    "agent ec2-user vscode codespace gitpod home me username name your_username youruser linuxbrew dev developer "
    "work test"
)
_RESERVED = re.compile(
    r"(?:^|[.@])(?:example\.(?:com|org|net|edu)|test|example|invalid|localhost|local|internal)$", re.I
)
_VERSION_BEFORE = re.compile(r"(?:version|ver|v|==|>=|<=|~=|release)[\s:=\"']*$", re.I)


def _keep_email(value: str) -> bool:
    local, _, domain = value.rpartition("@")
    return (
        bool(_RESERVED.search("@" + domain))
        or local.lower() in ("git", "noreply", "no-reply")
        or domain.lower().endswith("noreply.github.com")
    )


def _keep_address(value: str) -> bool:
    try:
        return not ipaddress.ip_address(value).is_global
    except ValueError:
        return True


def _random_looking(value: str) -> bool:
    """Letters and digits mixed, not a word, a path or a call: what a generated secret looks like."""
    digits = sum(character.isdigit() for character in value)
    return digits >= 2 and digits < len(value) and len(set(value)) >= 8 and "/" not in value[:1] and ".." not in value


def _luhn(value: str) -> bool:
    digits = [int(character) for character in value if character.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) < 3:
        return False
    total = sum(d if index % 2 == 0 else (2 * d - 9 if d > 4 else 2 * d) for index, d in enumerate(reversed(digits)))
    return total % 10 == 0


def _iban(value: str) -> bool:
    compact = value.replace(" ", "")
    if not 15 <= len(compact) <= 34:
        return False
    moved = compact[4:] + compact[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1


class Redactor:
    """Replaces what it finds and remembers it: one object a record. `counts` is replacements by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def _name(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        name = self._names.get((kind, value))
        if name is None:
            self._numbers[kind] += 1
            name = self._names[(kind, value)] = f"<{kind}_{self._numbers[kind]}>"
        return name

    def _swap(self, kind: str, pattern: re.Pattern[str], text: str, keep: Callable[[re.Match[str]], bool]) -> str:
        """Replace a pattern's matches (its group 1 where it has one) unless `keep` says to leave them."""

        def swap(matched: re.Match[str]) -> str:
            if keep(matched):
                return matched[0]
            if pattern.groups:
                start, end = matched.span(1)
                whole = matched[0]
                return whole[: start - matched.start()] + self._name(kind, matched[1]) + whole[end - matched.start() :]
            return self._name(kind, matched[0])

        return pattern.sub(swap, text)

    def text(self, text: str) -> str:
        """`text` with placeholders. Linear in its length. Redacting twice changes nothing."""
        if "PRIVATE KEY" in text:
            text = self._swap("PRIVATE_KEY", _PRIVATE_KEY, text, _never)
        text = self._swap("TOKEN", _TOKEN, text, _plain_word)
        if "Bearer " in text or "Basic " in text:
            text = self._swap("TOKEN", _BEARER, text, _never)
        if "://" in text:
            text = self._swap("CREDENTIALS", _URL_CREDENTIALS, text, lambda m: bool(_PLACEHOLDER.search(m[0])))
        text = self._swap("SECRET", _ASSIGNED, text, lambda m: not _random_looking(m[1]))
        if "@" in text:
            text = self._swap("EMAIL", _EMAIL, text, lambda m: _keep_email(m[0]))
        if "/home/" in text or "Users" in text:
            text = self._swap("USER", _HOME, text, lambda m: m[0].lower() in _GENERIC_USERS)
        text = self._swap("IBAN", _IBAN, text, lambda m: not _iban(m[0]))
        text = self._swap("IP", _IPV4, text, lambda m: _keep_address(m[0]) or _versioned(m))
        if ":" in text:
            text = self._swap("IP", _IPV6, text, lambda m: _keep_address(m[0]))
        text = self._swap("CARD", _CARD, text, lambda m: not _luhn(m[0]))
        return self._swap("PHONE", _PHONE, text, _never)


def _never(_: re.Match[str]) -> bool:
    return False


def _plain_word(matched: re.Match[str]) -> bool:
    """Tokens hold digits; sk-some-hyphenated-words-as-a-slug do not."""
    return not any(character.isdigit() for character in matched[0][3:])


def _versioned(matched: re.Match[str]) -> bool:
    return bool(_VERSION_BEFORE.search(matched.string[max(0, matched.start() - 12) : matched.start()]))


def redact_text(text: str) -> tuple[str, Counter[str]]:
    """(text with placeholders, replacements by kind)."""
    redactor = Redactor()
    return redactor.text(text), redactor.counts


def redact_trajectory(trajectory: Trajectory) -> tuple[Trajectory, Counter[str]]:
    """A copy with placeholders in every message, reasoning, call argument and the instruction, numbered as one record.

    The id stays: it names the run as it was read. Arguments stay JSON: no placeholder needs escaping. The flag
    "redacted" is set when anything was replaced.
    """
    redactor = Redactor()
    messages = [_message(redactor, message) for message in trajectory.messages]
    task = replace(trajectory.task, instruction=redactor.text(trajectory.task.instruction))
    if not redactor.counts:
        return trajectory, redactor.counts
    flags = trajectory.flags if "redacted" in trajectory.flags else [*trajectory.flags, "redacted"]
    return replace(trajectory, messages=messages, task=task, flags=flags), redactor.counts


def _message(redactor: Redactor, message: Message) -> Message:
    calls = [ToolCall(call.id, call.name, redactor.text(call.arguments)) for call in message.tool_calls]
    reasoning = redactor.text(message.reasoning) if message.reasoning else message.reasoning
    return replace(message, content=redactor.text(message.content), reasoning=reasoning, tool_calls=calls)
