"""What a line means that is typed into a shell, as far as pages need it without one."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
REDIRECTIONS = {"<": "input", ">": "output"}


@dataclass(frozen=True)
class Invocation:
    """A program with its arguments, its own environment, and where its streams lead."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    input: str | None = None
    output: str | None = None


def simple(text: str) -> Invocation | None:
    """Return what a command runs, or None where only a shell can tell.

    >>> simple("LEVEL=2 fiveshot show < 'a b.jpg'")
    Invocation(words=('fiveshot', 'show'), environment=(('LEVEL', '2'),), input='a b.jpg', output=None)
    >>> simple("fiveshot show birds | head") is simple("echo $HOME") is None
    True
    """
    if re.search(r"[$`~\n]|\d>", text):
        return None
    words: list[str] = []
    environment: list[tuple[str, str]] = []
    streams: dict[str, str] = {}
    tokens = iter(_tokens(text))
    for token in tokens:
        if token in REDIRECTIONS:
            streams[REDIRECTIONS[token]] = next(tokens)
        elif token and set(token) <= set("();<>|&"):
            return None
        elif not words and (set_first := ASSIGNMENT.fullmatch(token)):
            environment.append((set_first[1], set_first[2]))
        else:
            words.append(token)
    return Invocation(tuple(words), tuple(environment), **streams) if words else None


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def programs(text: str) -> list[list[str]]:
    """Return the words of every program in a line, whatever joins them.

    >>> programs("A=1 fiveshot show birds | head -3 && curl 'http://x/?a=1&b=2'")
    [['fiveshot', 'show', 'birds'], ['head', '-3'], ['curl', 'http://x/?a=1&b=2']]
    """
    found: list[list[str]] = [[]]
    for token in _tokens(text):
        if token in ("|", "||", "&&", ";", "&"):
            found.append([])
        elif found[-1] or not ASSIGNMENT.fullmatch(token):
            found[-1].append(token)
    return [words for words in found if words]
