"""Each pattern against lines that ai-edge-litert 2.3.0 wrote."""

import pytest

from assay.evidence import litert_log
from assay.records.failure import FailureClass

PARTIAL = """\
INFO: [delegate_webgpu.cc:363] Created a WebGPU environment.
ERROR: Following operations are not supported by GPU delegate:
DENSIFY: Operation is not supported.
DEQUANTIZE: 
DEQUANTIZE: Dequantize for Densify is not supported
108 operations will run on the GPU, and the remaining 183 operations will run on the CPU.
I0000 00:00:1796125634.519501    3034 delegate_kernel.cc:984] Initializing WebGPU-based API from graph.
"""
ADAPTER = (
    "I0000 00:00:1796125634.515158    3034 environment.cc:532] Selected adapter: SwiftShader Device (Subzero), "
    "arch=swiftshader, vendor=google, backend=Vulkan, adapterType=CPU / Software"
)


def test_partial_delegation_is_counted_and_each_refusal_is_word_for_word():
    found = litert_log.delegation(PARTIAL)
    assert found is not None
    assert (found.delegated, found.remaining) == (108, 183)
    assert found.refusals == (
        ("DENSIFY", "Operation is not supported."),
        ("DEQUANTIZE", ""),
        ("DEQUANTIZE", "Dequantize for Densify is not supported"),
    )
    assert found.lines[-1] == (
        "108 operations will run on the GPU, and the remaining 183 operations will run on the CPU."
    )
    assert litert_log.gpu_started(PARTIAL)


def test_the_last_report_counts_when_the_graph_was_compiled_twice():
    second = PARTIAL.replace("108", "100").replace("183", "191")
    found = litert_log.delegation(PARTIAL + second)
    assert found is not None
    assert (found.delegated, found.remaining) == (100, 191)
    assert len(found.refusals) == 3


def test_no_operation_on_the_gpu():
    line = "No operations will run on the GPU, and all 7 operations will run on the CPU."
    found = litert_log.delegation(line)
    assert found is not None
    assert (found.delegated, found.remaining, found.refusals) == (0, 7, ())


def test_a_log_without_a_report():
    assert litert_log.delegation("INFO: nothing of the kind\n") is None
    assert litert_log.adapter("") is None
    assert litert_log.gpu_started("") is None


@pytest.mark.parametrize(
    ("kind", "software"), [("CPU / Software", True), ("Discrete GPU", False), ("Integrated GPU", False)]
)
def test_adapter(kind: str, software: bool):
    found = litert_log.adapter(ADAPTER.replace("CPU / Software", kind))
    assert found is not None
    assert (found.name, found.backend) == ("SwiftShader Device (Subzero)", "Vulkan")
    assert found.software is software
    assert found.line.endswith(kind)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Encountered unresolved custom op: Landmarks2TransformMatrix.", FailureClass.UNSUPPORTED_OP),
        ("Select TensorFlow op(s), included in the given model, is(are) not sup", FailureClass.UNSUPPORTED_OP),
        ("Didn't find op for builtin opcode 'ROUND' version '1'.", FailureClass.UNSUPPORTED_OP),
        ("requested size exceeded maximum texture size 8192", FailureClass.ADAPTER_LIMIT),
        ("Failed to initialize WebGPU environment: INTERNAL: No adapters found", FailureClass.NO_ACCELERATOR),
        ("std::bad_alloc", FailureClass.OUT_OF_MEMORY),
        ("ValueError: Unsupported dtype: int64", FailureClass.UNSUPPORTED_DTYPE),
        ("Device was lost", FailureClass.DEVICE_LOST),
    ],
)
def test_failure_classes(line: str, expected: FailureClass):
    assert litert_log.failure(f"INFO: something\n{line}\nmore") == (expected, line)


def test_a_log_that_names_no_failure():
    assert litert_log.failure("INFO: Created TensorFlow Lite XNNPACK delegate for CPU.") is None


def test_what_the_graphics_layer_complained_of_is_kept_word_for_word():
    size = "([Extent3D width:12566, height:16, depthOrArrayLayers:1])"
    largest = "([Extent3D width:8192, height:8192, depthOrArrayLayers:2048])"
    said = f"Validation error: Texture size {size} exceeded maximum texture size {largest}."
    log = f"E0000 00:00:1796140379.094315   13450 environment.cc:105] {said}\n" * 3 + PARTIAL
    assert litert_log.graphics_errors(log) == (said,)
    browser = said.removeprefix("Validation error: ")
    assert litert_log.graphics_errors(f"warning {browser}\n - While validating [TextureDescriptor]") == (browser,)
    memory = "Out of memory: vkAllocateMemory failed with VK_ERROR_OUT_OF_DEVICE_MEMORY"
    (line,) = litert_log.graphics_errors(f"E0000 00:00:1796140167.981900    9039 environment.cc:105] {memory}")
    assert line.endswith(memory)
    assert litert_log.graphics_errors(PARTIAL) == ()
