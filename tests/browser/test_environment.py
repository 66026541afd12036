"""The environment block and the options: read, never assumed; checked, never guessed."""

import pytest

from assay.errors import AssayError
from assay.lanes.browser.chromium import launch_arguments
from assay.lanes.browser.environment import browser_env, is_software, wasm_build
from assay.lanes.browser.options import BrowserOptions

PHONE = {
    "user_agent": "Mozilla/5.0 (Linux; Android 10; K) Chrome/151.0.0.0 Mobile Safari/537.36",
    "cross_origin_isolated": True,
    "jspi_supported": True,
    "ua": {
        "platform": "Android",
        "platformVersion": "16.0.0",
        "model": "Pixel 8a",
        "fullVersionList": [
            {"brand": "Not:A-Brand", "version": "8.0.0.0"},
            {"brand": "Google Chrome", "version": "151.0.7922.34"},
        ],
    },
    "webgpu": {
        "present": True,
        "adapter": {"vendor": "arm", "architecture": "valhall", "device": "", "description": ""},
        "is_fallback": False,
        "features": ["shader-f16"],
    },
}


def test_a_phone_is_what_it_says_and_not_what_we_are():
    env = browser_env(
        PHONE,
        browser_version="151.0.7922.34",
        litertjs_version="2.5.3",
        wasm_file="litert_wasm_jspi_internal.wasm",
        remote=True,
    )
    assert env == {
        "browser": "chrome",
        "browser_version": "151.0.7922.34",
        "cross_origin_isolated": True,
        "headless": False,
        "jspi": True,
        "jspi_supported": True,
        "litertjs_core_version": "2.5.3",
        "machine_label": "Pixel 8a",
        "os": "Android",
        "os_version": "16.0.0",
        "shader_f16": True,
        "wasm_build": "jspi",
        "webgpu_adapter": PHONE["webgpu"]["adapter"],
        "webgpu_adapter_kind": "hardware",
    }


def test_what_a_browser_does_not_tell_is_null():
    env = browser_env(
        {"user_agent": "x", "webgpu": {"present": False, "adapter": None}},
        browser_version="1",
        litertjs_version="2.5.3",
        wasm_file="",
        remote=True,
    )
    assert env["os"] is env["webgpu_adapter"] is env["webgpu_adapter_kind"] is env["shader_f16"] is None
    assert env["wasm_build"] is None and env["machine_label"] == "remote-browser"


@pytest.mark.parametrize(
    ("adapter", "fallback", "software"),
    [
        ({"vendor": "google", "architecture": "swiftshader"}, None, True),
        ({"vendor": "mesa", "architecture": "", "description": "llvmpipe (LLVM 15)"}, None, True),
        ({"vendor": "apple", "architecture": "metal-3"}, False, False),
        ({"vendor": "unknown", "architecture": ""}, True, True),
        (None, None, None),
    ],
)
def test_software_adapters_are_told_apart(adapter, fallback, software):
    assert is_software({"adapter": adapter, "is_fallback": fallback}) is software


@pytest.mark.parametrize(
    ("file", "build"),
    [
        ("litert_wasm_internal.wasm", "single"),
        ("litert_wasm_compat_internal.wasm", "compat"),
        ("litert_wasm_threaded_internal.wasm", "threaded"),
        ("litert_wasm_jspi_internal.wasm", "jspi"),
        ("", None),
    ],
)
def test_the_build_is_read_from_the_file_that_was_fetched(file, build):
    assert wasm_build(file) == build


@pytest.mark.parametrize(
    "options",
    [
        {"adapter": "gpu"},
        {"precision": "fp8"},
        {"litertjs": "../../x"},
        {"jspi": True, "wasm_threads": 2},
    ],
)
def test_options_that_cannot_be(options):
    with pytest.raises(AssayError):
        BrowserOptions.of(options)


def test_options_of_other_lanes_are_left_alone():
    assert BrowserOptions.of({"enforce_f32": True, "cdp": None}) == BrowserOptions()


def test_arguments(monkeypatch):
    monkeypatch.setenv("ASSAY_CHROMIUM_ARGS", "--one '--two=a b'")
    arguments = launch_arguments("swiftshader")
    assert "--use-webgpu-adapter=swiftshader" in arguments
    assert arguments[-2:] == ["--one", "--two=a b"]
    assert not any("swiftshader" in argument for argument in launch_arguments("hardware"))
