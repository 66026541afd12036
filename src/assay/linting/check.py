"""The lint itself: a model and a matrix in, a report out. Nothing is run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.graph.reader import collector_paused
from assay.linting import rules
from assay.linting.limits import weights_texture, window_too_large
from assay.linting.matrix import FATAL, Answer, Matrix, for_lane
from assay.linting.partition import crossings, delegated, partitions
from assay.linting.report import Finding, LintReport, NodeReport, SubgraphReport
from assay.linting.signature import NodeSignature, NodeSignatures, folded_halves

if TYPE_CHECKING:
    from assay.graph import Model, Subgraph
    from assay.graph.outline import Outline

DEFAULT_LANE = "gpu_mldrift"
TEXTURE_BASIS = "follows from the sizes in the file and the adapter's largest texture"
_ORDER = ("error", "fallback", "unknown", "warning")
_FOLDED = Answer("supported", basis="a float16 weight: folded into the node that reads it", numbers="right")


def lint(model: Model | Path | str, matrix: Matrix | None = None) -> LintReport:
    """Predict what an accelerator does with a model.

    Args:
        model: The model, or its file.
        matrix: The lane's support matrix; the newest one that ships for `gpu_mldrift` by default.

    Returns:
        The report: every node's answer, where it runs, the partitions, and what to change.

    Raises:
        GraphError: The file is not a sound model.
        AssayError: There is no matrix.
    """
    from assay.graph import Model as ModelType
    from assay.graph import read

    matrix = matrix or for_lane(DEFAULT_LANE)
    with collector_paused():
        return _lint(model if isinstance(model, ModelType) else read(model), matrix)


def _lint(model: Model, matrix: Matrix) -> LintReport:
    outlines = [model.outline(subgraph) for subgraph in model.subgraphs]
    subgraphs = tuple(map(_subgraph, model.subgraphs, outlines, repeat(matrix)))
    header = matrix.header
    return LintReport(
        model=str(model.path) if model.path else None,
        lane=matrix.lane,
        runtime=header.get("runtime", "LiteRT"),
        runtime_version=matrix.runtime_version,
        adapter=header.get("adapter"),
        measured=(header["measured"][0], header["measured"][1]),
        subgraphs=subgraphs,
        findings=tuple(_findings(outlines, subgraphs, matrix)),
    )


def _subgraph(subgraph: Subgraph, outline: Outline, matrix: Matrix) -> SubgraphReport:
    behaviour = matrix.header["behaviour"]
    halves = folded_halves(outline) if behaviour["folds_float16_constants"] else {}
    folded = {node for node in outline.nodes_of("DEQUANTIZE") if halves.keys() & outline.written[node]}
    texts, answers, too_small = _answers(outline, halves, matrix)
    for node in folded:
        answers[node] = _FOLDED
    distinct = {id(answer): answer for answer in answers}.values()
    whole = next(
        (answer for answer in distinct if answer.status == "refused" and answer.scope == "subgraph"), None
    )
    if whole is None and too_small is not None:
        label = f"node {too_small} ({outline.op[too_small]})"
        reason = f"the window of {label} is larger than its input at the sizes in the file"
        whole = answers[too_small] = Answer(
            "refused", reason, "subgraph", basis="follows from the sizes in the file"
        )
    most = behaviour["max_partitions"]
    if whole is not None:
        fewest = chosen = []
    else:
        fewest = chosen = delegated(outline, [answer.taken is True for answer in answers], folded, most)
    open_ended = whole is None and any(answer.status == "unknown" for answer in distinct)
    if open_ended:
        chosen = delegated(outline, [answer.taken is not False for answer in answers], folded, most)
    parts = partitions(outline, fewest)
    crossing = crossings(parts, halves)
    # Where the accelerator takes all of it, nothing about places is left to find out.
    if len(fewest) == len(answers) and not open_ended:
        places = ["accelerator"] * len(answers)
        for node in folded:
            places[node] = "folded"
        stranded = [False] * len(answers)
    else:
        there = set(fewest)
        places = [_place(node, answer, there, folded, open_ended) for node, answer in enumerate(answers)]
        stranded = [
            whole is None and not open_ended and answer.taken is True and node not in there and node not in folded
            for node, answer in enumerate(answers)
        ]
    names = [outline.name(tensors[0]) if tensors and tensors[0] >= 0 else "" for tensors in outline.written]
    nodes = tuple(map(NodeReport, range(len(answers)), outline.op, names, texts, answers, places, stranded))
    return SubgraphReport(
        index=subgraph.index,
        name=subgraph.name,
        total=len(nodes),
        delegated=None if open_ended else len(fewest),
        delegated_range=(min(len(fewest), len(chosen)), max(len(fewest), len(chosen))),
        partitions=tuple(part.nodes for part in parts if part.accelerated),
        crossings=len(crossing),
        crossing_bytes=sum(outline.nbytes(index) for index in crossing),
        whole_refusal=None if whole is None else whole.reason,
        nodes=nodes,
    )


def _answers(
    outline: Outline, halves: Mapping[int, int], matrix: Matrix
) -> tuple[list[str], list[Answer], int | None]:
    """Each node's signature and answer, and the first node whose window is larger than its input."""
    signatures = NodeSignatures(outline, halves)
    known: dict[Any, tuple[str, Answer]] = {}
    answered: dict[int, tuple[str, Answer]] = {}
    texts: list[str] = []
    answers: list[Answer] = []
    too_small: int | None = None
    for node, key in enumerate(signatures.keys):
        found = known.get(key)
        if found is None:
            signature = signatures.of(node)
            # Equal signatures of a subgraph are one object.
            found = answered.get(id(signature))
            if found is None:
                found = answered[id(signature)] = str(signature), matrix.answer(signature)
            if (cut_off := _cut_off(outline, node, found[1], halves, matrix)) is not None:
                found = found[0], cut_off
            known[key] = found
            if too_small is None and window_too_large(outline, node):
                too_small = node
        texts.append(found[0])
        answers.append(found[1])
    return texts, answers, too_small


def _cut_off(
    outline: Outline, node: int, answer: Answer, halves: Collection[int], matrix: Matrix
) -> Answer | None:
    """The answer for a layer whose weights are larger than a texture of the adapter may be."""
    limit: int | None = matrix.header["behaviour"].get("weights_texture")
    size = weights_texture(outline, node, halves) if limit is not None and answer.taken else None
    if limit is None or size is None or max(size) <= limit:
        return None
    reason = f"its weights make a texture of {size[0]} x {size[1]} texels where the adapter allows {limit}"
    evidence = tuple(matrix.header["behaviour_evidence"].get("weights_texture", ()))
    return Answer("wrong", reason, basis=TEXTURE_BASIS, date=answer.date, numbers="wrong", evidence=evidence)


def _place(index: int, answer: Answer, on_accelerator: set[int], folded: set[int], open_ended: bool) -> str:
    if index in folded:
        return "folded" if index in on_accelerator else "cpu"
    if answer.status == "refused":
        return "cpu"
    if open_ended:
        return "unknown"
    return "accelerator" if index in on_accelerator else "cpu"


def _findings(outlines: Sequence[Outline], subgraphs: Sequence[SubgraphReport], matrix: Matrix) -> list[Finding]:
    # Most nodes are taken and right: nothing is to be said of them.
    every = [
        (subgraph.index, node)
        for subgraph in subgraphs
        for node in subgraph.nodes
        if node.answer.status != "supported"
    ]
    findings = [
        *_fatal(every),
        *_whole(subgraphs),
        *_refused(every, matrix),
        *_stranded(subgraphs),
        *_unknown(every),
        *_wrong(every),
        *_risky(outlines, subgraphs),
        *_partly_sparse(outlines, subgraphs),
        *_dynamic(outlines[0]),
    ]
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def _grouped(
    every: Sequence[tuple[int, NodeReport]], statuses: frozenset[str]
) -> list[tuple[tuple[str, str | None], list[tuple[int, NodeReport]]]]:
    groups: dict[tuple[str, str | None], list[tuple[int, NodeReport]]] = {}
    for pair in every:
        node = pair[1]
        if node.answer.status in statuses and node.place != "folded":
            groups.setdefault((node.op, node.answer.reason), []).append(pair)
    return list(groups.items())


def _fatal(every: Sequence[tuple[int, NodeReport]]) -> list[Finding]:
    found: list[Finding] = []
    for (op, reason), nodes in _grouped(every, FATAL):
        message = f"{op}: the accelerator takes it and then the model does not load or run: {reason}"
        hint = "Write the node in a form that was measured to work, or keep it off the accelerator."
        found.append(rules.group("fatal", "error", message, hint, nodes, nodes[0][1].answer.evidence))
    return found


def _whole(subgraphs: Sequence[SubgraphReport]) -> list[Finding]:
    found: list[Finding] = []
    for subgraph in subgraphs:
        if subgraph.whole_refusal is not None:
            guilty = [(subgraph.index, node) for node in subgraph.nodes if node.answer.scope == "subgraph"]
            rewrite = rules.rewrite_for(guilty[0][1].op, subgraph.whole_refusal, guilty[0][1].signature)
            message = f"no node of subgraph {subgraph.index} can be delegated: {subgraph.whole_refusal}"
            found.append(
                rules.group(
                    "subgraph_refused",
                    "error",
                    message,
                    rewrite.hint if rewrite else "",
                    guilty,
                    guilty[0][1].answer.evidence,
                    rewrite.rewrite if rewrite else None,
                )
            )
    return found


def _refused(every: Sequence[tuple[int, NodeReport]], matrix: Matrix) -> list[Finding]:
    found: list[Finding] = []
    for (op, reason), nodes in _grouped(every, frozenset({"refused"})):
        node = nodes[0][1]
        if node.answer.scope == "subgraph":
            continue
        rewrite = rules.rewrite_for(op, reason, node.signature)
        hint = rewrite.hint if rewrite else ""
        measured = matrix.op(op)
        nearest = measured.nearest_supported(NodeSignature.parse(op, node.signature)) if measured else None
        if nearest is not None:
            hint = f"{hint} Nearest form that was measured to work: {nearest}".strip()
        where = "" if node.answer.basis == "measured" else f" ({node.answer.basis})"
        message = f"{op} runs on the CPU: {reason or 'refused without a reason'}{where}"
        found.append(
            rules.group(
                rewrite.name if rewrite else "refused",
                "fallback",
                message,
                hint,
                nodes,
                node.answer.evidence,
                rewrite.rewrite if rewrite else None,
            )
        )
    return found


def _stranded(subgraphs: Sequence[SubgraphReport]) -> list[Finding]:
    found: list[Finding] = []
    for subgraph in subgraphs:
        nodes = [(subgraph.index, node) for node in subgraph.nodes if node.stranded]
        if nodes:
            message = (
                f"{len(nodes)} supported nodes of subgraph {subgraph.index} stay on the CPU: the accelerator "
                f"takes only the "
                "largest run of nodes between refused ones"
            )
            hint = (
                "Each refused node in the middle of the graph costs everything on one side of it: rewrite those "
                "first."
            )
            found.append(rules.group("one_partition", "fallback", message, hint, nodes, ()))
    return found


def _unknown(every: Sequence[tuple[int, NodeReport]]) -> list[Finding]:
    found: list[Finding] = []
    groups: dict[str, list[tuple[int, NodeReport]]] = {}
    for pair in every:
        if pair[1].answer.status == "unknown":
            groups.setdefault(pair[1].op, []).append(pair)
    for op, nodes in groups.items():
        kinds = list(dict.fromkeys(node.signature for _, node in nodes))
        count = f"{len(kinds)} signature{'s' if len(kinds) > 1 else ''}"
        message = f"{op}: not measured in this form ({count}, e.g. {kinds[0]})"
        hint = "Measure it: `assay probe --lane LANE --model MODEL` tries the model's own nodes."
        found.append(rules.group("not_measured", "unknown", message, hint, nodes, (nodes[0][1].answer.basis,)))
    return found


def _wrong(every: Sequence[tuple[int, NodeReport]]) -> list[Finding]:
    found: list[Finding] = []
    for (op, _), nodes in _grouped(every, frozenset({"wrong"})):
        node = nodes[0][1]
        if node.answer.basis == TEXTURE_BASIS:
            message = f"{op} is taken and gives zeros, without an error: {node.answer.reason}"
            hint = (
                "Split the layer over its output channels (and join the results) or its input channels (and add "
                "them), so that each part's weights fit; `assay diagnose --fix` writes such a model."
            )
        else:
            message = f"{op} is taken and gave wrong numbers when it was measured alone: {node.answer.reason}"
            hint = f"Check the outputs against the CPU (`assay run`). Measured form: {node.signature}"
        found.append(
            rules.group(
                "weights_texture" if node.answer.basis == TEXTURE_BASIS else "measured_wrong",
                "warning",
                message,
                hint,
                nodes,
                (*node.answer.evidence, *rules.reports(op, node.signature)),
            )
        )
    return found


def _risky(outlines: Sequence[Outline], subgraphs: Sequence[SubgraphReport]) -> list[Finding]:
    found: dict[str, tuple[rules.Risk, list[tuple[int, NodeReport]]]] = {}
    for subgraph, outline in zip(subgraphs, outlines, strict=True):
        for risk, index in rules.risks(outline):
            node = subgraph.nodes[index]
            if node.place != "cpu":
                found.setdefault(risk.name, (risk, []))[1].append((subgraph.index, node))
    return [
        rules.group(
            name, "warning", f"{len(nodes)} x {risk.message}", risk.hint, nodes, risk.evidence, risk.rewrite
        )
        for name, (risk, nodes) in found.items()
    ]


def _partly_sparse(outlines: Sequence[Outline], subgraphs: Sequence[SubgraphReport]) -> list[Finding]:
    """Sparse weights in a graph that is split: the CPU's fast path then reads weights that nobody unpacks."""
    found: list[Finding] = []
    for subgraph, outline in zip(subgraphs, outlines, strict=True):
        nodes = [(subgraph.index, subgraph.nodes[index]) for index in outline.nodes_of("DENSIFY")]
        if nodes and subgraph.partitions and len(subgraph.partitions[0]) < subgraph.total:
            message = (
                "sparse weights (DENSIFY) in a graph that only partly goes to the accelerator: the nodes "
                "left on the CPU were "
                "seen to compute with weights that are never unpacked, and no error says so"
            )
            hint = "Fold each DENSIFY and its DEQUANTIZE into a dense constant, or run the model on one side only."
            evidence = (
                "pose_detection.tflite of MediaPipe on GPU and CPU together: off by 221 to 367 on outputs, "
                "4.6e-4 on the "
                "CPU alone; measured with ai-edge-litert 2.3.0",
            )
            found.append(rules.group("sparse_split", "warning", message, hint, nodes, evidence))
    return found


def _dynamic(outline: Outline) -> list[Finding]:
    shapes = outline.signatures
    open_inputs = [
        outline.name(index)
        for index in outline.inputs
        if -1 in shapes.flat[shapes.starts[index] : shapes.starts[index + 1]]
    ]
    if not open_inputs:
        return []
    named = ", ".join(open_inputs)
    message = f"inputs of open size ({named}): the prediction is for the sizes in the file, 1 where they are open"
    return [Finding("dynamic_input", "warning", message, "Export with the sizes that you run with.", (), (), ())]
