"""Cases on the native GPU engine: many to a process, on one graphics environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.evidence import litert_log
from assay.probe.cases import Array, Case
from assay.probe.reference import spec_dtype

_STAMP = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ ")
SHUT = "Attempting to use a delegate that only supports static-sized tensors"
_TENSOR = re.compile(r"\b(?:input\d+(?:_half)?|output\d+)\b")


@dataclass
class Attempt:
    """What the lane did with one model.

    Attributes:
        taken: True if the accelerator took every node, False if it left some, None if nothing shows either.
        reasons: `(op, reason)` of what it refused, word for word.
        scope: `subgraph` where the whole subgraph was refused at once.
        error: Text of the exception that ended loading or running, or None.
        stage: `load` or `run`, where the error came from.
        outputs: Values of the outputs, or None.
        evidence: Lines that show the above.
    """

    taken: bool | None
    reasons: list[tuple[str, str]]
    scope: str
    error: str | None
    stage: str
    outputs: list[Array] | None
    evidence: list[str]


class NativeSession:
    """One process's hold on the engine.

    Args:
        log: The file that the process's standard error goes to; the engine's words are read back from it.
    """

    def __init__(self, log: Path) -> None:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.environment import Environment
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator

        self._compile = CompiledModel.from_buffer
        self._both = HardwareAccelerator.GPU | HardwareAccelerator.CPU
        self._log = log
        self._environment = Environment.create()
        self._start = 0

    def said(self) -> str:
        """What was logged since the last attempt began."""
        with self._log.open("rb") as file:
            file.seek(self._start)
            return file.read().decode("utf-8", errors="replace")

    def attempt(self, data: bytes, inputs: list[Array], case: Case, *, run: bool = True) -> Attempt:
        """Load a model on GPU and CPU together, and run it once if the GPU took all of it and `run` is set."""
        self._start = os.fstat(2).st_size if self._log.exists() else 0
        model: Any = None
        error = None
        try:
            model = self._compile(data, hardware_accel=self._both, environment=self._environment)
            accelerated = bool(model.is_fully_accelerated())
        except RuntimeError as failure:
            accelerated, error = False, str(failure)
        said = self.said()
        report = litert_log.delegation(said)
        started = litert_log.gpu_started(said)
        evidence: list[str] = []
        if report is not None:
            evidence = list(report.lines)
            return Attempt(False, list(report.refusals), "node", error, "load", None, evidence)
        if SHUT in said:
            line = next(line.strip() for line in said.splitlines() if SHUT in line)
            return Attempt(False, [("", line.removeprefix("WARNING: "))], "subgraph", error, "load", None, [line])
        if started:
            evidence.append(_STAMP.sub("", started))
        if error is not None:
            lines = [
                _STAMP.sub("", line.strip())
                for line in said.splitlines()
                if re.match(r"^(ERROR|E\d{4}|F\d{4})", line)
            ]
            evidence += [*lines[-4:], " ".join(error.split())]
            return Attempt(True if started else None, [], "node", error, "load", None, evidence)
        evidence.append(f"is_fully_accelerated={accelerated}")
        if not (started and accelerated):
            return Attempt(None, [], "node", None, "load", None, evidence)
        if not run:
            return Attempt(True, [], "node", None, "load", None, evidence)
        try:
            outputs = self._run(model, inputs, case)
        except ValueError as failure:
            # The Python buffers know fewer types than the engine: taken, and its numbers cannot be read here.
            evidence.append(f"numbers not compared: {failure}")
            return Attempt(True, [], "node", None, "run", None, evidence)
        except RuntimeError as failure:
            evidence.append(" ".join(str(failure).split()))
            return Attempt(True, [], "node", str(failure), "run", None, evidence)
        return Attempt(True, [], "node", None, "run", outputs, evidence)

    def _run(self, model: Any, inputs: list[Array], case: Case) -> list[Array]:
        given = model.create_input_buffers(0)
        found = model.create_output_buffers(0)
        for buffer, array in zip(given, inputs, strict=True):
            buffer.write(np.ascontiguousarray(array))
        model.run_by_index(0, given, found)
        outputs: list[Array] = []
        for buffer, result in zip(found, case.outputs, strict=True):
            shape = result.shape or ()
            size = int(np.prod(shape, dtype=np.int64))
            outputs.append(buffer.read(size, spec_dtype(result.dtype)).reshape(shape))
        return outputs


def without_names(reason: str) -> str:
    """A refusal without the names of the probe's own tensors, so that it reads the same for every model."""
    return _TENSOR.sub("<tensor>", reason).strip()
