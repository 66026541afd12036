"""Names for paths: what is published says which file it was, not where on whose machine it lay.

A path below the current folder stays relative to it. Another absolute path becomes its last part. Paths of the
system, such as a driver's, are facts and stay; so do addresses, and names of tensors that look like paths.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import re
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_PROGRAMS = (r"C:\Program Files (x86)", r"C:\Program Files", r"C:\Windows")
_SYSTEM = (
    *("/Applications", "/Library", "/System", "/apex", "/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64"),
    *("/proc", "/sbin", "/sys", "/system", "/usr", "/vendor"),
    *_PROGRAMS,
)
_TEMPORARY = ("/dev/shm", "/usr/tmp")
_HOMES = ("home", "Users")
_ROOTS = frozenset(
    {"data", "home", "media", "mnt", "opt", "private", "root", "run", "sdcard", "srv", "storage", "tmp", "Users"}
    | {"var", "Volumes"}
)
"""Folders at the top of file systems; a tensor's name such as `/encoder/conv1/Conv` begins with none of them."""

_FILE = re.compile(
    r"\.(?:bin|cache|cc|cpp|css|dll|dylib|exe|h|html?|jpe?g|js|json|jsonl|litertlm|lock|log|md|mjs|npy|npz|onnx|pdf|"
    r"png|pth?|py|safetensors|so|sock|task|tflite|toml|txt|wasm|whl|ya?ml|zip|\w+_cache)\b"
)
_NOBODY = frozenset({"", "root", "localhost"})

# Where a path may begin: not within a word or another path, but after an option's letter.
_BEGINS = r"(?:(?<![\w.~/\\%+-])(?<!<host>)(?<!<user>)|(?<=(?<![\w-])-[A-Za-z]))"
# What a path in a text is made of. A comma ends it where another entry of a list follows.
_WITHIN = r"(?:[^\s'\"`<>|;:,]|,(?![\s/\\~]|[\w.-]+=|[A-Za-z]:[\\/]|$))"
_AFTER = ".,!?)]}"
_ROOT = r"(?:~(?:[A-Za-z_][\w.-]*)?/|(?:\.\.[\\/])+|/|[A-Za-z]:[\\/]|\\\\(?=\w))"
_ADDRESS = r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>`]*"
_ARGUMENT = re.compile(rf"(?s)(?P<lead>(?:[^=/\\~:]*=)*|-[A-Za-z])(?P<path>{_ROOT}.*)")
_SEVERAL = re.compile(rf"[,;:=]{_ROOT}")


@dataclass(frozen=True)
class Here:
    """What a place calls itself, all of which is left out.

    Attributes:
        folders: Names of the current folder; paths below it are written relative to it.
        homes: Names of the user's home folder.
        user: The user's name.
        host: The machine's name.
        roots: Folders at the top of the file system.
    """

    folders: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    user: str = ""
    host: str = ""
    roots: frozenset[str] = _ROOTS

    @classmethod
    def now(cls) -> Here:
        """This process's folder, user and machine."""
        home, folders, tops, user = os.path.expanduser("~"), list[str](), list[str](), ""  # noqa: PTH111
        with contextlib.suppress(OSError):
            folders = [str(Path.cwd())]
            # The shell's own name for it, which may go by links.
            folders += [name for name in [os.environ.get("PWD", "")] if os.path.realpath(name) == folders[0]]
            tops = [entry.name for entry in Path(Path.cwd().anchor).iterdir()]
        with contextlib.suppress(Exception):  # Nobody has the user's number; what is raised then varies.
            user = getpass.getuser()
        homes = _distinct([home, os.path.realpath(home)])
        temporary = tempfile.gettempdir()
        kept = [folder for folder in folders if not _is_above(folder, homes, temporary)]
        return cls(_distinct(kept), homes, user, socket.gethostname(), _ROOTS | frozenset(tops))


NOWHERE = Here()
"""No place in particular: the same text gives the same names wherever it is read."""


def scrub(text: str, here: Here | None = None) -> str:
    """A text, such as a log line, with names for paths.

    A path that begins like none of a file system and ends like no file is taken for a tensor's name and stays.

    Args:
        text: Any text.
        here: The place that it speaks of; this process's by default.
    """
    return _Scrubber.of(here or Here.now()).text(text)


def scrub_command(command: Sequence[str], here: Here | None = None) -> list[str]:
    """A command line with names for paths; each argument that begins with a path is one, spaces and all.

    Args:
        command: The program and its arguments.
        here: The place that it was called from; this process's by default.
    """
    scrubber = _Scrubber.of(here or Here.now())
    return [scrubber.argument(argument) for argument in command]


def scrub_values(value: Any, here: Here | None = None) -> Any:
    """JSON values with names for the paths in every text; keys stay as they are."""
    scrubber = _Scrubber.of(here or Here.now())

    def scrubbed(value: Any) -> Any:
        if isinstance(value, str):
            return scrubber.text(value)
        if isinstance(value, dict):
            return {key: scrubbed(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [scrubbed(item) for item in value]
        return value

    return scrubbed(value)


class _Scrubber:
    """The patterns of one place."""

    @staticmethod
    @functools.lru_cache(maxsize=8)
    def of(here: Here) -> _Scrubber:
        return _Scrubber(here)

    def __init__(self, here: Here) -> None:
        self._here = here
        self._user = "" if here.user in _NOBODY else here.user
        # Folders that are known may have spaces in their names.
        known = sorted((*here.folders, *here.homes, *_PROGRAMS), key=len, reverse=True)
        literals = "".join(rf"{re.escape(folder)}(?=[\\/\s'\"`<>|;:,]|$)|" for folder in known)
        self._paths = re.compile(
            rf"(?P<address>{_ADDRESS})"
            rf"|{_BEGINS}(?P<quote>['\"`])(?P<quoted>{_ROOT}[^'\"`\n]*)(?P=quote)"
            rf"|{_BEGINS}(?P<path>(?:{literals}{_ROOT}){_WITHIN}*)"
        )
        self._names = [(re.compile(rf"(?<![\w-])~{re.escape(self._user)}(?![\w-])"), "~")] if self._user else []
        self._names += _called(here.user, "<user>", r"{}(?=@)")
        hosts = _distinct([here.host, here.host.partition(".")[0]])
        self._names += [
            pattern for host in hosts for pattern in _called(host, "<host>", r"(?<=@){}|(?<=//){}(?=[:/])")
        ]

    def text(self, text: str) -> str:
        """The text with names for paths."""
        return self._nameless(self._paths.sub(self._replaced, text))

    def argument(self, argument: str) -> str:
        """The argument with a name for its path."""
        match = _ARGUMENT.fullmatch(argument)
        if match is None or _SEVERAL.search(match["path"], 2):
            return self.text(argument)
        return self._nameless(match["lead"] + self._name(match["path"], certain=True))

    def _replaced(self, match: re.Match[str]) -> str:
        if (address := match["address"]) is not None:
            scheme, _, path = address.partition("://")
            return address if scheme.lower() != "file" else self._name(unquote(path), certain=True)
        if (quoted := match["quoted"]) is not None:
            name = self._name(quoted)
            # What does not begin with a path may have one further on.
            name = self._paths.sub(self._replaced, quoted) if name == quoted else name
            return f"{match['quote']}{name}{match['quote']}"
        path = match["path"].rstrip(_AFTER) if match["path"] not in self._here.folders else match["path"]
        return self._name(path) + match["path"][len(path) :]

    def _name(self, path: str, *, certain: bool = False) -> str:
        """The name for a path; where it may be a tensor's name, the path as it is unless `certain`."""
        parts = [part for part in re.split(r"[\\/]+", path) if part]
        if not parts:
            return path
        for folder in self._here.folders:
            below = _below(path, folder)
            if below is not None and not self._tells(re.split(r"[\\/]+", below)):
                return below
        *above, last = parts
        homes = any(_below(path, home) == "." for home in self._here.homes)
        if homes or (above and above[-1] in _HOMES and len(above) <= 2) or parts in (["root"], ["~"]):
            return "~"
        if _is_system(path, parts) and not self._tells(parts):
            return path
        plain = path.startswith("/") and not path.startswith("//")
        if plain and not certain and parts[0] not in self._here.roots and not _FILE.search(last):
            return path
        if path.startswith("~") and not above:
            return "~"
        return "<user>" if last == self._user else last

    def _tells(self, parts: Sequence[str]) -> bool:
        """Whether parts of a path name the user, or what lies outside."""
        return ".." in parts or (self._user != "" and self._user in parts)

    def _nameless(self, text: str) -> str:
        for pattern, name in self._names:
            text = pattern.sub(name, text)
        return text


def _called(name: str, instead: str, contexts: str) -> list[tuple[re.Pattern[str], str]]:
    """Where a name stands for somebody; a plain word may mean itself, but for certain contexts."""
    if name.lower() in _NOBODY:
        return []
    word = re.escape(name)
    anywhere = rf"(?<![\w.-]){word}(?![\w-])"
    pattern = contexts.replace("{}", word) if name.isalpha() else anywhere
    return [(re.compile(pattern), instead)]


def _below(path: str, folder: str) -> str | None:
    """The path relative to a folder, `.` for the folder itself; None if it is not below."""
    bare = folder.rstrip("\\/")
    if path.rstrip("\\/") == bare:
        return "."
    return path[len(bare) + 1 :] if path.startswith((f"{bare}/", f"{bare}\\")) else None


def _is_system(path: str, parts: Sequence[str]) -> bool:
    if any(part in _HOMES for part in parts):
        return False
    if any(_below(path, folder) is not None for folder in _TEMPORARY):
        return False
    return any(_below(path, folder) is not None for folder in _SYSTEM)


def _is_above(folder: str, homes: Sequence[str], temporary: str) -> bool:
    """Whether what is below the folder may be another's, or a folder's that nobody chose."""
    parts = [part for part in re.split(r"[\\/]+", folder) if part]
    return (
        not parts
        or parts[-1] in _HOMES
        or any(_below(home, folder) not in (None, ".") for home in homes)
        or _below(temporary, folder) is not None
    )


def _distinct(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))
