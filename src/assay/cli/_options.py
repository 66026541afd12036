"""Options of the command line that are made from the fields of pydantic models: settings, and options of lanes."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


def option_parameters(
    model: type[BaseModel],
    *,
    only: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    taken: Iterable[str] = (),
) -> list[inspect.Parameter]:
    """A keyword parameter, annotated for Typer, for each field of a model that has an option.

    Args:
        model: The model. A field's `json_schema_extra` may say `flag` (the option's name), `hidden`, `env` (a
            variable with its default), `cli` (its type on the command line) and `shown` (its default as text).
        only: Fields that get one; all by default.
        defaults: Defaults that differ from the model's.
        taken: Fields that have one already.
    """
    parameters: list[inspect.Parameter] = []
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if (only is not None and name not in only) or name in taken or extra.get("hidden"):
            continue
        kind, default = _on_the_command_line(field, extra)
        flag = f"--{str(extra.get('flag') or name).replace('_', '-')}"
        names = [f"{flag}/--no-{flag[2:]}"] if default is None and _plain(kind) is bool else [flag]
        option = typer.Option(
            *names,
            help=field.description,
            envvar=extra.get("env"),  # type: ignore[arg-type]
            show_default=bool(default) and not isinstance(default, bool),
            **_bounds(field),
        )
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=(defaults or {}).get(name, default),
                annotation=Annotated[kind, option],
            )
        )
    return parameters


def _on_the_command_line(field: FieldInfo, extra: Mapping[str, Any]) -> tuple[Any, Any]:
    """A field's type and default as Typer takes them."""
    kind, default = field.annotation, field.default
    if "cli" in extra:
        kind = extra["cli"]
        default = extra.get("shown")
        return (kind, default) if default is not None else (kind | None, None)
    if get_origin(kind) is tuple:
        return list[str] | None, None
    plain = _plain(kind)
    if get_origin(plain) is Literal:
        kind = str | None if default is None else str
    return kind, default


def _plain(kind: Any) -> Any:
    """A type without its `| None`."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(each for each in get_args(kind) if each is not type(None))
    return kind


def _bounds(field: FieldInfo) -> dict[str, Any]:
    low = next((each.ge for each in field.metadata if getattr(each, "ge", None) is not None), None)
    high = next((each.le for each in field.metadata if getattr(each, "le", None) is not None), None)
    return {name: value for name, value in (("min", low), ("max", high)) if value is not None}


def with_options(**groups: Callable[[], list[inspect.Parameter]]) -> Callable[[Callable[..., None]], Any]:
    """Give a command the options of groups of parameters; each group reaches it as a dictionary of its name.

    What the user left at a default that stands for "not asked for" (None) is not in the dictionary.
    """

    def decorate(command: Callable[..., None]) -> Any:
        made = {group: make() for group, make in groups.items()}
        own = [p for name, p in inspect.signature(command, eval_str=True).parameters.items() if name not in groups]

        @functools.wraps(command)
        def call(**given: Any) -> None:
            chosen = {group: {p.name: given.pop(p.name) for p in parameters} for group, parameters in made.items()}
            kept = {
                group: {name: value for name, value in values.items() if value is not None}
                for group, values in chosen.items()
            }
            command(**given, **kept)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters += [p for each in made.values() for p in each]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        del call.__wrapped__  # type: ignore[attr-defined]
        return call

    return decorate


def lane_parameters(lanes: Callable[[], Iterable[str]], taken: Iterable[str] = ()) -> list[inspect.Parameter]:
    """The options of lanes, each once, where several lanes share it."""
    from assay.lanes import registry

    parameters: dict[str, inspect.Parameter] = {}
    for lane in lanes():
        for parameter in option_parameters(registry.find(lane).options_model(), taken=(*parameters, *taken)):
            parameters[parameter.name] = parameter
    return list(parameters.values())


def lane_options(lanes: Iterable[str], given: Mapping[str, Any], texts: Iterable[str]) -> dict[str, Any]:
    """Options of lanes that the user asked for: those that are not at their default, and those of `--option`.

    Args:
        lanes: Lanes whose options have defaults.
        given: Values from the command line.
        texts: `name=JSON` each.

    Raises:
        AssayError: One of the texts is not of that form.
    """
    from assay.lanes import registry

    defaults: dict[str, Any] = {}
    for lane in lanes:
        for name, field in registry.find(lane).options_model().model_fields.items():
            defaults.setdefault(name, field.default)
    asked = {name: value for name, value in given.items() if value != defaults.get(name)}
    return asked | dict(map(parse_option, texts))


def parse_option(text: str) -> tuple[str, Any]:
    """A lane's option from `name=JSON`; what is no JSON is taken as text.

    Raises:
        AssayError: It is not of that form.
    """
    import json

    from assay.errors import AssayError

    name, separator, value = text.partition("=")
    if not separator or not name:
        raise AssayError(f"--option {text!r} is not understood", fix="write --option enforce_f32=true")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
