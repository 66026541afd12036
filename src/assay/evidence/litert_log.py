"""Facts from the native log of the LiteRT runtime and its ML Drift GPU engine.

The patterns were read off ai-edge-litert 2.3.0; each is tested against a captured log.
"""

import re
from dataclasses import dataclass

from assay.records.failure import FailureClass

_ADAPTER = re.compile(
    r"Selected adapter: (?P<name>.+?), arch=(?P<arch>[^,]*), vendor=(?P<vendor>[^,]*), "
    r"backend=(?P<backend>[^,]*), adapterType=(?P<type>.+?)\s*$",
    re.MULTILINE,
)
_COUNTS = re.compile(
    r"^.*?(?P<gpu>\d+|No) operations will run on the GPU, and (?:the remaining|all) (?P<cpu>\d+) operations "
    r"will run on the CPU\.",
    re.MULTILINE,
)
_REFUSED_HEADER = "operations are not supported by GPU delegate:"
_REFUSAL = re.compile(r"^(?P<op>[A-Za-z][A-Za-z0-9_ ]*): ?(?P<reason>.*)$")
_GPU_STARTED = re.compile(r"^.*Initializing \S+-based API from graph.*$", re.MULTILINE)

_GRAPHICS_ERROR = re.compile(
    r"Validation error: .*|(?:\w+ )*exceeded maximum .*|.*\bVK_ERROR_\w+.*|Texture size .*exceeded.*"
)
_MOST_ERRORS = 3

# The first pattern that matches decides: narrow causes stand before the general ones that follow from them.
_FAILURES: list[tuple[FailureClass, re.Pattern[str]]] = [
    (failure, re.compile(rf"^.*(?:{pattern}).*$", re.MULTILINE | re.IGNORECASE))
    for failure, pattern in [
        (FailureClass.ADAPTER_LIMIT, r"exceeded maximum texture size|exceeds? the max(?:imum)? .*texture"),
        (FailureClass.DEVICE_LOST, r"device (?:was |is )?lost|VK_ERROR_DEVICE_LOST"),
        (FailureClass.OUT_OF_MEMORY, r"bad_alloc|out of memory|cannot allocate memory|VK_ERROR_OUT_OF_\w+"),
        (FailureClass.NO_ACCELERATOR, r"No adapters found|Failed to initialize WebGPU environment"),
        (
            FailureClass.UNSUPPORTED_OP,
            r"unresolved custom op|Select TensorFlow op|Didn't find op for builtin",
        ),
        (FailureClass.UNSUPPORTED_OP, r"FlexOp|Unsupported (?:operation|op)\b|Unhandled operation"),
        (FailureClass.INVALID_MODEL, r"not a valid Flatbuffer|model identifier|could not open '|mmap of '"),
        (
            FailureClass.INVALID_MODEL,
            r"The model is not a valid|Input tensor .* is invalid|Failed to build model",
        ),
        (
            FailureClass.UNSUPPORTED_DTYPE,
            r"Unsupported (?:data ?type|dtype|type)|type .{1,40} not (?:currently )?supp",
        ),
        (FailureClass.UNSUPPORTED_SHAPE, r"dynamic(?:-sized)? tensors?|failed to resize|Cannot resize"),
    ]
]


@dataclass(frozen=True)
class Adapter:
    """The graphics adapter that the engine chose.

    Attributes:
        name: As the driver calls it.
        backend: Graphics interface, for example Vulkan or Metal.
        software: True if the adapter computes on the CPU.
        line: The log line, word for word.
    """

    name: str
    backend: str
    software: bool
    line: str


@dataclass(frozen=True)
class Delegation:
    """How many operations the GPU took, as the log counts them.

    Attributes:
        delegated: Operations that run on the GPU.
        remaining: Operations that stay on the CPU.
        refusals: `(op, reason)` for each log line that names a refused op, word for word, in order.
        lines: The log lines, word for word.
    """

    delegated: int
    remaining: int
    refusals: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]


def adapter(log: str) -> Adapter | None:
    """The adapter that the log says was selected last, or None if it names none."""
    matches = list(_ADAPTER.finditer(log))
    if not matches:
        return None
    match = matches[-1]
    kind = match["type"].lower()
    return Adapter(match["name"], match["backend"], "cpu" in kind or "software" in kind, match[0].strip())


def delegation(log: str) -> Delegation | None:
    """The last partition that the GPU delegate reported, or None where it reported none.

    A graph that is taken whole leaves no such report.
    """
    matches = list(_COUNTS.finditer(log))
    if not matches:
        return None
    match = matches[-1]
    refusals: list[tuple[str, str]] = []
    lines: list[str] = []
    start = log.rfind(_REFUSED_HEADER, 0, match.start())
    if start >= 0:
        header_start = log.rfind("\n", 0, start) + 1
        block = log[header_start : match.start()].splitlines()
        lines.append(block[0].strip())
        for line in block[1:]:
            if refusal := _REFUSAL.match(line.strip()):
                refusals.append((refusal["op"], refusal["reason"].strip()))
                lines.append(line.strip())
    lines.append(match[0].strip())
    delegated = 0 if match["gpu"] == "No" else int(match["gpu"])
    return Delegation(delegated, int(match["cpu"]), tuple(refusals), tuple(lines))


def gpu_started(log: str) -> str | None:
    """The line with which the GPU engine says that it builds a graph, or None."""
    matches = _GPU_STARTED.findall(log)
    return matches[-1].strip() if matches else None


def graphics_errors(log: str) -> tuple[str, ...]:
    """What the graphics layer complained of, word for word, each once and at most three.

    The engine goes on after such a line and reports success; what it computes from then on may be anything.
    """
    found = (match[0].strip() for line in log.splitlines() if (match := _GRAPHICS_ERROR.search(line)))
    return tuple(dict.fromkeys(found))[:_MOST_ERRORS]


def failure(text: str) -> tuple[FailureClass, str] | None:
    """The failure class that a log or an error message shows, with the line that shows it.

    Only for a run that did fail: some of these words also stand in the log of a run that went well.
    """
    for failure_class, pattern in _FAILURES:
        if match := pattern.search(text):
            return failure_class, match[0].strip()
    return None
