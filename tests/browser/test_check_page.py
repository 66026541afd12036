"""The check page in a real browser: verdicts on both lanes, and nothing that leaves the machine."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

from assay import graph
from assay.lanes.browser import chromium
from assay.measure.check_page import CheckServer

from .conftest import double

pytestmark = pytest.mark.browser


@pytest.fixture
def page():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.find(),
            args=chromium.launch_arguments("swiftshader"),
            chromium_sandbox=chromium.can_sandbox(),
        )
        yield browser.new_page()
        browser.close()


def drop(page, path):
    page.set_input_files("#file", path)
    page.wait_for_function("document.body.dataset.state === 'done'", timeout=120_000)


def test_verdicts_on_both_lanes_and_nothing_leaves_the_machine(page, runtime, tmp_path):
    model = tmp_path / "my model.tflite"
    graph.save(double(), model)
    requests, sockets = [], []

    def note_request(request):
        requests.append(request)

    def note_socket(socket):
        sockets.append(socket)

    page.context.on("request", note_request)
    page.on("websocket", note_socket)
    with CheckServer(runtime, runs=3) as server:
        page.goto(server.url)
        drop(page, model)
        for lane in ("wasm_xnnpack", "webgpu_mldrift"):
            card = page.locator(f'[data-lane="{lane}"]')
            assert card.locator(".verdict").inner_text() == "match"
            assert "ms" in card.inner_text()
        assert "1 of 1, all" in page.locator('[data-lane="webgpu_mldrift"]').inner_text()
        assert page.locator("#overall").evaluate("bar => bar.value") == 1
        assert "swiftshader" in page.locator("#environment").inner_text()
        # A file that is no model is told apart, by the name it was dropped with.
        junk = tmp_path / "junk.tflite"
        junk.write_bytes(b"no model at all")
        page.evaluate("document.body.dataset.state = ''")
        drop(page, junk)
        assert "junk.tflite is not a valid .tflite model" in page.locator("#errors").inner_text()
        own = urlsplit(server.url)
    assert requests and not sockets
    for request in requests:
        there = urlsplit(request.url)
        assert there.scheme in ("data", "blob") or (there.hostname, there.port) == ("localhost", own.port), (
            request.url
        )
    uploads = [request for request in requests if request.url.endswith("/upload")]
    assert len(uploads) == 2, "the model goes to the assay process once, and nowhere else"


def test_the_page_itself_cannot_reach_another_host(page, runtime):
    with CheckServer(runtime) as server:
        page.goto(server.url)
        blocked = page.evaluate(
            """() => new Promise((resolve) => {
              addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
              fetch('http://127.0.0.1:9/', {method: 'POST', body: 'model'}).catch(() => {});
            })"""
        )
        assert blocked == "connect-src"
