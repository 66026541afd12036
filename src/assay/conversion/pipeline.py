"""From a recipe to a verified `.tflite`: load, export, rewrite, convert, quantize, verify, write."""

from __future__ import annotations

import hashlib
import importlib.metadata
import resource
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.conversion.quantize import PRECISIONS, quantize
from assay.conversion.quiet import kept_quiet
from assay.distribution import need
from assay.errors import AssayError

if TYPE_CHECKING:
    import torch
    from torch import fx

    from assay.conversion.recipe import Plan, Recipe
    from assay.conversion.verify import Checked

Notify = Callable[[str], None]

_TOOLS = ("litert-torch", "litert-converter", "ai-edge-quantizer", "torch", "transformers")
PROVENANCE = "assay.provenance"
"""Name of the metadata entry that marks a file with random weights; its content is `example`."""


@dataclass(frozen=True)
class ConvertedModel:
    """What was made, and what shows that it is right.

    Attributes:
        path: The `.tflite`.
        meta: The `.meta.yaml` beside it, for `assay run --meta`.
        sidecars: Other files written beside it.
        model_id: The model's name for records and cards.
        precision: `fp32`, `fp16` or `int8`.
        example: True if the weights are random.
        sha256: Of the `.tflite`.
        size_bytes: Of the `.tflite`.
        ops: How many nodes of each op the file has.
        rewrites: Each rewrite applied, and in how many places it changed something.
        findings: What `--auto` found that led to rewrites: rewrite to the lint rules that named it.
        checks: The comparison with PyTorch, for each set of inputs.
        seconds: Wall time of each stage.
        peak_mb: Highest resident memory of this process, MiB.
    """

    path: Path
    meta: Path
    sidecars: Sequence[Path]
    model_id: str
    precision: str
    example: bool
    sha256: str
    size_bytes: int
    ops: Mapping[str, int]
    rewrites: Mapping[str, int]
    findings: Mapping[str, Sequence[str]]
    checks: Sequence[Checked]
    seconds: Mapping[str, float]
    peak_mb: float

    @property
    def nodes(self) -> int:
        """Nodes in the file."""
        return sum(self.ops.values())

    def document(self) -> dict[str, Any]:
        """As one JSON document."""
        keys = ("max_abs_diff", "max_rel_diff", "correlation", "reference_max_abs")
        return {
            "path": str(self.path),
            "meta": str(self.meta),
            "sidecars": [str(path) for path in self.sidecars],
            "model_id": self.model_id,
            "precision": self.precision,
            "provenance": "example" if self.example else None,
            "sha256": self.sha256,
            "size_bytes": self.size_bytes,
            "nodes": self.nodes,
            "ops": dict(self.ops),
            "rewrites": dict(self.rewrites),
            "findings": {name: list(rules) for name, rules in self.findings.items()},
            "checks": [
                {
                    "seed": check.seed,
                    "scores": dict(check.scores),
                    "outputs": [
                        {"name": one.name, **{key: getattr(one, key) for key in keys}} for one in check.outputs
                    ],
                }
                for check in self.checks
            ],
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
            "peak_mb": round(self.peak_mb, 1),
        }


def convert(
    recipe: Recipe | str,
    out: Path | str,
    *,
    checkpoint: Path | str | None = None,
    seed: int | None = None,
    variant: str | None = None,
    precision: str = "fp32",
    options: Mapping[str, str] | None = None,
    rewrites: Sequence[str] = (),
    without: Sequence[str] = (),
    auto: bool = False,
    command: Sequence[str] | None = None,
    notify: Notify = lambda stage: None,
) -> ConvertedModel:
    """Convert by a recipe, verify against PyTorch, and write the model with what a card needs.

    Nothing is written unless every output agrees with PyTorch on every set of inputs.

    Args:
        recipe: A recipe, its name, or `file.py:function` for a function of the user's, which is then run.
        out: The `.tflite` to write; `.meta.yaml` and the recipe's other files go beside it.
        checkpoint: The weights: what the recipe takes.
        seed: Random weights of this seed instead; the model is then marked as an example.
        variant: One of the recipe's; default its first.
        precision: `fp32`, `fp16` or `int8` weights.
        options: The recipe's own options.
        rewrites: Rewrites to apply besides the recipe's.
        without: Rewrites of the recipe to leave out.
        auto: Convert once, lint the file, and apply the rewrites that cure what was found.
        command: The command line, for the card; default one that says the same.
        notify: Called with the name of each stage as it begins.

    Returns:
        What was made.

    Raises:
        ConversionDiffers: An output is too far from PyTorch's.
        AssayError: Something is missing or cannot be converted.
    """
    from assay.conversion.find import find
    from assay.conversion.recipe import Request
    from assay.conversion.verify import verify

    need("torch", "litert_torch", "ai_edge_quantizer", "ai_edge_litert", extra="convert")
    out, checkpoint = Path(out), None if checkpoint is None else Path(checkpoint)
    if out.suffix != ".tflite":
        raise AssayError(f"{out} does not end in .tflite", fix="name the file to write, for example model.tflite")
    if precision not in PRECISIONS:
        raise AssayError(f"precision {precision!r} is unknown", fix=f"choose from: {', '.join(PRECISIONS)}")
    chosen = find(recipe) if isinstance(recipe, str) else recipe
    clock = _Clock(notify)
    users_own = ".py:" in chosen.name
    if users_own and checkpoint is None and seed is None:
        # The function may well bring its own weights; those are not ours to call random.
        request = Request(None, None, "default", {})
    else:
        request = chosen.request(checkpoint, seed, variant, options or {})
    with clock.stage("load"), _explained("the model cannot be loaded", quiet=not users_own):
        plan = chosen.plan(request)
    names = [name for name in (*plan.rewrites, *rewrites) if name not in without]
    findings: dict[str, list[str]] = {}
    if auto:
        with clock.stage("lint"):
            findings = _lint_findings(plan, precision)
        names += [name for name in findings if name not in names]
    with clock.stage("rewrite"), _explained("the module cannot be exported"):
        graph, counts = rewritten(plan, names)
    with clock.stage("convert"), _explained("litert-torch cannot convert the graph"):
        data = to_tflite(graph, plan)
    with clock.stage("quantize"), _explained("the model cannot be quantized"):
        data = quantize(data, precision)
    if plan.example:
        data = _marked_example(data)
    with clock.stage("verify"), _explained("the converted model cannot be verified"):
        checks = verify(plan, data, precision)
    notify("write")
    meta, sidecars = _write(
        out, data, plan, precision, command or _command_line(chosen.name, out, request, precision)
    )
    return ConvertedModel(
        path=out,
        meta=meta,
        sidecars=sidecars,
        model_id=plan.facts.id,
        precision=precision,
        example=plan.example,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        ops=count_ops(data),
        rewrites=counts,
        findings=findings,
        checks=checks,
        seconds=clock.seconds,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        / (1024 * 1024 if sys.platform == "darwin" else 1024),
    )


def rewritten(plan: Plan, names: Sequence[str]) -> tuple[fx.GraphModule, dict[str, int]]:
    """The plan's module as a graph with rewrites applied, and how often each changed something."""
    from assay.conversion.rewrites import apply
    from assay.conversion.rewrites._graph import export

    graph = export(plan.module, list(plan.inputs.values()))
    return graph, apply(graph, names)


def to_tflite(graph: torch.nn.Module, plan: Plan) -> bytes:
    """The graph as a `.tflite` in float32, with the plan's names; the same bytes for the same graph."""
    import litert_torch
    import torch

    outputs = list(plan.outputs)

    class Named(torch.nn.Module):
        """Gives the outputs by name: the converter takes the names of the signature from there."""

        def __init__(self) -> None:
            super().__init__()
            self.source = graph

        def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            result = self.source(*inputs.values())
            results = (result,) if isinstance(result, torch.Tensor) else tuple(result)
            return dict(zip(outputs, results, strict=True))

    with torch.no_grad():
        model: Any = litert_torch.convert(Named().eval(), sample_kwargs=dict(plan.inputs))
    return bytes(model.model_content())


def count_ops(data: bytes) -> dict[str, int]:
    """How many nodes of each op the main subgraph has, most frequent first."""
    from assay.graph import read

    return dict(Counter(node.op for node in read(data).subgraphs[0].nodes).most_common())


class _Clock:
    """Times the stages, and tells of each."""

    def __init__(self, notify: Notify) -> None:
        self.notify = notify
        self.seconds: dict[str, float] = {}

    def stage(self, name: str) -> _Stage:
        self.notify(name)
        return _Stage(self, name)


class _Stage:
    def __init__(self, clock: _Clock, name: str) -> None:
        self.clock, self.name = clock, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.clock.seconds[self.name] = time.perf_counter() - self.start


class _explained:
    """Keeps native output off the terminal, and turns a library's exception into an error that a user can read."""

    def __init__(self, what: str, *, quiet: bool = True) -> None:
        self.what, self.quiet = what, quiet

    def __enter__(self) -> None:
        self.output = kept_quiet() if self.quiet else None
        self.kept = self.output.__enter__() if self.output else None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self.output:
            self.output.__exit__(None, None, None)
        if error is None or isinstance(error, AssayError) or not isinstance(error, Exception):
            return
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {lines[0].strip() if lines else 'no reason given'}"
        native = [line for line in (self.kept.text if self.kept else "").splitlines() if "error" in line.lower()]
        last = f" ({native[-1].strip()[:300]})" if native else ""
        raise AssayError(f"{self.what}: {reason[:600]}{last}") from error


def _lint_findings(plan: Plan, precision: str) -> dict[str, list[str]]:
    """Rewrite to the lint rules whose findings name it, for the module converted as it is."""
    from assay.conversion.rewrites import REWRITES
    from assay.graph import read
    from assay.linting import lint

    with _explained("the module cannot be converted without rewrites"):
        graph, _ = rewritten(plan, ())
        data = quantize(to_tflite(graph, plan), precision)
    found: dict[str, list[str]] = {}
    for finding in lint(read(data)):
        name = finding.rewrite
        if name in REWRITES and REWRITES[name].auto and finding.rule not in found.setdefault(name, []):
            found[name].append(finding.rule)
    return found


def _marked_example(data: bytes) -> bytes:
    """The file with a metadata entry that says so: the mark stays with it, whatever happens to its neighbours."""
    from assay.graph import Buffer, Metadata, read, write

    model = read(data)
    model.buffers.append(Buffer(b"example"))
    model.metadata.append(Metadata(PROVENANCE, len(model.buffers) - 1))
    return write(model)


def _write(out: Path, data: bytes, plan: Plan, precision: str, command: Sequence[str]) -> tuple[Path, list[Path]]:
    import yaml

    from assay.records.files import write_atomic
    from assay.records.privacy import scrub_command

    facts = plan.facts
    document: dict[str, Any] = {
        "model": {
            "family": facts.family,
            "id": facts.id,
            "license": facts.license,
            "source_url": facts.source_url,
            "task": facts.task,
        },
        "conversion": {
            "command": shlex.join(scrub_command(command)),
            "quantization": PRECISIONS[precision],
            "tool": "assay convert (litert-torch)",
            "tool_version": _versions(),
        },
        "artifact": {
            "file": out.name,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_bytes": len(data),
            "size_mb": round(len(data) / 1e6, 3),
        },
        "pitfalls": list(plan.pitfalls),
        "provenance": "example" if plan.example else None,
    }
    if plan.example:
        document["pitfalls"].insert(0, "The weights are random: masks and other outputs mean nothing.")
    meta = out.with_suffix(".meta.yaml")
    sidecars = [out.with_suffix(suffix) for suffix in plan.sidecars]
    for path, content in zip(sidecars, plan.sidecars.values(), strict=True):
        write_atomic(path, content)
    write_atomic(meta, yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110))
    # Last, so that a model that is there has everything beside it.
    write_atomic(out, data)
    return meta, sidecars


def _versions() -> str:
    from assay.version import __version__

    found = [f"assay {__version__}"]
    for tool in _TOOLS:
        try:
            found.append(f"{tool} {importlib.metadata.version(tool)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _command_line(name: str, out: Path, request: Any, precision: str) -> list[str]:
    command = ["assay", "convert", name, "--precision", precision, "--variant", request.variant]
    if request.checkpoint is not None:
        command += ["--checkpoint", str(request.checkpoint)]
    if request.seed is not None:
        command += ["--random-weights", str(request.seed)]
    for option, value in request.options.items():
        command += ["--set", f"{option}={value}"]
    return [*command, "--out", str(out)]
