"""How to measure: what a user can choose for a run or a sweep. The command line's options are made from this."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from assay.errors import AssayError
from assay.numerics.inputs import KINDS

DEFAULT_THREADS = 4
"""CPU threads at most, unless asked for more: phones have no more fast cores."""

FAIL_ON = ("wrong", "noise", "fallback", "unstable")
"""What a run can be failed for. `noise`: precision noise, or wrong. `fallback`: an accelerator did not take every
node. `unstable`: repeated inferences disagree, or the timings cannot be trusted."""


def _flag(name: str | None = None, **more: Any) -> dict[str, Any]:
    """How a field looks on the command line; see `assay.cli._options`."""
    return {"flag": name, **more} if name else more


def parse_shapes(texts: Iterable[object]) -> dict[str, tuple[int, ...]]:
    """Shapes by input name, from `name=1,224,224,3` each.

    Raises:
        AssayError: One is not of that form.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, sizes = str(text).rpartition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            name = ""
        if not name:
            raise AssayError(f"--shape {text!r} is not understood", fix="write --shape name=1,224,224,3")
    return shapes


def _shapes(value: object) -> object:
    return parse_shapes(value) if isinstance(value, list | tuple) else value


def _variants(value: object) -> object:
    """Files by format, from `onnx=model.onnx` each."""
    if not isinstance(value, list | tuple):
        return value
    variants: dict[str, Path] = {}
    for text in value:
        name, _, path = str(text).partition("=")
        if not name or not path:
            raise AssayError(f"--variant {text!r} is not understood", fix="write --variant onnx=model.onnx")
        variants[name] = Path(path)
    return variants


def _range(value: object) -> object:
    """What black and white become, from `-1,1`."""
    if isinstance(value, str):
        try:
            low, high = (float(part) for part in value.split(","))
        except ValueError:
            low = high = 0.0
        if low == high or not (math.isfinite(low) and math.isfinite(high)):
            raise AssayError(f"--image-range {value!r} is not understood", fix="write --image-range -1,1")
        return low, high
    return value


def _fail_on(value: object) -> object:
    """Words, each alone or with commas between."""
    if not isinstance(value, list | tuple):
        return value
    words = tuple(word.strip() for text in value for word in str(text).split(","))
    for word in words:
        if word not in FAIL_ON:
            raise AssayError(f"--fail-on does not know {word!r}", fix=f"choose from {', '.join(FAIL_ON)}")
    return words


class Settings(BaseModel):
    """How to measure.

    Each field's description is the help of its option on the command line; `command` and `options` have none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lanes: tuple[str, ...] = Field(
        default=(),
        description="Lane to measure on; again for more. Default: all that can run there.",
        json_schema_extra=_flag("lane"),
    )
    on: tuple[str, ...] = Field(
        default=("local",),
        description="Device to measure on; again for more: local, a name in devices.yaml, or an address such as "
        "cdp://localhost:9222. See `assay devices`.",
    )
    runs: int = Field(default=50, ge=0, description="Timed inferences; 0 compares numbers only.")
    warmup: int = Field(default=3, ge=0, description="Untimed inferences first.")
    budget_s: float = Field(
        default=30.0,
        ge=0.0,
        description="Seconds after which timing of a slow model ends early.",
        json_schema_extra=_flag("budget"),
    )
    threads: int = Field(default=0, ge=0, le=256, description="CPU threads. 0: all cores, 4 at most.")
    out: Path = Field(default=Path("assay-out"), description="Folder for records and cards.")
    model_id: str | None = Field(default=None, description="The model's name in records. Default: the file's.")
    meta: Path | None = Field(
        default=None, description="YAML file with what people know: family, task, license, source_url ..."
    )
    variants: Annotated[dict[str, Path], BeforeValidator(_variants)] = Field(
        default={},
        description="The same model in another format, for lanes that read it: onnx=model.onnx; again for more.",
        json_schema_extra=_flag("variant", cli=list[str]),
    )
    shapes: Annotated[dict[str, tuple[int, ...]], BeforeValidator(_shapes)] = Field(
        default={},
        description="Shape of a dynamic input: name=1,224,224,3; again for more. Default: 1 for each ?.",
        json_schema_extra=_flag("shape", cli=list[str]),
    )
    signatures: tuple[str, ...] = Field(
        default=(),
        description="Signature to run; again for more. Default: all.",
        json_schema_extra=_flag("signature"),
    )
    seed: int = Field(default=0, description="Seed of the inputs.")
    kinds: tuple[str, ...] = Field(
        default=KINDS,
        description=f"Seeded inputs of this kind: {', '.join(KINDS)}; again for more. The first is timed. "
        "Default: all six.",
        json_schema_extra=_flag("input-kind"),
    )
    inputs: Path | None = Field(
        default=None,
        description="Your own inputs, beside the seeded ones: .npz, .npy, an image, or a folder of these.",
    )
    image_range: Annotated[tuple[float, float], BeforeValidator(_range)] = Field(
        default=(0.0, 1.0),
        description="What black and white become in a float input: 0,1 or -1,1 or 0,255.",
        json_schema_extra=_flag(cli=str, shown="0,1"),
    )
    source: str | None = Field(
        default=None,
        description="What the file was converted from, to tell a bad conversion from a bad lane: outputs.npz, "
        "model.onnx, or module.py:function that returns the PyTorch module (its code is run).",
    )
    fail_on: Annotated[tuple[str, ...], BeforeValidator(_fail_on)] = Field(
        default=("wrong",),
        description=f"Exit 1 on: {', '.join(FAIL_ON)}; again or with commas for more. Default: wrong.",
    )
    time_limit_s: float = Field(
        default=300.0,
        ge=1.0,
        description="Seconds for one lane on one model.",
        json_schema_extra=_flag("time-limit"),
    )
    memory_limit: int | None = Field(
        default=None, ge=64, description="MiB for one lane's process or browser. Default: 3/4 of the device's."
    )
    quiet_gate: bool = Field(
        default=False, description="Wait for a quiet device before timing; measure again when it was disturbed."
    )
    quiet_timeout_s: float = Field(default=60.0, ge=0.0, description="Longest wait for quiet, in seconds.")
    quiet_attempts: int = Field(default=3, ge=1, description="Measurements at most, with the gate.")
    device: str | None = Field(
        default=None, description="This machine's name in records.", json_schema_extra=_flag(env="ASSAY_DEVICE")
    )
    options: dict[str, Any] = Field(default={}, description="Options of lanes, see each lane.")
    command: tuple[str, ...] = Field(default=(), description="The command line, for the record.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Settings from values of a user.

        Raises:
            AssayError: A value is not one that it can have.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else "settings"
            if first["type"] == "extra_forbidden":
                raise AssayError(
                    f"there is no setting {name!r}", fix=f"choose from {', '.join(cls.model_fields)}"
                ) from error
            raise AssayError(f"{name}: {first['msg']}, not {values.get(name)!r}") from error

    def but(self, **changes: Any) -> Self:
        """These settings with some values changed."""
        return self.model_copy(update=changes)

    @property
    def cpu_threads(self) -> int:
        """CPU threads, with 0 resolved for this machine."""
        return self.threads or min(os.cpu_count() or 1, DEFAULT_THREADS)
