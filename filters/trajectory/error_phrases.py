"""How failures are worded: one pattern a kind of source. text_errors.py says where each is looked for.

From general knowledge of getopt and argparse, find, git, shells, Python, node, Java, Rust and Go traces, compilers and
build tools, MySQL, PostgreSQL, SQLite, Oracle and SQL Server messages, HTTP clients, editing tools, agent harnesses and
test runners. Patterns are tried on single lines of bounded length.
"""

from __future__ import annotations

import re

__all__ = [
    "COMPILER",
    "EDIT",
    "EXCEPTION",
    "FATAL",
    "FORMAT",
    "HTTP",
    "REFUSAL",
    "SQL",
    "SUBJECT",
    "SYNTAX",
    "TAGGED",
    "TEST_REPORT",
    "TIMEOUT",
    "TRACEBACK",
    "USAGE",
]

# getopt, argparse, find, git, click and friends refusing a command line.
USAGE = re.compile(
    r"\b(?:invalid|illegal|unknown|unrecogni[sz]ed|ambiguous|unsupported|unexpected|bad|missing)\s+(?:\w+\s+){0,2}"
    r"(?:option|argument|operand|predicate|primary|flag|switch|command|subcommand|expression|parameter|mode|suffix|"
    r"number|field|regular expression|file descriptor|substitution|interpreter|operator|token|key|keyword|delimiter)\b"
    r"|\boption\b.{0,60}\b(?:requires|doesn't allow|is ambiguous|not recogni[sz]ed|is unknown)\b"
    r"|\brequires? (?:an?|at least|exactly)\b.{0,40}\b(?:argument|value|parameter|operand)"
    r"|\bargument.{0,60}\b(?:required|expected|is required|are required|too long|is not)\b"
    r"|\btoo (?:few|many) (?:arguments|operands|parameters|levels|open files)\b"
    r"|\bTry [`'‘\"].{1,60} (?:--?help|-h)\b|\b(?:must|should) (?:be followed|precede|specify|follow|be specified"
    r"|be one of|be used)\b"
    r"|\bno such (?:option|command|subcommand|group|method|tool|function)\b|\bno (?:input )?files?\b.{0,20}$",
    re.I,
)
REFUSAL = re.compile(
    r"\b(?:cannot|can't|can not|could not|couldn't|unable to|failed|failure|not found|does not exist|doesn't exist|"
    r"no such|not permitted|denied|refused|timed out|not a |is a directory|already exists|not supported|unsupported|"
    r"out of range|invalid|illegal|malformed|unexpected|unterminated|unmatched|undefined|unbound|mismatch|missing|"
    r"syntax|parse error|bad |fatal|error|abort|too (?:long|large|many|few)|not recogni[sz]ed|unknown|exceeds|"
    r"overflow|not in \w+ format|no module named|corrupt|read-only|busy|expected|required|ambiguous|killed"
    r"|segmentation|core dumped|in reverse)",
    re.I,
)
SYNTAX = re.compile(
    r"\b(?:syntax error|parse error|SyntaxError|unexpected (?:EOF|end of (?:file|input|JSON|string)|token"
    r"|character|indent|"
    r"identifier|symbol|newline|keyword)|unterminated (?:string|quoted|address|`|s|regexp)|unmatched ['\"`(\[{]|"
    r"unbalanced|bad substitution|command not found|event not found|no matches found:|bad interpreter|"
    r"-c: line \d+:)"
    r"|\bis not recogni[sz]ed as (?:an internal|the name of|a )",
    re.I,
)
EXCEPTION = re.compile(
    r"(?:[A-Za-z_][\w$]*[.:]{1,2})*(?:[A-Z][\w$]*(?:Error|Exception|Fault|Failure|Interrupt)|KeyboardInterrupt"
    r"|SystemExit|Error|Exception|"
    r"StopIteration)(?:\s*\[\w+\])?(?:: |:?$)"
)
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|^\s*at .{1,200}\(.*:\d+(?::\d+)?\)$|^thread '.*' panicked at|^panic: "
    r"|^goroutine \d+ \[",
    re.M,
)
FATAL = re.compile(
    r"(?:(?:an?|the|internal|unexpected|runtime|server|compilation|execution|tool|command|system|unknown|fatal"
    r"|critical|api|request|"
    r"validation|input|network|http|connection|uncaught|unhandled)\s+)*"
    r"(?:error|exception|fatal|failed|failure|panic|abort(?:ed)?|traceback|invalid|denied|unauthori[sz]ed|forbidden)\b"
    r"(?:\s+(?:executing|running|calling|in|while|during|when|on|at|from|with|occurred|processing|reading|parsing"
    r"|invoking|to)\b.{0,80}?|"
    r"\s*(?:code|type|message)?\s*[\[(#]?\w{0,12}[\])]?)?\s*(?:[:!]|$|\bto\b)",
    re.I,
)
TAGGED = re.compile(
    r"[\[<(*#❌✗✖\s]*(?:error|failed|failure|exception|fatal|tool_use_error|stderr)\b[\])>*:]"
    r"|(?:can't|cannot|could not|couldn't|unable to|failed to) [a-z]",
    re.I,
)
SQL = re.compile(
    r"\berror in your SQL syntax\b|\b(?:unknown|no such|invalid|ambiguous|undefined) (?:column|table|database"
    r"|index|view|schema|function|relation)\b"
    r"|\b(?:table|relation|column|database|schema|view|function)\b.{1,120}\b(?:does(?:n't| not) exist"
    r"|is ambiguous|not found|already exists)\b"
    r"|\bERROR \d{3,5} \(\w{5}\)|\bORA-\d{4,5}\b|\bSQLSTATE\b|\bPLS-\d+\b|\bMsg \d+, Level \d+"
    r"|\b(?:near|at or near) [\"'`].{0,60}[\"'`]: syntax error|\binvalid use of (?:group|null)\b"
    r"|\b(?:UNIQUE|FOREIGN KEY|NOT NULL|CHECK) constraint failed\b|\bduplicate entry\b|\bdeadlock found\b"
    r"|\bunrecognized token\b|\bwrong number of arguments\b|\bmisuse of aggregate\b|\bincomplete input\b",
    re.I,
)
HTTP = re.compile(
    r"HTTP/\d(?:\.\d)?\"? [45]\d\d\b|\b(?:HTTP|status)(?:[ _]?(?:error|code|status))*\s*[:=]?\s*[45]\d\d\b"
    r"|^\s*[45]\d\d (?:Client Error|Server Error|Bad Request|Unauthorized|Forbidden|Not Found|Too Many|Internal"
    r"|Bad Gateway|Service)"
    r"|\b(?:connection (?:refused|reset|aborted|timed out|error)|name or service not known|could not resolve host|"
    r"temporary failure in name resolution|max retries exceeded|ECONN\w+|ENOTFOUND|ETIMEDOUT"
    r"|rate limit (?:exceeded|reached))\b",
    re.I,
)
TIMEOUT = re.compile(
    r"\b(?:command|execution|process|request|operation|query|script|tool|call|session|it|job"
    r"|test)\b.{0,40}\b(?:timed[ -]?out|exceeded (?:the )?(?:time|timeout))"
    r"|^\W*(?:timed[ -]?out|time[ -]?out|time limit exceeded|killed|terminated|segmentation fault|bus error"
    r"|aborted|out of memory|stack overflow)\b"
    r"|\b(?:time ?out|timeout|time limit) (?:of .{1,20} )?(?:exceeded|reached|expired|error)\b|\bcore dumped\b"
    r"|\bstopped after .{1,20} timeout\b",
    re.I,
)
COMPILER = re.compile(
    r"\S{1,200}?[:(]\d+(?:[:,]\d+)?\)?: (?:fatal )?error\b|(?:fatal )?error(?:\[E\d+\]| TS\d+| CS\d+| C\d{4}): "
    r"|npm ERR!|ERR_\w+|make(?:\[\d+\])?: \*\*\*"
    r"|BUILD FAILED|\[ERROR\]|(?:ld|collect2|cc1|gcc|clang|rustc|javac|go)(?:\.\w+)?: .*\berror\b"
    r"|undefined reference to|error: aborting due to",
)
EDIT = re.compile(
    r"\bno replacement (?:was|were) (?:performed|made)\b|\bno (?:changes|edits?|modifications?) (?:was"
    r"|were) (?:made|applied|performed)\b"
    r"|\b(?:string|text|block|snippet|pattern|old_str(?:ing)?|oldText|search (?:text|block|string)|hunk"
    r"|context)\b.{0,80}"
    r"\b(?:not found|did not (?:appear|match|occur)|does not (?:appear|match|exist|occur)|was not found"
    r"|could not be (?:found|located)|is not unique|must be unique|not present|failed)\b"
    r"|\bmultiple (?:occurrences|matches) (?:of|found|for)\b|\bfound \d+ (?:matches|occurrences) of\b"
    r"|\bfile has not been read\b|\bhas been (?:modified|changed) since\b|\bedit (?:has )?(?:introduced|failed"
    r"|was not applied|rejected)|\bsyntax error\(s\)"
    r"|\bpatch (?:failed|does not apply)\b|\bhunk #?\d* ?failed\b|\breversed \(or previously applied\)",
    re.I,
)
FORMAT = re.compile(
    r"\bno (?:[\w-]+ ){0,3}(?:code|command|action|tool call|function call|query|block"
    r"|response)s?\b.{0,30}\b(?:found|provided|detected|given|in your)\b"
    r"|\byour (?:last |previous )?(?:[`'\"\w]+ )?(?:response|output|reply|action|answer|command|message|call"
    r"|request)\b.{0,60}"
    r"\b(?:(?:was|is|did|does|could) ?(?:not|n't) (?:valid|formatted|formed|contain|parse|be parsed|include|match"
    r"|follow|specify|provide|correct|properly|have)|could not|couldn't|invalid|malformed|missing|must be"
    r"|must contain|failed)\b"
    r"|\b(?:could not|failed to|unable to|cannot|can't|error) (?:be )?(?:pars(?:e|ed|ing)|decod(?:e|ed|ing)"
    r"|interpret(?:ed)?)\b"
    r"|\bmalformed (?:command|call|action|input|response|output|request|json|query|expression)\b"
    r"|\b(?:invalid|bad|wrong|incorrect|improper) (?:command|json|format|input|action|syntax|arguments?"
    r"|parameters?|tool(?: call| name)?|function(?: name)?|request|query|response|value|path|type)\b"
    r"|\b(?:unknown|unsupported|unavailable|no such|nonexistent|undefined) (?:command|action|tool|function|method"
    r"|environment|operation|parameter|argument)\b"
    r"|\b(?:tool|function|action|command|method)\b.{0,60}\b(?:not (?:found|available|exist|recogni[sz]ed"
    r"|supported|allowed|defined|permitted)|does(?:n't| not) exist|is disabled|is unknown)\b"
    r"|\b(?:missing|required) (?:\w+ ){0,2}(?:parameter|argument|field|property|key)s?\b|\b(?:parameter|argument"
    r"|field|property)s? .{1,60}\b(?:is|are) (?:missing|required|invalid)\b"
    r"|\b(?:schema|input|json|type|argument) validation (?:error|failed)\b|\bvalidation errors? for\b",
    re.I,
)
SUBJECT = re.compile(
    r"^\W{0,3}(?:the |this |that |sorry,? |requested |specified |given )*[\w'\"` ./#@:-]{0,60}?\b(?:not found"
    r"|does(?:n't| not) exist|is not (?:valid|allowed|found|available|supported|permitted|accessible)|"
    r"cannot be \w+|could not be \w+|is required|not authori[sz]ed|is unavailable|already exists|access denied"
    r"|permission denied)\b[^\n]{0,80}$",
    re.I,
)
TEST_REPORT = re.compile(
    r"^=+ .*\b\d+ (?:failed|passed|errors?|skipped|xfailed)\b.* =+$|^\d+ (?:failed"
    r"|passed)(?:, \d+ \w+)*(?: in [\d.]+s.*)?$"
    r"|^(?:FAILED|OK)(?: \((?:\w+=\d+(?:, )?)+\))?$|^Ran \d+ tests? in [\d.]+s$"
    r"|^Tests:\s+.*\b\d+ (?:failed|passed|total)\b|^\s*\d+ (?:passing|failing|pending)\b|^--- (?:FAIL|PASS): "
    r"|^(?:FAIL|ok)\s+\S+\s+[\d.(]+"
    r"|^test result: (?:FAILED|ok)\. \d+ passed|^Tests run: \d+, Failures: \d+|^# (?:tests|pass|fail)\s+\d+"
    r"|^(?:not )?ok \d+ |^\d+ examples?, \d+ failures?"
    r"|^(?:FAILED|PASSED|ERROR) \S+::\S+|^\d+(?:/\d+)? tests? (?:passed|failed)\b"
    r"|^\d+ of \d+ (?:tests? )?(?:passed|failed)\b"
    r"|^(?:passed|failed):? \d+\b|^\S+ \.{2,} (?:FAIL|ok|ERROR)$",
    re.M | re.I,
)
