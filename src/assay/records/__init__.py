"""Every JSON document as a model: read, checked, and written in one canonical form.

The names below are loaded on first use: a lane's child process needs `records.failure` alone and starts fast.
"""

from typing import TYPE_CHECKING

from assay.lazy import lazy

if TYPE_CHECKING:
    from assay.records.benchmark import BenchmarkFile as BenchmarkFile
    from assay.records.benchmark import BenchmarkRecord as BenchmarkRecord
    from assay.records.canonical import dumps as dumps
    from assay.records.card import Artifact as Artifact
    from assay.records.card import BrowserBlock as BrowserBlock
    from assay.records.card import Card as Card
    from assay.records.card import Conversion as Conversion
    from assay.records.card import Delegation as Delegation
    from assay.records.card import DeviceBlock as DeviceBlock
    from assay.records.card import DeviceCell as DeviceCell
    from assay.records.card import ModelInfo as ModelInfo
    from assay.records.card import Pitfall as Pitfall
    from assay.records.card import PitfallFile as PitfallFile
    from assay.records.document import Document as Document
    from assay.records.document import DocumentError as DocumentError
    from assay.records.document import parse as parse
    from assay.records.document import read as read
    from assay.records.failure import FailureClass as FailureClass
    from assay.records.record import BrowserEntry as BrowserEntry
    from assay.records.record import BrowserSweepFile as BrowserSweepFile
    from assay.records.record import DeviceEntry as DeviceEntry
    from assay.records.record import DeviceRunFile as DeviceRunFile
    from assay.records.record import PlainDeviceRunFile as PlainDeviceRunFile
    from assay.records.record import PlainSweepFile as PlainSweepFile
    from assay.records.runs import BrowserEnv as BrowserEnv
    from assay.records.runs import BrowserRun as BrowserRun
    from assay.records.runs import DeviceRun as DeviceRun
    from assay.records.runs import RecordArtifact as RecordArtifact
    from assay.records.runs import RefusedOp as RefusedOp
    from assay.records.runs import RunEnv as RunEnv
    from assay.records.runs import WebGpuAdapter as WebGpuAdapter
    from assay.records.store import UnsavedRunError as UnsavedRunError
    from assay.records.store import append_browser_run as append_browser_run
    from assay.records.store import append_device_run as append_device_run
    from assay.records.store import read_browser_sweep as read_browser_sweep
    from assay.records.store import read_device_runs as read_device_runs
else:
    # Not for type checkers, which would take any misspelt name for one that loads later.
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "benchmark": ("BenchmarkFile", "BenchmarkRecord"),
            "canonical": ("dumps",),
            "card": (
                "Artifact",
                "BrowserBlock",
                "Card",
                "Conversion",
                "Delegation",
                "DeviceBlock",
                "DeviceCell",
                "ModelInfo",
                "Pitfall",
                "PitfallFile",
            ),
            "document": ("Document", "DocumentError", "parse", "read"),
            "failure": ("FailureClass",),
            "record": (
                "BrowserEntry",
                "BrowserSweepFile",
                "DeviceEntry",
                "DeviceRunFile",
                "PlainDeviceRunFile",
                "PlainSweepFile",
            ),
            "runs": (
                "BrowserEnv",
                "BrowserRun",
                "DeviceRun",
                "RecordArtifact",
                "RefusedOp",
                "RunEnv",
                "WebGpuAdapter",
            ),
            "store": (
                "UnsavedRunError",
                "append_browser_run",
                "append_device_run",
                "read_browser_sweep",
                "read_device_runs",
            ),
        },
    )
