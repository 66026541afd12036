"""Each pattern against lines that LiteRT.js wrote to a page's console."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.evidence import litert_log, litertjs_log
from assay.records.failure import FailureClass

HEALTHY = """\
INFO: [environment.cc:36] Creating LiteRT environment with options
WARNING: [npu_registry.cc:34] NPU accelerator could not be loaded: kLiteRtStatusErrorInvalidArgument.
INFO: Failed to load OpenCL library with dlopen: dynamic linking not enabled. Trying ICD loader.
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
"""
SILENT = """\
ERROR: Encountered unresolved custom op: Landmarks2TransformMatrix.
See instructions: https://www.tensorflow.org/lite/guide/ops_custom 
ERROR: Node number 192 (Landmarks2TransformMatrix) failed to prepare.
ERROR: [litert_compiled_model.cc:164] Failed to allocate tensors
"""
PARTIAL = """\
I1201 12:14:37.220999  755312 delegate_webgpu.cc:243] Created a WebGPU environment with provided device.
ERROR: Following operations are not supported by GPU delegate:
DENSIFY: Operation is not supported.
DEQUANTIZE: 
DEQUANTIZE: Dequantize for Densify is not supported
159 operations will run on the GPU, and the remaining 229 operations will run on the CPU.
I1201 12:14:37.323000  755312 delegate_kernel.cc:855] Initializing WebGPU-based API from graph.
%c[LiteRT]%c Model not fully compiled for webgpu. Partially delegating to WASM execution. \
background: #FFA000; color: black; font-weight: bold; padding: 2px 5px; border-radius: 3px; font-weight: bold;
"""
FALLBACK = (
    "%c[LiteRT]%c Model not fully compiled for webgpu on non-JSPI browser. Falling back to WASM execution. "
    "background: #D32F2F; color: white; font-weight: bold; padding: 2px 5px; border-radius: 3px; color: #D32F2F; "
    "font-weight: bold;"
)
POSITIONS = (
    "Error: ERROR: [third_party/odml/litert/litert/js/packages/core/src/cpp/litert_web.cc:245]\n"
    "└ ERROR: [./third_party/odml/litert/litert/cc/internal/litert_compiled_model_next.h:70]"
)


def test_a_healthy_console_shows_no_failure():
    assert litertjs_log.silent_failure(HEALTHY.splitlines()) is None
    assert litertjs_log.fell_back(HEALTHY) is None
    assert litertjs_log.xnnpack_created(HEALTHY) == "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."


def test_a_failure_that_no_call_reported():
    line = litertjs_log.silent_failure((HEALTHY + SILENT).splitlines())
    assert line == "ERROR: Encountered unresolved custom op: Landmarks2TransformMatrix."
    last = SILENT.splitlines()[-1:]
    assert litertjs_log.silent_failure(last) == last[0]


def test_a_refused_delegate_alone_is_no_failure():
    # Seen with a big constant: XNNPACK left the node to the plain kernels, and the run went on.
    assert (
        litertjs_log.silent_failure(["ERROR: failed to delegate DIV node #0 (binary_op_type=0, status=2)"]) is None
    )


def test_partial_delegation():
    found = litert_log.delegation(litertjs_log.plain(PARTIAL))
    assert found is not None and (found.delegated, found.remaining) == (159, 229)
    assert found.refusals[0] == ("DENSIFY", "Operation is not supported.")
    assert litertjs_log.partial_notice(PARTIAL) == (
        "[LiteRT] Model not fully compiled for webgpu. Partially delegating to WASM execution."
    )
    assert litertjs_log.fell_back(PARTIAL) is None
    assert litert_log.gpu_started(litertjs_log.plain(PARTIAL)) is not None


def test_the_whole_model_fell_back():
    assert litertjs_log.fell_back(FALLBACK) == (
        "[LiteRT] Model not fully compiled for webgpu on non-JSPI browser. Falling back to WASM execution."
    )
    none = "No operations will run on the GPU, and all 7 operations will run on the CPU."
    assert litertjs_log.fell_back(none) == none


@pytest.mark.parametrize(
    ("error", "lines", "expected"),
    [
        ("Error: Element type INT64 is not supported.", "", FailureClass.UNSUPPORTED_DTYPE),
        ("ReferenceError: Asyncify is not defined", PARTIAL, FailureClass.MISSING_JSPI),
        ("Error: JSPI is not supported", "", FailureClass.MISSING_JSPI),
        ("DeviceLost: WebGPU device lost (unknown): gone", "", FailureClass.DEVICE_LOST),
        (
            "Error: WebGPU was requested but no WebGPU device is set in the environment.",
            "",
            FailureClass.NO_ACCELERATOR,
        ),
        (
            "NotSupportedError: Failed to execute 'createContext': WebNN is not supported on this platform.",
            "",
            FailureClass.NO_ACCELERATOR,
        ),
        ("RangeError: Array buffer allocation failed", "", FailureClass.WASM_MEMORY_CEILING),
        ("RuntimeError: Aborted(). Build with -sASSERTIONS for more info.", "", FailureClass.CRASHED),
        ("RuntimeError: memory access out of bounds", "", FailureClass.CRASHED),
        (
            "UnsupportedShape: LiteRT.js cannot resize input x from [1,4] to [3,4]",
            "",
            FailureClass.UNSUPPORTED_SHAPE,
        ),
        (POSITIONS, SILENT, FailureClass.UNSUPPORTED_OP),
        (POSITIONS, HEALTHY, None),
        ("Error: something else", HEALTHY, None),
    ],
)
def test_classes(error, lines, expected):
    assert litertjs_log.classify(error, lines.splitlines()) == expected


def test_an_error_of_positions_only_is_told_by_the_console():
    assert litertjs_log.summary(POSITIONS, SILENT.splitlines()) == SILENT.splitlines()[0]
    assert litertjs_log.summary("Error: plain words", SILENT.splitlines()) == "Error: plain words"
    assert litertjs_log.summary("", []) == ""


@given(st.text(), st.lists(st.text()))
def test_any_text_is_read_without_an_error(text, lines):
    litertjs_log.plain(text)
    litertjs_log.fell_back(text)
    litertjs_log.partial_notice(text)
    litertjs_log.classify(text, lines)
    litertjs_log.summary(text, lines)
    litertjs_log.silent_failure(lines)
