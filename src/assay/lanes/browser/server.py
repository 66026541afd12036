"""A loopback server for one page: it serves what it was told to and nothing else, and stops with the command."""

from __future__ import annotations

import contextlib
import mimetypes
import secrets
import shutil
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from assay.lanes.browser.litertjs import Runtime

UPLOAD_LIMIT = 2**32
"""Largest body that a page may send, in bytes: more than WebAssembly can address."""

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
}

# A page of ours talks to this server and to nobody else, whatever a model or a runtime may try.
# `blob:` and `unsafe-eval` are what the runtime's WebAssembly and its threads need.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' 'unsafe-eval' blob:; "
    "worker-src 'self' blob:; frame-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)


class Body(Protocol):
    """The body of a request, to be read as it comes."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...


Receiver = Callable[[Body, int], bytes | None]
"""Takes a request's body and its length; what it returns is the answer's body."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that dies leaves broken connections behind, which are no news."""


class Server:
    """Serves files and takes uploads below an unguessable path on a loopback port.

    Args:
        runtime: The LiteRT.js that the page may load.
        port: 0 for a random one; a fixed one only where a device's port is forwarded to it.

    Attributes:
        url: Address of the page's folder, with the token, ending in `/`.
    """

    def __init__(self, runtime: Runtime | None, port: int = 0) -> None:
        self._files: dict[str, Path | bytes | Callable[[], bytes]] = {}
        self._receivers: dict[str, Receiver] = {}
        for asset in files("assay.lanes.browser").joinpath("page").iterdir():
            if asset.is_file():
                self._files[asset.name] = asset.read_bytes()
        if runtime is not None:
            for part in ("core", "utils"):
                for path in (runtime.folder / part).rglob("*"):
                    if path.is_file() and path.suffix in {".js", ".wasm"}:
                        name = path.relative_to(runtime.folder).as_posix()
                        self._files[f"litertjs/{name}"] = path
        self._assets = tuple(self._files)
        self._http = _Http(("127.0.0.1", port), self._handler())
        self.port = int(self._http.server_address[1])
        # A fixed port is for a forwarded one, whose name on the other side is localhost too.
        self._hosts = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        self._token = secrets.token_urlsafe(24)
        self.url = f"http://localhost:{self.port}/{self._token}/"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def serve(self, name: str, content: Path | bytes | Callable[[], bytes]) -> None:
        """Serve a file, bytes, or what a function makes when asked, under a name below the token."""
        self._files[name] = content

    def mirror(self, prefix: str) -> None:
        """Serve the page's own files and the runtime below a folder too, for a page that lives there."""
        for name in self._assets:
            self._files[prefix + name] = self._files[name]

    def receive(self, name: str, receiver: Receiver) -> None:
        """Hand the bodies posted to a name to a function; it runs in the request's thread."""
        self._receivers[name] = receiver

    def forget(self, prefix: str) -> None:
        """Stop serving and receiving all names that start with `prefix`."""
        for table in (self._files, self._receivers):
            for name in [name for name in table if name.startswith(prefix)]:
                del table[name]

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Small answers must not wait for an acknowledgement.
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: Any) -> None: ...

            def _name(self) -> str | None:
                # A page of another site can reach loopback by a name of its own: its Host gives it away.
                if self.headers.get("Host") not in server._hosts:
                    return None
                token, _, name = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
                return name if secrets.compare_digest(token.encode(), server._token.encode()) else None

            def _head(self, status: HTTPStatus, length: int, kind: str = "text/plain; charset=utf-8") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(length))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Cross-Origin-Opener-Policy", "same-origin")
                self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
                self.send_header("Cross-Origin-Resource-Policy", "same-origin")
                self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Referrer-Policy", "no-referrer")
                self.end_headers()

            def _refuse(self, status: HTTPStatus) -> None:
                body = f"{status.value} {status.phrase}\n".encode()
                self.close_connection = True
                self._head(status, len(body))
                self.wfile.write(body)

            def do_GET(self) -> None:
                name = self._name()
                content = server._files.get(name) if name is not None else None
                if name is None or content is None:
                    self._refuse(HTTPStatus.NOT_FOUND)
                    return
                kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    if isinstance(content, Path):
                        with content.open("rb") as file:
                            self._head(HTTPStatus.OK, content.stat().st_size, kind)
                            shutil.copyfileobj(file, self.wfile, 2**20)
                        return
                    body = content if isinstance(content, bytes) else content()
                    self._head(HTTPStatus.OK, len(body), kind)
                    self.wfile.write(body)

            def do_POST(self) -> None:
                name = self._name()
                receiver = server._receivers.get(name) if name is not None else None
                length = self.headers.get("Content-Length", "")
                if receiver is None:
                    self._refuse(HTTPStatus.NOT_FOUND)
                elif not length.isdigit():
                    self._refuse(HTTPStatus.LENGTH_REQUIRED)
                elif int(length) > UPLOAD_LIMIT:
                    self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                else:
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        answer = receiver(self.rfile, int(length)) or b""
                        self._head(HTTPStatus.OK, len(answer), "application/json")
                        self.wfile.write(answer)

        return Handler


def save_body(body: Body, length: int, path: Path) -> None:
    """Write a request's body to a file as it comes.

    Raises:
        ConnectionError: The page went away before its end.
    """
    left = length
    with path.open("wb") as file:
        while left:
            chunk = body.read(min(left, 2**20))
            if not chunk:
                raise ConnectionError("the page went away in the middle of an upload")
            file.write(chunk)
            left -= len(chunk)
