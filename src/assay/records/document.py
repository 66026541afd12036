"""The ground that all documents stand on: strict fields, clear errors, and the rule of evolution.

A document names its `schema_version`, `MAJOR.MINOR`. A minor version only adds optional fields, each marked
here with `since`. So an older reader may ignore what it does not know, and a newer one accepts what is absent.
This reader is strict up to the version it knows (an unknown field is a typing error and is named) and lenient
above it (a later minor's fields are ignored). Another major version is refused.
"""

from __future__ import annotations

import codecs
import datetime
import json
import math
import os
import re
import stat
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import pydantic
import pydantic_core
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from assay.errors import AssayError
from assay.records import canonical

MAX_BYTES = 32 * 2**20
"""The largest document that is read, in bytes. As Python objects it may take 24 times as many."""

LATEST = (1, 3)
"""The newest schema version that this reader knows in full."""

WRITTEN = "1.2"
"""The schema version that is written unless asked for another."""

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")
_SMALL_BYTES = 2**18
_MAX_NAMES = 10_000
_MAX_ADDITIONS = 200
_SHOWN_ERRORS = 5
_SHOWN_VALUE = 80


class DocumentError(AssayError):
    """A document that cannot be read; the message names file, JSON path, value and what was expected."""


class UnreadableError(DocumentError):
    """A document that the system does not hand out: it is missing, or locked away. It may do so the next time."""


def _finite(value: Any) -> Any:
    # JSON has no infinity. A measured value that is not finite must not cost the whole record.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _real_day(value: str) -> str:
    datetime.date.fromisoformat(value)
    return value


_Int = Annotated[int, Field(ge=-(2**63), lt=2**63)]

Number = _Int | float
"""A JSON number; an integer stays one, and must fit into 64 bits."""

Measured = Annotated[Number | None, BeforeValidator(_finite, json_schema_input_type=Number | None)]
"""A measured value or null, "not measured". A value that is not finite is held as null."""

NonNegative = Annotated[
    Annotated[int, Field(ge=0, lt=2**63)] | Annotated[float, Field(ge=0)] | None,
    BeforeValidator(_finite, json_schema_input_type=Number | None),
]
"""A measured value that cannot be below zero, or null."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""How many there are of something."""

Scalar = _Int | float | str | bool | None
"""A value of a `metrics` map."""

Metrics = dict[str, Annotated[Scalar, BeforeValidator(_finite, json_schema_input_type=Scalar)]]
"""Further figures, flat; names are snake_case with the unit at the end."""

Date = Annotated[
    str,
    Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$", description="ISO 8601"),
    AfterValidator(_real_day),
]
"""A day, `YYYY-MM-DD`."""

T = TypeVar("T")

Many = Annotated[list[T], Field(fail_fast=True)]
"""A list, checked up to the first item that is wrong: 30 MB of wrong items must not become 30 GB of errors."""

Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 digest in lower-case hexadecimal."""

ModelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
"""A model's name; also the name of its folder under `cards/`."""

DeviceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
"""A device's short name; also a part of file names."""

Lane = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.:-]*$", max_length=100)]
"""An accelerator or backend. An open vocabulary: other producers have names of their own."""

Provenance = Annotated[str, Field(pattern=r"^(measured|example)$", description="measured or example")]
"""`measured`: this was run. `example`: synthetic data, or weights that are random."""

SchemaVersion = Annotated[str, Field(pattern=r"^\d{1,4}\.\d{1,4}$")]
"""`MAJOR.MINOR`."""


def since(version: str, **options: Any) -> Any:
    """Marks an optional field that `version` added: older documents do not have it."""
    return Field(json_schema_extra={"x-since": version}, **options)


def plain(value: Any) -> Any:
    """JSON values of Python ones: tuples become lists, NumPy's scalars numbers, what is not finite null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast(list[Any], value)]
    if isinstance(value, bool | int | None):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


class Part(BaseModel):
    """A JSON object with known fields. Fields that were not set are not written."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    def to_value(self) -> dict[str, Any]:
        """This object as JSON values; what was read comes back as the same value."""
        return plain(self.model_dump(exclude_unset=True))


class Document(Part):
    """A JSON object that is a file of its own.

    Attributes:
        schema_version: Version of the form that the document follows.
    """

    schema_version: SchemaVersion

    def to_json(self) -> str:
        """The canonical text of this document."""
        return canonical.dumps(self.to_value())


D = TypeVar("D", bound=Document)
P = TypeVar("P", bound=Part)


def read(path: Path, form: type[D]) -> D:
    """Read one document.

    Args:
        path: A JSON file.
        form: What it must be.

    Raises:
        DocumentError: It is missing, too large, not JSON, of another major version, or not of this form.
    """
    return parse(read_bytes(path), form, path)


def read_bytes(path: Path) -> bytes:
    """The bytes of a document, at most `MAX_BYTES`.

    Raises:
        UnreadableError: The file is missing or cannot be read.
        DocumentError: It is too large, or not a plain file.
    """
    try:
        # Opening a pipe would wait for someone to write into it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DocumentError(f"{path} is not a plain file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise DocumentError(f"{path} is larger than {MAX_BYTES // 2**20} MiB", fix="records are far smaller")
    return data


def parse(data: bytes, form: type[D], source: Path | str) -> D:
    """Check one document.

    Args:
        data: Its JSON text.
        form: What it must be.
        source: Where it came from, for the error.

    Raises:
        DocumentError: As for `read`.
    """
    value = parse_json(data, source)
    return check(value, form, source)


def parse_json(data: bytes, source: Path | str) -> Any:
    """The JSON value of a text; infinities and NaN, which JSON does not have, are refused.

    Raises:
        DocumentError: It is not JSON, or has an object with more names than any document has.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DocumentError(f"{source} is UTF-16 text, and JSON is UTF-8", fix="save it as UTF-8")
    try:
        value = pydantic_core.from_json(data.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        what = "is empty" if not data.strip() else f"is not JSON: {error}"
        raise DocumentError(f"{source} {what}", fix="was it cut short, or edited by hand?") from error
    if len(data) > _SMALL_BYTES and (names := _most_names(value)) > _MAX_NAMES:
        raise DocumentError(f"{source} has an object with {names} names, more than {_MAX_NAMES}")
    return value


def _most_names(value: Any) -> int:
    """Names in the largest object: each unknown one becomes an error of a kilobyte."""
    most = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            most = max(most, len(cast(dict[str, Any], item)))
            waiting += cast(dict[str, Any], item).values()
        elif isinstance(item, list):
            waiting += cast(list[Any], item)
    return most


def check(value: Any, form: type[D], source: Path | str) -> D:
    """Check a JSON value against a form, by the rule of evolution.

    Raises:
        DocumentError: It is of another major version, or not of this form.
    """
    version = _version(value, source)
    document = conform(value, form, source, lenient=version > LATEST)
    early = next(_too_early(document, version, "$"), None)
    if early is not None:
        path, field_version = early
        raise DocumentError(
            f"{source}: at {path}: this field came with schema {field_version}, and the document says "
            f"{version[0]}.{version[1]}",
            fix=f'set "schema_version" to "{field_version}"',
        )
    return document


def conform(value: Any, form: type[P], source: Path | str, *, lenient: bool = False) -> P:
    """Check a value against a form, whatever its version.

    Args:
        value: JSON values.
        form: What it must be.
        source: Where it came from, for the error.
        lenient: Ignore fields that the form does not have.

    Raises:
        DocumentError: It is not of this form.
    """
    whole = value
    # A list tells of its first wrong item alone, so there may be more to leave out after each time.
    for attempt in range(_MAX_ADDITIONS + 1):
        try:
            return form.model_validate(value)
        except pydantic.ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            known = any(problem["type"] != "extra_forbidden" for problem in problems)
            if known or not lenient or attempt == _MAX_ADDITIONS:
                raise DocumentError(_describe(problems, whole, source)) from error
            value = _without(value, [problem["loc"] for problem in problems])
    raise AssertionError


def schema_version(value: object) -> tuple[int, int]:
    """`MAJOR.MINOR` as numbers; (0, 0) if it is something else."""
    match = _VERSION.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _version(value: Any, source: Path | str) -> tuple[int, int]:
    if not isinstance(value, dict):
        raise DocumentError(f"{source}: at $: got {shown(value)}, expected an object")
    stated = cast(dict[str, Any], value).get("schema_version")
    version = schema_version(stated)
    if version == (0, 0):
        got = "nothing" if stated is None else shown(stated)
        raise DocumentError(f'{source}: at $.schema_version: got {got}, expected a text such as "{WRITTEN}"')
    if version[0] != LATEST[0]:
        raise DocumentError(
            f"{source}: at $.schema_version: got {shown(stated)}, expected major version {LATEST[0]}",
            fix="a newer Assay may read it" if version > LATEST else "",
        )
    return version


def shown(value: Any) -> str:
    """A JSON value for an error message: short, on one line, with its type where that helps."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    text = text if len(text) <= _SHOWN_VALUE else text[:_SHOWN_VALUE] + "..."
    return f"{text} (text)" if isinstance(value, str) else text


def _describe(problems: list[Any], value: Any, source: Path | str) -> str:
    lines: dict[str, list[str]] = {}
    for problem in problems:
        path, found, missing = _locate(problem, value)
        got = "nothing" if missing else f"got {shown(found)}"
        if problem["type"] == "extra_forbidden":
            text = f"at {path}: unknown field with value {shown(found)}, expected only known fields"
            lines.setdefault(text, [])
            continue
        lines.setdefault(f"at {path}: {'got nothing' if missing else got}", []).append(_expected(problem))
    texts = [
        text + (", expected " + " or ".join(dict.fromkeys(wants)) if wants else "")
        for text, wants in lines.items()
    ]
    more = f" (and {len(texts) - _SHOWN_ERRORS} more)" if len(texts) > _SHOWN_ERRORS else ""
    return f"{source}: " + "; ".join(texts[:_SHOWN_ERRORS]) + more


def _locate(problem: Any, value: Any) -> tuple[str, Any, bool]:
    """JSON path of an error, the value there, and whether it is missing."""
    path, current = "$", value
    for step in problem["loc"]:
        if isinstance(step, int) and isinstance(current, list):
            path, current = f"{path}[{step}]", cast(list[Any], current)[step]
        elif isinstance(current, dict) and isinstance(step, str) and step in current:
            path, current = f"{path}.{step}", cast(dict[str, Any], current)[step]
        elif problem["type"] == "missing" and step == problem["loc"][-1]:
            return f"{path}.{step}", None, True
        # What is left are pydantic's own names for the members of a union: no part of the document.
    return path, current, False


_EXPECTATIONS = {
    "missing": "this field",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "bool_type": "true or false",
    "none_required": "null",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "extra_forbidden": "no such field",
}


def _expected(problem: Any) -> str:
    message = str(problem["msg"])
    named = _EXPECTATIONS.get(problem["type"])
    return named or re.sub(r"^(Value error, |Input should be |String should |List should )", "", message)


def _without(value: Any, locations: list[tuple[int | str, ...]]) -> Any:
    """A value less the fields at these places, and at the same place of all other items of the lists there."""
    copy = json.loads(json.dumps(value))
    for location in locations:
        parents: list[Any] = [copy]
        for step in location[:-1]:
            if isinstance(step, int):
                parents = [item for parent in parents for item in parent]
            else:
                # Other steps are pydantic's names for the members of a union.
                inside = [parent[step] for parent in parents if isinstance(parent, dict) and step in parent]
                parents = inside or parents
        for parent in parents:
            if isinstance(parent, dict):
                cast(dict[str, Any], parent).pop(str(location[-1]), None)
    return copy


def _too_early(part: Part, version: tuple[int, int], path: str) -> Iterator[tuple[str, str]]:
    if not _has_additions(type(part)):
        return
    for name in part.model_fields_set:
        added = _added_in(type(part).model_fields[name])
        if schema_version(added) > version:
            yield f"{path}.{name}", str(added)
        yield from _inside(getattr(part, name), version, f"{path}.{name}")


def _inside(value: Any, version: tuple[int, int], path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Part):
        yield from _too_early(value, version, path)
    elif isinstance(value, list) and value and isinstance(value[0], Part):
        for index, item in enumerate(cast(list[Part], value)):
            yield from _too_early(item, version, f"{path}[{index}]")


def _added_in(field: FieldInfo) -> Any:
    extra = field.json_schema_extra
    return extra.get("x-since") if isinstance(extra, dict) else None


@cache
def _has_additions(form: type[Part]) -> bool:
    """Whether a form or a part of it has a field that a later version added; most records have none."""
    return any(
        _added_in(field) is not None or any(_has_additions(part) for part in _parts(field.annotation))
        for field in form.model_fields.values()
    )


def _parts(annotation: Any) -> list[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return [annotation]
    return [part for inner in typing.get_args(annotation) for part in _parts(inner)]
