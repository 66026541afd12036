"""Facts from the console of a page that runs LiteRT.js: what was delegated, and what failed without an error.

The engines under LiteRT.js are those of the native runtime and speak as they do; their lines reach the console
with a type that means nothing (`INFO` comes as an error), so it is the text that counts. The patterns were read
off @litertjs/core 2.0.0 to 2.5.3; each is tested against a captured log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from assay.evidence import litert_log
from assay.records.failure import FailureClass

_CSS = re.compile(r"%c|(?:\s(?:background|color|font-weight|padding|border-radius): [^;]+;)+")
_PARTIAL = re.compile(r"^.*Model not fully compiled for (\w+)\. Partially delegating.*$", re.MULTILINE)
_FALLBACK = re.compile(r"^.*Model not fully compiled for (\w+) .*Falling back to WASM.*$", re.MULTILINE)
_XNNPACK = re.compile(r"^.*Created TensorFlow Lite XNNPACK delegate for CPU.*$", re.MULTILINE)
_RESTORED = re.compile(r"^.*Restored original execution plan after delegate application failure.*$", re.MULTILINE)

# After one of these no inference can have taken place, whatever `run()` resolves to.
_SILENT = re.compile(
    r"^(?:ERROR: )?.*(?:unresolved custom op|Failed to allocate tensors|[Ff]ailed to invoke|"
    r"Failed to apply the default TensorFlow Lite delegate)"
)
_POSITIONS_ONLY = re.compile(r"^(?:\w*Error: )?(?:ERROR: )?\[[^\]]+\]\s*$")
_BARE_POSITION = re.compile(r"^ERROR: \[[^\]]+\]\s*$")

# What a page's error says, narrow causes first.
_ERRORS: list[tuple[FailureClass, re.Pattern[str]]] = [
    (failure, re.compile(pattern, re.IGNORECASE))
    for failure, pattern in [
        (FailureClass.DEVICE_LOST, r"DeviceLost|device (?:is |was )?lost"),
        (FailureClass.MISSING_JSPI, r"Asyncify is not defined|JSPI is not supported|SuspendError|without JSPI"),
        (
            FailureClass.UNSUPPORTED_DTYPE,
            r"Element type \w+ is not supp|DType \w+ is not supp|Typed array .* is not supp",
        ),
        (FailureClass.UNSUPPORTED_SHAPE, r"UnsupportedShape"),
        (FailureClass.NO_ACCELERATOR, r"no WebGPU device|No GPU adapter|WebNN is not supp|navigator\.ml"),
        (
            FailureClass.WASM_MEMORY_CEILING,
            r"Cannot enlarge memory|Aborted\(OOM|Array buffer allocation failed|could not allocate memory|"
            r"RangeError: offset is out of bounds|Invalid (?:typed )?array (?:buffer )?length",
        ),
        (FailureClass.CRASHED, r"RuntimeError: (?:Aborted|unreachable|memory access|table index|null function)"),
    ]
]


def plain(log: str) -> str:
    """A child's log without the styles of styled console messages."""
    return "\n".join(_CSS.sub("", line).rstrip() for line in log.splitlines())


def silent_failure(lines: Iterable[str]) -> str | None:
    """The first line after which no inference can have taken place, or None."""
    return next(
        (line.strip() for line in lines if not line.startswith(("INFO", "WARNING")) and _SILENT.match(line)), None
    )


def fell_back(log: str) -> str | None:
    """The line that says that the whole model runs on the CPU though an accelerator was asked for, or None."""
    text = plain(log)
    for pattern in (_FALLBACK, _RESTORED):
        if match := pattern.search(text):
            return match[0].strip()
    report = litert_log.delegation(text)
    return report.lines[-1] if report is not None and report.delegated == 0 else None


def xnnpack_created(log: str) -> str | None:
    """The line with which XNNPACK says that it takes part on the CPU, or None."""
    match = _XNNPACK.search(log)
    return match[0].strip() if match else None


def partial_notice(log: str) -> str | None:
    """The line with which LiteRT.js says that a model is shared between accelerator and CPU, or None."""
    match = _PARTIAL.search(plain(log))
    return match[0].strip() if match else None


def classify(error: str, lines: Iterable[str]) -> FailureClass | None:
    """The class of a failure that a page reported; None where neither the error nor the console tells.

    Args:
        error: The error's name and message.
        lines: The console's lines.
    """
    for failure, pattern in _ERRORS:
        if pattern.search(error):
            return failure
    # The error of a refused model names source positions only; the cause stands in the console.
    complaints = "\n".join(line for line in lines if line.startswith("ERROR:"))
    found = litert_log.failure(error) or litert_log.failure(complaints)
    return found[0] if found else None


def summary(error: str, lines: Iterable[str]) -> str:
    """One line for a failure: the error's message, or the console's first complaint where it says nothing."""
    said = [part.strip(" └") for part in error.splitlines() if part.strip(" └")]
    telling = [part for part in said if not _POSITIONS_ONLY.match(part)]
    if telling:
        return "; ".join(telling)
    complaint = next(
        (line for line in lines if line.startswith("ERROR:") and not _BARE_POSITION.match(line)), None
    )
    return complaint.strip() if complaint else "; ".join(said)
