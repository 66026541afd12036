"""Packages whose names load on first use, so that `import assay.records` costs nothing until one is used."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that takes its names from its modules when they are asked for.

    Args:
        package: The package's `__name__`.
        homes: Module below the package -> names that it gives.
        modules: Modules below the package that are themselves names of it.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    def names() -> list[str]:
        return sorted((*home_of, *modules))

    return load, names
