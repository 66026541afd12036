"""The loopback server: what it serves, what it refuses, and that it stops."""

import http.client
import threading
from urllib.parse import urlsplit

import pytest

from assay.lanes.browser.server import UPLOAD_LIMIT, Server, save_body


@pytest.fixture
def server():
    server = Server(None)
    yield server
    server.close()


def ask(server, path, method="GET", body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(
            method, path, body=body, headers={"Host": f"localhost:{server.port}", **(headers or {})}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def at(server, name):
    return urlsplit(server.url).path + name


def test_serves_what_it_was_told_to_with_isolation(server, tmp_path):
    (tmp_path / "m").write_bytes(b"model")
    server.serve("model", tmp_path / "m")
    server.serve("made", lambda: b"made")
    status, body, headers = ask(server, at(server, "model"))
    assert (status, body) == (200, b"model")
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert ask(server, at(server, "made"))[1] == b"made"
    assert ask(server, at(server, "run.html"))[0] == 200
    server.forget("model")
    assert ask(server, at(server, "model"))[0] == 404


@pytest.mark.parametrize("path", ["/", "/run.html", "/wrong-token/run.html", "/../../etc/passwd", "//"])
def test_nothing_without_the_token(server, path):
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("name", ["../session.py", "%2e%2e/session.py", "nothing", "litertjs/../../x", ""])
def test_nothing_beside_what_it_was_told_to_serve(server, name):
    assert ask(server, at(server, name))[0] == 404


def test_another_hosts_name_for_loopback_is_refused(server):
    assert ask(server, at(server, "run.html"), headers={"Host": f"evil.example:{server.port}"})[0] == 404
    assert ask(server, at(server, "run.html"), headers={"Host": f"127.0.0.1:{server.port}"})[0] == 200


def test_100_mb_arrive_whole(server, tmp_path):
    block = bytes(range(256)) * 4096
    path = tmp_path / "got"
    server.receive("output", lambda body, length: save_body(body, length, path))
    data = block * 100
    assert ask(server, at(server, "output"), "POST", data)[0] == 200
    assert path.read_bytes() == data


def test_what_a_page_may_not_send(server):
    assert ask(server, at(server, "output"), "POST", b"x")[0] == 404
    server.receive("output", lambda body, length: None)
    assert ask(server, at(server, "output"), "POST", headers={"Content-Length": str(UPLOAD_LIMIT + 1)})[0] == 413
    assert ask(server, at(server, "output"), "POST", headers={"Content-Length": "-1"})[0] == 411
    assert ask(server, "/wrong/output", "POST", b"x")[0] == 404


def test_a_page_that_goes_in_the_middle_of_an_upload(server, tmp_path):
    failed = threading.Event()

    def receive(body, length):
        try:
            save_body(body, length, tmp_path / "got")
        except ConnectionError:
            failed.set()
            raise

    server.receive("output", receive)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.putrequest("POST", at(server, "output"), skip_host=True)
    connection.putheader("Host", f"localhost:{server.port}")
    connection.putheader("Content-Length", "1000")
    connection.endheaders()
    connection.send(b"only this")
    connection.close()
    assert failed.wait(10)
    assert ask(server, at(server, "run.html"))[0] == 200


def test_binds_to_loopback_on_a_random_port_and_stops():
    first, second = Server(None), Server(None)
    try:
        assert first.port != second.port
        assert first.url.split("/")[3] != second.url.split("/")[3]
        assert first._http.server_address[0] == "127.0.0.1"
    finally:
        first.close()
        second.close()
    with pytest.raises(ConnectionRefusedError):
        ask(first, "/")
