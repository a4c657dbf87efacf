"""What looks like personal data and is mathematics, numbering or code: the context in which a finding is left alone.

Section numbers and object identifiers have the shape of addresses, sums and tables that of phone numbers, matrix
products that of e-mail addresses. Each test looks at a finding and at some hundred characters around it. Chosen by
reading all findings in a corpus of manuals, source files, dictionaries and worked problems; see tests/filters/text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["only_looks_private"]

_BEFORE = 40  # characters before a finding that are its context
_FORMULA = 2000  # characters on either side in which a formula may begin and end

# Root zone of the DNS: all country codes, and the generic names that people have mail addresses under.
_COUNTRY_CODES = (
    "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc "
    "cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga "
    "gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp "
    "ke kg kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms "
    "mt mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro "
    "rs ru rw sa sb sc sd se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt "
    "tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw"
)
_GENERIC_ZONES = (
    "com org net edu gov mil int info biz name pro aero coop museum jobs mobi travel asia cat app dev tech online "
    "site website store shop blog cloud email live life world today news media agency digital studio design solutions "
    "systems software technology network science academy university institute foundation team group club xyz top "
    "space page work zone one global earth eco ngo health bank law wiki"
)
_OTHER_SCRIPTS = "рф рус укр бел срб мкд мон бг қаз ею ελ ευ дети сайт онлайн орг ком москва"
_ZONES = frozenset(f"{_COUNTRY_CODES} {_GENERIC_ZONES} {_OTHER_SCRIPTS}".split())
_PHONE_WORDS = re.compile(r"(?:\b(?:tele?|phone|fax|mobile|cell|call|contact|whatsapp|sms)\w*|☎|☏)[^\n]{0,24}\Z", re.I)
_OPERATOR_BEFORE = re.compile(r"[=<>≤≥*/^_+−×÷%&\d-]\s*\Z")
_OPERATOR_AFTER = re.compile(r"\s*(?:[=<>≤≥*/^+×÷%]|&(?!\w)|\\\\)")  # the last two: columns and rows of LaTeX
_TASK_BEFORE = re.compile(
    r"\b(?:what is|comput\w+|calculat\w+|evaluat\w+|simplify|subtract\w*|solve|work out|difference|minus)\b.{0,16}\Z",
    re.I,
)
_FICTION = re.compile(r"\D555\D?01\d\d\Z")  # reserved for examples and films (NANPA)
_CODES = re.compile(  # ITU-T E.164: country codes of two and of three digits
    r"2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|(?:2[1-69]|3[578]|42|5[09]|6[7-9]|8[05-8]|9[679])\d"
)
_ADDRESS_WORDS = re.compile(
    r"(?:\b(?:ip(?:v4)?|ips|ip[_-]?addr\w*|address\w*|addr|host\w*|server|client|peer|ping|ssh|telnet|gateway|router|dns"
    r"|inet|proxy|subnet|remote|nameserver)|://|@)[\s:=\"'\[(<]*\Z",
    re.I,
)
_NUMBERING_WORDS = re.compile(
    r"(?:§|\b(?:sections?|sec|chapters?|ch|theorems?|thm|lemmas?|corollary|definitions?|def|propositions?|prop|examples?"
    r"|exercises?|remarks?|equations?|eqs?|figures?|figs?|tables?|tab|appendix|clauses?|rules?|items?|steps?|paragraphs?"
    r"|para|parts?|oid|objectidentifier|versions?|v|ver|releases?|build|firmware|kernel))[\s.(\"'#:=-]*\Z",
    re.I,
)
_PRODUCT = re.compile(r"[A-Za-z]/\Z")  # Browser/11.2.202.233
_PORT = re.compile(r":\d{2,5}(?!\d)")
_ENVIRONMENT = r"\\(?:begin|end)\{(?:equation|align|gather|multline|eqnarray|array|[bpvV]?matrix|math|displaymath)\*?\}"
_DISPLAY = re.compile(rf"\\\[|\\\]|\\\(|\\\)|{_ENVIRONMENT}")
_WORDS = re.compile(r"[A-Za-z]+\d{0,3}(?:[._-][A-Za-z]+\d{0,3})+\Z")
_NAME_IN_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|\w*[a-z]{6}\w*\Z")  # a path, or long words in it
_BODY = re.compile(r"[A-Za-z0-9+/=]{30}")
_MIXED = re.compile(r"[A-Za-z]\d|\d[A-Za-z]|=\Z")
_RUN = re.compile(r"[A-Za-z0-9]{16}")
_STANDING_IN = re.compile(r"example|your|changeme|change_me|placeholder|dummy|x{4}", re.I)
_WORDS_FOR_PASSWORD = frozenset({"password", "passwd", "pass", "pw", "pwd", "secret", "token", "xxx", "..."})


def only_looks_private(shape: str, text: str, start: int, end: int) -> bool:
    """Whether the finding `text[start:end]` of `shape` (filters/shapes/private.py) is no personal data nor key."""
    test = _TESTS.get(shape)
    return test is not None and test(text, start, end)


def _no_email(text: str, start: int, end: int) -> bool:
    """A matrix product (`x@self.weight`, `x@W.to(device)`), a file (`icon@2x.png`): no such top-level domain, or a
    call or an index of it."""
    zone = text[start:end].rpartition(".")[2]
    written = zone.lower() if zone.isupper() else zone
    known = written in _ZONES or written.startswith("xn--")
    return not known or text[end : end + 1] in ("(", "[")


def _no_address(text: str, start: int, end: int) -> bool:
    """A section number, an object identifier, a version, a network; of IPv6 what is no global unicast (RFC 4291)."""
    value, before = text[start:end], text[max(0, start - _BEFORE) : start]
    if ":" in value:
        return value[:1] not in ("2", "3") or len(value.partition(":")[0]) != 4
    if int(value.partition(".")[0]) >= 224 or (value.endswith(".0") and text[end : end + 1] == "/"):
        return True  # multicast, a whole network
    small = all(int(octet) < 100 for octet in value.split("."))  # 2 % of addresses, nearly all section numbers
    if small and not (_ADDRESS_WORDS.search(before) or _PORT.match(text, end)):
        return True
    return bool(_NUMBERING_WORDS.search(before) or _PRODUCT.search(before)) or _in_formula(text, start)


def _no_phone(text: str, start: int, end: int) -> bool:
    """Decimals, sums, tables of numbers, country codes that there are not, numbers reserved for examples."""
    value = text[start:end]
    if _FICTION.search(value) or _in_formula(text, start):
        return True
    if value.startswith("+") and not _dialled(value):
        return True
    if _PHONE_WORDS.search(text[max(0, start - _BEFORE) : start]):
        return False
    before = text[max(text.rfind("\n", max(0, start - _BEFORE), start) + 1, start - _BEFORE) : start]
    operator = _OPERATOR_BEFORE.search(before[-4:]) or _OPERATOR_AFTER.match(text, end)
    return bool(operator or _TASK_BEFORE.search(before))


def _dialled(value: str) -> bool:
    """Has an international number a country code, as many digits as that country, and separators of one kind?"""
    separators = set(value) & {".", "-", " "}
    if "." in separators and (len(separators) > 1 or value.count(".") < 2):
        return False  # a decimal, a difference of decimals
    digits = re.sub(r"\D", "", value)
    if digits[0] in "17":  # North America; Russia and Kazakhstan
        return len(digits) == 11 and digits[1] not in ("01" if digits[0] == "1" else "012")
    return _CODES.match(digits) is not None


def _no_token(text: str, start: int, end: int) -> bool:
    """Words in a row (`sk-learn-0-24-notes`, `Basic Linear-Algebra-Subprograms`), documentation's own examples."""
    value = text[start:end]
    if value.startswith("sk-") and not _RUN.search(value):
        return True
    return bool(_STANDING_IN.search(value) or _WORDS.match(value) or not _MIXED.search(value))


def _no_secret(text: str, start: int, end: int) -> bool:
    """A name in code (`password=settings.DB_PASS_2024`), a stand-in."""
    value, quoted = text[start:end], text[start - 1 : start] in ("'", '"')
    name = _WORDS.match(value) or _NAME_IN_CODE.match(value)
    return bool(_STANDING_IN.search(value) or (name and not quoted))


def _no_credentials(text: str, start: int, end: int) -> bool:
    """`://user:password@host` of a manual."""
    return text[start:end].partition(":")[2].lower() in _WORDS_FOR_PASSWORD


def _no_key_block(text: str, start: int, end: int) -> bool:
    """Header and footer named in prose, without a key between them."""
    return not _BODY.search(text, start, end)


def _in_formula(text: str, at: int) -> bool:
    """Is a place between dollar signs of its line, or in a LaTeX display or formula environment?"""
    first, last = max(0, at - _FORMULA), at + _FORMULA
    if text.find("$", first, at) < 0 and text.find("\\", first, at) < 0:
        return False
    line, end = text.rfind("\n", first, at) + 1, text.find("\n", at, last)
    before = text[max(first, line) : at].replace("\\$", "").count("$")
    if before % 2 and text.find("$", at, end if end >= 0 else last) >= 0:
        return True
    marks = [mark[0] for mark in _DISPLAY.finditer(text, first, at)]
    return bool(marks) and marks[-1].startswith(("\\[", "\\(", "\\begin"))


_TESTS: dict[str, Callable[[str, int, int], bool]] = {
    "EMAIL": _no_email,
    "IP": _no_address,
    "PHONE": _no_phone,
    "TOKEN": _no_token,
    "SECRET": _no_secret,
    "CREDENTIALS": _no_credentials,
    "PRIVATE_KEY": _no_key_block,
}
