"""Takes out of a text what does not leave this machine: a program's own words, private passages, and keys."""

import re

# Around the context that a hook puts in: what was recalled is not captured again.
CONTEXT_TAG = "recollect-context"
PRIVATE, KEY = "[private]", "[key]"
# The programs put in them what is not the user's words: context of hooks, instructions, files, output of commands.
PROGRAM_TAGS = (
    "hook_context", "system-reminder", "user-prompt-submit-hook", "session-start-hook", "environment_context",
    "user_instructions", "INSTRUCTIONS", "permissions", "skill", "ide_selection", "ide_opened_file", "ide_diagnostics",
    "new-diagnostics", "local-command-stdout", "local-command-stderr", "bash-stdout", "bash-stderr", "persisted-output",
    "task-notification", "session_context",
)  # fmt: skip
_INSTRUCTIONS = re.compile(r"^# AGENTS\.md instructions[^\n]{0,500}$", re.MULTILINE)

_KEYS = re.compile(
    r"\b(?:"
    r"sk-[A-Za-z0-9_-]{16,200}|(?:gh[opsur]|glpat|npm|hf|rcat|rcrt|pypi)[_-][A-Za-z0-9_-]{16,300}"
    r"|github_pat_[A-Za-z0-9_]{20,200}|xox[abeoprs]-[A-Za-z0-9-]{10,200}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,60}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,200}|SG\.[A-Za-z0-9_.-]{20,200}"
    r"|eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{4,4000}(?:\.[A-Za-z0-9_-]{0,4000})?"
    r")"
)
# A name that says what the value is, then the value; the name stays.
_NAMED = re.compile(
    r"(?i)(?P<name>\b[A-Za-z0-9_-]{0,40}(?:api[_-]?key|secret|passw(?:or)?d|passphrase|access[_-]?token|auth[_-]?token"
    r"|private[_-]?key|credential)[A-Za-z0-9_-]{0,20}[\"']{0,1}[ \t]{0,4}(?:=|:)[ \t]{0,4})"
    r"(?P<value>\"[^\"\n]{4,500}\"|'[^'\n]{4,500}'|[^\s\"',;]{4,500})"
)
_BEARER = re.compile(r"(?i)\b(?P<name>(?:bearer|token|basic)[ \t]{1,4})(?=[^\s]{0,200}[0-9])[A-Za-z0-9._~+/=-]{20,500}")
_IN_ADDRESS = re.compile(r"(?P<name>[a-z][a-z0-9+.-]{1,20}://)[^\s:/@]{0,100}:[^\s/@]{1,200}@")


def redacted(text: str) -> str:
    """Without what was recalled or added by a program, without what is marked as private, and without keys."""
    for tag in (*PROGRAM_TAGS, CONTEXT_TAG):
        text = _between(text, f"<{tag}>", f"</{tag}>", "", needs_end=True)
    text = _INSTRUCTIONS.sub("", text)
    text = _between(text, "<private>", "</private>", PRIVATE)
    text = _between(text, "-----BEGIN ", "-----END ", KEY, only_with="PRIVATE KEY", takes_line=True)
    text = _KEYS.sub(KEY, text)
    text = _BEARER.sub(rf"\g<name>{KEY}", text)
    text = _IN_ADDRESS.sub(rf"\g<name>{KEY}@", text)
    return _NAMED.sub(rf"\g<name>{KEY}", text)


def _between(
    text: str,
    begin: str,
    end: str,
    instead: str,
    *,
    only_with: str = "",
    takes_line: bool = False,
    needs_end: bool = False,
) -> str:
    """Replaces each passage from `begin` to `end`; one without an end reaches to the end of the text, or stays."""
    parts, at = [], 0
    while (start := text.find(begin, at)) >= 0:
        stop = text.find(end, start + len(begin))
        if stop < 0 and needs_end:
            break
        after = len(text) if stop < 0 else stop + len(end)
        if takes_line and stop >= 0:
            line_end = text.find("\n", after)
            after = len(text) if line_end < 0 else line_end
        is_meant = not only_with or only_with in text[start : start + 60]
        parts += [text[at:start], instead if is_meant else text[start:after]]
        at = after
    return "".join([*parts, text[at:]])
