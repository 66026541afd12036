"""The lint itself: a model and a matrix in, a report out. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.graph.lint import rules
from assay.graph.lint.matrix import FATAL, Answer, Matrix, for_lane
from assay.graph.lint.partition import crossings, delegated, partitions
from assay.graph.lint.report import Finding, LintReport, NodeReport, SubgraphReport
from assay.graph.lint.signature import Alike, Signature, folded_halves, signature_of

if TYPE_CHECKING:
    from assay.graph import Model, Node, Subgraph

DEFAULT_LANE = "gpu_mldrift"
_POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
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
    if not isinstance(model, ModelType):
        model = read(model)
    subgraphs = tuple(_subgraph(model, subgraph, matrix) for subgraph in model.subgraphs)
    header = matrix.header
    return LintReport(
        model=str(model.path) if model.path else None,
        lane=matrix.lane,
        runtime=header.get("runtime", "LiteRT"),
        runtime_version=matrix.runtime_version,
        adapter=header.get("adapter"),
        measured=(header["measured"][0], header["measured"][1]),
        subgraphs=subgraphs,
        findings=tuple(_findings(model, subgraphs, matrix)),
    )


def _subgraph(model: Model, subgraph: Subgraph, matrix: Matrix) -> SubgraphReport:
    behaviour = matrix.header["behaviour"]
    halves = folded_halves(model, subgraph) if behaviour["folds_float16_constants"] else {}
    folded = {node.index for node in subgraph.nodes if node.op == "DEQUANTIZE" and node.outputs[0] in halves}
    signatures: list[str] = []
    answers: list[Answer] = []
    known: dict[Any, tuple[str, Answer]] = {}
    alike = Alike(model, subgraph, halves)
    too_small: int | None = None
    for node in subgraph.nodes:
        key = alike.key(node)
        found = known.get(key)
        if found is None:
            signature = signature_of(model, subgraph, node, halves)
            found = known[key] = str(signature), matrix.answer(signature)
            if too_small is None and _window_too_large(subgraph, node):
                too_small = node.index
        signatures.append(found[0])
        answers.append(_FOLDED if node.index in folded else found[1])
    distinct = {id(answer): answer for answer in answers}.values()
    whole = next(
        (answer for answer in distinct if answer.status == "refused" and answer.scope == "subgraph"), None
    )
    if whole is None and too_small is not None:
        node = subgraph.nodes[too_small]
        reason = f"the window of node {too_small} ({node.op}) is larger than its input at the sizes in the file"
        whole = answers[too_small] = Answer(
            "refused", reason, "subgraph", basis="follows from the sizes in the file"
        )
    most = behaviour["max_partitions"]
    if whole is not None:
        fewest = chosen = []
    else:
        fewest = chosen = delegated(subgraph, [answer.taken is True for answer in answers], folded, most)
    open_ended = whole is None and any(answer.status == "unknown" for answer in distinct)
    if open_ended:
        chosen = delegated(subgraph, [answer.taken is not False for answer in answers], folded, most)
    parts = partitions(subgraph, fewest)
    crossing = crossings(subgraph, parts, halves)
    on_accelerator = set(fewest)
    nodes = tuple(
        NodeReport(
            index=node.index,
            op=node.op,
            output=subgraph.tensors[node.outputs[0]].name if node.outputs and node.outputs[0] >= 0 else "",
            signature=signature,
            answer=answer,
            place=_place(node.index, answer, on_accelerator, folded, open_ended),
            stranded=whole is None
            and not open_ended
            and answer.taken is True
            and node.index not in on_accelerator
            and node.index not in folded,
        )
        for node, signature, answer in zip(subgraph.nodes, signatures, answers, strict=True)
    )
    return SubgraphReport(
        index=subgraph.index,
        name=subgraph.name,
        total=len(subgraph.nodes),
        delegated=None if open_ended else len(fewest),
        delegated_range=(min(len(fewest), len(chosen)), max(len(fewest), len(chosen))),
        partitions=tuple(part.nodes for part in parts if part.accelerated),
        crossings=len(crossing),
        crossing_bytes=sum(subgraph.tensors[index].nbytes or 0 for index in crossing),
        whole_refusal=None if whole is None else whole.reason,
        nodes=nodes,
    )


def _window_too_large(subgraph: Subgraph, node: Node) -> bool:
    """True for a window without padding over a smaller input: no kernel of the runtime can prepare such a node."""
    if node.options.get("padding") != "VALID" or node.op not in ("CONV_2D", "DEPTHWISE_CONV_2D", *_POOLS):
        return False
    source = subgraph.tensors[node.inputs[0]].shape
    if node.op in _POOLS:
        window = (node.options.get("filter_height", 1), node.options.get("filter_width", 1))
    else:
        shape = subgraph.tensors[node.inputs[1]].shape
        steps = [node.options.get(f"dilation_{side}_factor", 1) for side in "hw"]
        if len(shape) != 4:
            return False
        window = tuple((size - 1) * step + 1 for size, step in zip(shape[1:3], steps, strict=True))
    return len(source) == 4 and any(size > room for size, room in zip(window, source[1:3], strict=True))


def _place(index: int, answer: Answer, on_accelerator: set[int], folded: set[int], open_ended: bool) -> str:
    if index in folded:
        return "folded" if index in on_accelerator else "cpu"
    if answer.status == "refused":
        return "cpu"
    if open_ended:
        return "unknown"
    return "accelerator" if index in on_accelerator else "cpu"


def _findings(model: Model, subgraphs: Sequence[SubgraphReport], matrix: Matrix) -> list[Finding]:
    every = [(subgraph.index, node) for subgraph in subgraphs for node in subgraph.nodes]
    findings = [
        *_fatal(every),
        *_whole(subgraphs),
        *_refused(every, matrix),
        *_stranded(subgraphs),
        *_unknown(every),
        *_wrong(every),
        *_risky(model, subgraphs),
        *_partly_sparse(model, subgraphs),
        *_dynamic(model),
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
        nearest = measured.nearest_supported(Signature.parse(op, node.signature)) if measured else None
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
        message = f"{op} is taken and gave wrong numbers when it was measured alone: {node.answer.reason}"
        hint = f"Check the outputs against the CPU (`assay run`). Measured form: {node.signature}"
        found.append(
            rules.group(
                "measured_wrong",
                "warning",
                message,
                hint,
                nodes,
                (*node.answer.evidence, *rules.reports(op, node.signature)),
            )
        )
    return found


def _risky(model: Model, subgraphs: Sequence[SubgraphReport]) -> list[Finding]:
    found: dict[str, tuple[rules.Risk, list[tuple[int, NodeReport]]]] = {}
    for subgraph in subgraphs:
        for risk, index in rules.risks(model, model.subgraphs[subgraph.index]):
            node = subgraph.nodes[index]
            if node.place != "cpu":
                found.setdefault(risk.name, (risk, []))[1].append((subgraph.index, node))
    return [
        rules.group(
            name, "warning", f"{len(nodes)} x {risk.message}", risk.hint, nodes, risk.evidence, risk.rewrite
        )
        for name, (risk, nodes) in found.items()
    ]


def _partly_sparse(model: Model, subgraphs: Sequence[SubgraphReport]) -> list[Finding]:
    """Sparse weights in a graph that is split: the CPU's fast path then reads weights that nobody unpacks."""
    found: list[Finding] = []
    for subgraph in subgraphs:
        nodes = [(subgraph.index, node) for node in subgraph.nodes if node.op == "DENSIFY"]
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


def _dynamic(model: Model) -> list[Finding]:
    open_inputs = [
        tensor.name
        for subgraph in model.subgraphs[:1]
        for tensor in (subgraph.tensors[index] for index in subgraph.inputs)
        if tensor.is_dynamic
    ]
    if not open_inputs:
        return []
    named = ", ".join(open_inputs)
    message = f"inputs of open size ({named}): the prediction is for the sizes in the file, 1 where they are open"
    return [Finding("dynamic_input", "warning", message, "Export with the sizes that you run with.", (), (), ())]
