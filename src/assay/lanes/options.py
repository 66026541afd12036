"""Options of lanes: pydantic models, from which the command line makes its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import AssayError


class LaneOptions(BaseModel):
    """Options of one lane. Each field needs a default that means "not asked for", and a description: the help.

    A field's `json_schema_extra` may hold `flag`, another name on the command line than the field's, and
    `hidden: True` for a field that the command line does not show.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The options among those of a job; options of other lanes are left alone.

        Raises:
            AssayError: A value is not one that it can have.
        """
        own = {name: value for name, value in options.items() if name in cls.model_fields and value is not None}
        try:
            return cls(**own)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else "options"
            if first["type"] == "literal_error":
                expected = str(first.get("ctx", {}).get("expected", "")).replace("'", "").replace(" or ", ", ")
                raise AssayError(f"no {name} {own.get(name)!r}", fix=f"choose from {expected}") from error
            raise AssayError(f"lane option {name}: {first['msg']}, not {own.get(name)!r}") from error
