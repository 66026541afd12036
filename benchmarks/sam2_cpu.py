"""SAM 2.1 on the CPU: the converted models beside PyTorch eager and ONNX Runtime, same weights, one run.

    pip install 'litert-assay[convert,bench]'
    python benchmarks/sam2_cpu.py --runs 15
    python benchmarks/sam2_cpu.py --model decoder --decoder decoder.tflite --checkpoint sam2.1_hiera_tiny.pt

All peers get the same inputs and the same number of threads, and take turns run by run, so that a disturbance of
the machine hits all of them. Outputs are compared first. Without `--checkpoint` the weights are random (seed 0):
speed does not depend on their values. Without a `.tflite` the model is converted first: a minute or two.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.conversion.find import find
from assay.conversion.pipeline import rewritten, to_tflite
from assay.conversion.quiet import kept_quiet
from assay.conversion.recipe import Plan
from assay.conversion.verify import run_module

RECIPES = {"decoder": "sam2.1-hiera-tiny-mask-decoder", "encoder": "sam2.1-hiera-tiny-image-encoder"}
Outputs = dict[str, np.ndarray[Any, Any]]
Peer = Callable[[Outputs], Outputs]


def litert(model: bytes, threads: int) -> Peer:
    from ai_edge_litert.interpreter import Interpreter

    interpreter: Any = Interpreter(model_content=model, num_threads=threads)
    interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner()
    # The runner's results are views into the interpreter, which it must outlive.
    return lambda inputs: {name: np.array(value) for name, value in runner(**inputs).items() if interpreter}


def eager(plan: Plan) -> Peer:
    return lambda inputs: run_module(plan, {name: torch.from_numpy(inputs[name]) for name in plan.inputs})


def onnx(plan: Plan, threads: int) -> Peer:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder, kept_quiet(), torch.no_grad():
        path = str(Path(folder) / "model.onnx")
        torch.onnx.export(
            plan.module,
            tuple(plan.inputs.values()),
            path,
            input_names=list(plan.inputs),
            output_names=list(plan.outputs),
            dynamo=True,
            verbose=False,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = list(plan.outputs)
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def peers(plan: Plan, tflite: Path | None, threads: int) -> dict[str, Peer]:
    if tflite is None:
        with kept_quiet():
            graph, _ = rewritten(plan, plan.rewrites)
            model = to_tflite(graph, plan)
    else:
        model = tflite.read_bytes()
    found = {"litert (assay convert)": litert(model, threads), "pytorch eager": eager(plan)}
    try:
        found["onnx runtime"] = onnx(plan, threads)
    except ImportError as error:
        print(f"  onnx runtime: left out, {error.name} is not installed")
    return found


def bench(name: str, arguments: argparse.Namespace) -> None:
    recipe = find(RECIPES[name])
    seed = None if arguments.checkpoint else 0
    plan = recipe.plan(recipe.request(arguments.checkpoint, seed, getattr(arguments, f"{name}_variant"), {}))
    inputs = {key: tensor.numpy() for key, tensor in plan.inputs.items()}
    print(f"{recipe.name}: {arguments.threads} threads, {arguments.runs} runs each, in turns")
    runners = peers(plan, getattr(arguments, name), arguments.threads)
    reference = run_module(plan, plan.inputs)
    samples: dict[str, list[float]] = {peer: [] for peer in runners}
    for peer, run in runners.items():
        outputs = run(inputs)
        worst = max(float(np.abs(outputs[key] - reference[key]).max()) for key in reference)
        largest = max(float(np.abs(reference[key]).max()) for key in reference)
        print(f"  {peer}: max abs diff to pytorch {worst:.3g} (outputs up to {largest:.3g})")
        if worst > 1e-2 * largest:
            raise SystemExit(f"{peer} gives other numbers: its time would mean nothing")
    for _ in range(arguments.runs):
        for peer, run in runners.items():
            start = time.perf_counter()
            run(inputs)
            samples[peer].append((time.perf_counter() - start) * 1e3)
    ours = statistics.median(samples["litert (assay convert)"])
    for peer, times in samples.items():
        median = statistics.median(times)
        shown = f"p50 {median:9.1f} ms  min {min(times):9.1f} ms"
        print(f"  {peer:<24} {shown}  {median / ours:5.2f} x the time of litert")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*RECIPES, "both"], default="both")
    parser.add_argument("--decoder", type=Path, help="a converted decoder; default: convert one")
    parser.add_argument("--encoder", type=Path, help="a converted encoder; default: convert one")
    parser.add_argument("--decoder-variant", default="v2")
    parser.add_argument("--encoder-variant", default="full")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in RECIPES if arguments.model == "both" else [arguments.model]:
        bench(name, arguments)


if __name__ == "__main__":
    main()
