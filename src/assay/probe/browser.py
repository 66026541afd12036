"""Cases in a browser: one page with LiteRT.js, fed one small model after the other.

The child process of `assay probe` for the WebGPU lane; what it writes is what `assay.probe.worker` writes.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from assay.evidence import litert_log
from assay.probe.cases import Array, Case
from assay.probe.native import SHUT, Attempt
from assay.probe.reference import spec_dtype
from assay.probe.worker import Say, behave, supervise, try_cases

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Assay: probe</title>
<link rel="icon" href="data:,">
<script type="importmap">{"imports": {"@litertjs/core": "./litertjs/core/dist/index.js",
"@litertjs/wasm-utils": "./litertjs/utils/dist/index.js"}}</script></head><body><script type="module">
import * as litert from './litert.js';
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
// In parts: a call cannot have as many arguments as an output has bytes.
const text = ({buffer, byteOffset, byteLength}) => {
  let letters = '';
  for (let at = 0; at < byteLength; at += 8192) {
    letters += String.fromCharCode(...new Uint8Array(buffer, byteOffset + at, Math.min(8192, byteLength - at)));
  }
  return btoa(letters);
};
self.assayReady = litert.loadRuntime({jspi: true, threads: false}).then(() => litert.describeBrowser());
self.assayTry = async ({model, inputs, run}) => {
  const answer = {};
  let loaded = null;
  try {
    loaded = (await litert.compile(bytes(model), 'webgpu')).model;
    answer.accelerated = loaded.isFullyAccelerated ?? null;
    if (run && answer.accelerated) {
      answer.stage = 'run';
      const given = inputs.map(({dtype, shape, data}) => {
        const Type = litert.TYPED_ARRAYS[dtype] ?? Uint8Array;
        return {data: new Type(bytes(data).buffer), shape};
      });
      const found = await litert.invoke(litert.signatureOf(loaded, null), given);
      answer.outputs = found.map(({data, shape, dtype}) => ({
        dtype, shape, data: text(data),
      }));
    }
  } catch (error) {
    answer.error = `${error?.name ?? 'Error'}: ${error?.message ?? error}`;
  } finally {
    loaded?.delete?.();
  }
  return answer;
};
</script></body></html>
"""


#: What the engine's WebAssembly says when it gives up.
ABORTED = "Aborted("


class BrowserSession:
    """A page that tries models, and what it wrote to its console."""

    def __init__(self) -> None:
        from playwright.sync_api import sync_playwright

        from assay.lanes.browser import chromium, litertjs
        from assay.lanes.browser.server import Server

        self._server = Server(litertjs.require())
        self._server.serve("probe.html", _PAGE.encode())
        self._lines: list[str] = []
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(
            executable_path=chromium.find(),
            args=chromium.launch_arguments(chromium.resolve_adapter("auto")),
            chromium_sandbox=chromium.can_sandbox(),
        )
        self._page = self._browser.new_page()
        self._page.on("console", lambda message: self._lines.append(message.text))
        # A page that is gone answers nothing any more: the process ends, and the case at hand is to blame.
        self._page.on("crash", lambda _: os._exit(70))
        self.facts: dict[str, Any] = self._load()

    def _load(self) -> dict[str, Any]:
        self._page.goto(self._server.url + "probe.html")
        return self._page.evaluate("self.assayReady")

    def attempt(self, data: bytes, inputs: list[Array], case: Case, *, run: bool = True) -> Attempt:
        """Compile a model for WebGPU, and run it once if the GPU took all of it and `run` is set."""
        self._lines.clear()
        given = [
            {
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
            }
            for array in inputs
        ]
        model = base64.b64encode(data).decode()
        answer = self._page.evaluate("args => self.assayTry(args)", {"model": model, "inputs": given, "run": run})
        said = "\n".join(self._lines)
        report = litert_log.delegation(said)
        error = answer.get("error")
        if ABORTED in (error or ""):
            # The engine has ended itself and answers nothing any more; a page that is loaded anew has a new one.
            self._load()
        if report is not None:
            return Attempt(False, list(report.refusals), "node", error, "load", None, list(report.lines))
        if SHUT in said:
            line = next(line.strip() for line in said.splitlines() if SHUT in line)
            return Attempt(False, [("", line)], "subgraph", error, "load", None, [line])
        evidence = [f"isFullyAccelerated={answer.get('accelerated')}"]
        stage = answer.get("stage", "load")
        if error is not None:
            words = [line.strip() for line in said.splitlines() if "ERROR" in line or "rror:" in line][-3:]
            evidence += [*words, error]
            if stage == "run" and ("dtype" in error.lower() or "type" in error.lower()):
                # The page's tensors know fewer types than the engine: taken, and its numbers cannot be read.
                return Attempt(True, [], "node", None, "run", None, evidence)
            return Attempt(True if answer.get("accelerated") else None, [], "node", error, stage, None, evidence)
        if not answer.get("accelerated"):
            return Attempt(None, [], "node", None, "load", None, evidence)
        outputs = [
            np.frombuffer(base64.b64decode(item["data"]), spec_dtype(item["dtype"])).reshape(item["shape"])
            for item in answer.get("outputs", [])
        ]
        fits = len(outputs) == len(case.outputs) and all(
            result.shape is not None and output.size == int(np.prod(result.shape, dtype=np.int64))
            for output, result in zip(outputs, case.outputs, strict=True)
        )
        return Attempt(True, [], "node", None, "run", outputs if fits else None, evidence)

    def said(self) -> str:
        """What the page wrote during the last attempt."""
        return "\n".join(self._lines)


def _batch(cases: list[Case], say: Say) -> None:
    try_cases(cases, BrowserSession(), say)


def _behave(say: Say) -> None:
    session = BrowserSession()
    webgpu = session.facts.get("webgpu") or {}
    adapter = webgpu.get("adapter") or {}
    name = " ".join(part for part in (adapter.get("vendor"), adapter.get("architecture")) if part) or None
    software = bool(webgpu.get("is_fallback")) or "swiftshader" in (adapter.get("architecture") or "")
    facts = {
        "adapter": f"{name} (WebGPU)" if name else None,
        "adapter_kind": "software" if software else "hardware",
        "adapter_evidence": json.dumps(adapter, sort_keys=True),
        "browser": session.facts.get("user_agent"),
    }
    behave(session, session.said, facts, say)


def main(arguments: list[str]) -> int:
    """Try all cases, whatever some of them do to their browser."""
    source, results = map(Path, arguments[:2])
    return supervise(source, results, _batch, functools.partial(_behave), size=150, survey=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
