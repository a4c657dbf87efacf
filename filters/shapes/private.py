"""What secrets and personal data look like in text, and where in a text they are.

Known: private key blocks, tokens whose issuers give them a fixed prefix, credentials in addresses and headers, values
assigned to names such as `api_key` when they look random, e-mail addresses, names in home folders, public IP
addresses, international and North American phone numbers, payment cards (issuer prefix and Luhn) and IBANs
(ISO 13616). Not known: names of people in prose, postal addresses, secrets without a shape. Addresses reserved for
documentation (RFC 2606, RFC 5737) and private networks are no finding.

Speed: every kind has literal anchors that are found with `str.find`; a pattern is only tried around an anchor. Cost is
linear in the text, also for text made to provoke (all patterns have bounded repeats).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

__all__ = ["find_private"]

Span = tuple[int, int, str]  # start, end, kind

_KEY_BLOCK = 12_000  # characters: an armoured RSA key of 16384 bits has about 12,800 with its lines
_TOKEN_ANCHORS = (
    *("AKIA", "ASIA", "ABIA", "ACCA"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("sk-", "AIza", "ya29.", "xox", "_live_", "_test_", "hf_", "npm_", "pypi-AgEI"),
    *("SG.", "dop_v1_", "r8_", "gsk_", "tvly-", "eyJ"),
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
_HEADER = re.compile(r"(?:Bearer|Basic) ([A-Za-z0-9._~+/-]{20,2000}={0,2})(?![A-Za-z0-9])")
_URL_CREDENTIALS = re.compile(r"://([^\s/:@'\"<>${}]{1,100}:[^\s/@'\"<>${}]{1,200})@[\w.-]")
_ASSIGNED = re.compile(
    r"(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token|access[_-]?token|private[_-]?key)"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z0-9+/_.~!@#$%^&*-]{12,200})(?![A-Za-z0-9(\[])",
    re.I,
)
# Anchor, and how far before it the name may begin ("api_key", "access-token", …).
_ASSIGNED_ANCHORS = (
    ("passw", (0,)),
    ("pwd", (0,)),
    ("secret", (0,)),
    ("key", (4, 3, 7, 6, 8)),
    ("token", (5, 4, 7, 6)),
)
# Latin, Greek and Cyrillic: scripts with spaces between words. An address inside Chinese or Japanese text has no space
# around it, so their letters end it.
_LETTERS = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u03ff\u0400-\u052f\u1e00-\u1fff"
_LOCAL_PART = re.compile(rf"(?<![{_LETTERS}\d_.+-])[{_LETTERS}\d][{_LETTERS}\d_.+-]{{0,63}}\Z")
_DOMAIN = re.compile(
    rf"(?:[{_LETTERS}\d-]{{1,63}}\.){{1,5}}(?:xn--[a-z\d-]{{2,40}}|[{_LETTERS}]{{2,24}})(?![{_LETTERS}\d_@-])"
)
_HOME_ANCHORS = ("/home/", "/Users/", "\\Users\\")
_HOME = re.compile(r"\\?([A-Za-z][\w.-]{1,31})(?=[/\\\s'\":,;)\]}]|\Z)")
_NUMBERS = re.compile(r"[+(\d][\d .()+-]{5,40}\d")
_IPV4 = re.compile(r"(?<![\w.=-])(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){2,7}(?:[0-9a-fA-F]{1,4}|:)(?::?[0-9a-fA-F]{1,4}){0,6}(?![\w:])")
_COLONS = re.compile(r":[0-9a-fA-F]{0,4}:")
_PHONE = re.compile(
    r"(?<![\w.+/-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]\d{2,8}){1,4}|\+\d{9,14}"
    r"|\([2-9]\d{2}\) ?[2-9]\d{2}-\d{4}|(?:1-)?[2-9]\d{2}-[2-9]\d{2}-\d{4})(?![\w-]|\.\d)"
)
# Visa, Mastercard, American Express, Discover, by issuer prefix, in one run or in groups.
_CARD = re.compile(
    r"(?<![\w.+-])(?:(?:4\d{3}|5[1-5]\d\d|2[2-7]\d\d|6011|65\d\d)([ -]?)\d{4}\1\d{4}\1\d{4}"
    r"|3[47]\d\d([ -]?)\d{6}\2\d{5})(?![\w-]|\.\d)"
)
_IBAN_START = re.compile(r"[A-Z]{2}\d{2}[ A-Z0-9]{11}")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")

_GENERIC_NAMES = (
    "user users root ubuntu debian runner vagrant node app admin guest shared public default travis circleci jovyan "
    "agent ec2-user vscode codespace gitpod home me username name your_username youruser linuxbrew dev developer "
    "work test"
)
_GENERIC_USERS = frozenset(_GENERIC_NAMES.split())
_RESERVED = re.compile(
    r"(?:^|[.@])(?:example\.(?:com|org|net|edu)|test|example|invalid|localhost|local|internal)$", re.I
)
_SERVICE_NAMES = frozenset({"git", "noreply", "no-reply"})
_VERSION_BEFORE = re.compile(r"(?:version|ver|v|==|>=|<=|~=|release)[\s:=\"']*\Z", re.I)


def find_private(text: str) -> list[Span]:
    """(start, end, kind) of all that should be replaced, in order, without overlaps (the first and longest wins)."""
    spans = [
        *_key_blocks(text),
        *_tokens(text),
        *_credentials(text),
        *_assigned(text),
        *_emails(text),
        *_homes(text),
        *_numbers(text),
        *_addresses_v6(text),
        *_ibans(text),
    ]
    if not spans:
        return []
    spans.sort(key=lambda span: (span[0], -span[1]))
    chosen: list[Span] = []
    for span in spans:
        if not chosen or span[0] >= chosen[-1][1]:
            chosen.append(span)
    return chosen


def _positions(text: str, anchor: str) -> Iterator[int]:
    at = text.find(anchor)
    while at >= 0:
        yield at
        at = text.find(anchor, at + len(anchor))


def _key_blocks(text: str) -> Iterator[Span]:
    done = 0
    for at in _positions(text, "PRIVATE KEY"):
        start = text.rfind("-----BEGIN ", max(done, at - 40), at)
        if start < 0:
            continue
        end = text.find("PRIVATE KEY", at + 11, at + _KEY_BLOCK)
        footer = text.rfind("-----END ", at, end) if end >= 0 else -1
        if footer < 0:
            continue
        close = text.find("-----", end, end + 30)
        if close >= 0:
            done = close + 5
            yield start, done, "PRIVATE_KEY"


def _tokens(text: str) -> Iterator[Span]:
    for anchor in _TOKEN_ANCHORS:
        done = 0
        for at in _positions(text, anchor):
            start = at - 2 if anchor in ("_live_", "_test_") else at
            matched = _TOKEN.match(text, start) if start >= done else None
            # Tokens hold digits; sk-some-hyphenated-words-as-a-slug does not.
            if matched and any(character.isdigit() for character in matched[0][3:]):
                done = matched.end()
                yield matched.start(), done, "TOKEN"


def _credentials(text: str) -> Iterator[Span]:
    for anchor, pattern, kind in (
        ("Bearer ", _HEADER, "TOKEN"),
        ("Basic ", _HEADER, "TOKEN"),
        ("://", _URL_CREDENTIALS, "CREDENTIALS"),
    ):
        for at in _positions(text, anchor):
            matched = pattern.match(text, at)
            if matched:
                yield (*matched.span(1), kind)


def _assigned(text: str) -> Iterator[Span]:
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters change length in lower case: positions would slip
        lowered = text
    for anchor, offsets in _ASSIGNED_ANCHORS:
        for at in _positions(lowered, anchor):
            near = text[at : at + 16]
            if "=" not in near and ":" not in near:
                continue
            matches = (_ASSIGNED.match(text, at - offset) for offset in offsets if offset <= at)
            matched = next(filter(None, matches), None)
            if matched and _random_looking(matched[1]):
                yield (*matched.span(1), "SECRET")


def _emails(text: str) -> Iterator[Span]:
    for at in _positions(text, "@"):
        domain = _DOMAIN.match(text, at + 1, at + 400)
        local = _LOCAL_PART.search(text, max(0, at - 65), at) if domain else None
        if local and domain and not _service_address(local[0], domain[0]):
            yield local.start(), domain.end(), "EMAIL"


def _service_address(local: str, domain: str) -> bool:
    reserved = _RESERVED.search("@" + domain) or domain.lower().endswith("noreply.github.com")
    return bool(reserved) or local.lower() in _SERVICE_NAMES


def _homes(text: str) -> Iterator[Span]:
    for anchor in _HOME_ANCHORS:
        for at in _positions(text, anchor):
            matched = _HOME.match(text, at + len(anchor))
            if matched and matched[1].lower() not in _GENERIC_USERS:
                yield (*matched.span(1), "USER")


def _numbers(text: str) -> Iterator[Span]:
    """Public IPv4 addresses, phone numbers and cards, all inside runs of digits and separators."""
    for run in _NUMBERS.finditer(text):
        start, end = run.start(), run.end() + 24
        for pattern, kind in ((_IPV4, "IP"), (_CARD, "CARD"), (_PHONE, "PHONE")):
            for matched in pattern.finditer(text, start, end):
                if matched.start() < run.end() and _real_number(kind, matched):
                    yield (*matched.span(), kind)


def _real_number(kind: str, matched: re.Match[str]) -> bool:
    if kind == "IP":
        before = matched.string[max(0, matched.start() - 12) : matched.start()]
        return _public(matched[0]) and not _VERSION_BEFORE.search(before)
    if kind == "PHONE":
        return 8 <= sum(character.isdigit() for character in matched[0]) <= 15  # E.164 allows 15
    return _luhn(matched[0])


def _addresses_v6(text: str) -> Iterator[Span]:
    done = 0
    for colons in _COLONS.finditer(text):
        if colons.start() < done:
            continue
        matched = _IPV6.search(text, max(0, colons.start() - 4), colons.end() + 45)
        if matched and matched.start() <= colons.start():
            done = matched.end()
            if _public(matched[0]):
                yield (*matched.span(), "IP")


def _ibans(text: str) -> Iterator[Span]:
    for begin in _IBAN_START.finditer(text):
        matched = _IBAN.match(text, begin.start())
        if matched and _iban(matched[0]):
            yield (*matched.span(), "IBAN")


def _public(value: str) -> bool:
    try:
        return ipaddress.ip_address(value).is_global
    except ValueError:
        return False


def _random_looking(value: str) -> bool:
    """Letters and digits mixed, many different ones: what a generated secret looks like, not a word or a call."""
    digits = sum(character.isdigit() for character in value)
    return 2 <= digits < len(value) and len(set(value)) >= 8 and "/" not in value[:1] and ".." not in value


def _luhn(value: str) -> bool:
    """The check digit of ISO/IEC 7812, for numbers of more than one digit."""
    digits = [int(character) for character in value if character.isdigit()]
    total = sum(d if index % 2 == 0 else (2 * d - 9 if d > 4 else 2 * d) for index, d in enumerate(reversed(digits)))
    return len(set(digits)) >= 2 and total % 10 == 0


def _iban(value: str) -> bool:
    """The check digits of ISO 13616: the number modulo 97 is 1."""
    compact = value.replace(" ", "")
    if not 15 <= len(compact) <= 34:
        return False
    moved = compact[4:] + compact[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1
