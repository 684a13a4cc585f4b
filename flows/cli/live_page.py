"""A page on loopback that grows while a command works.

Its address has a token, so other users of the computer and other sites in the browser cannot read
it. The browser loads the page again every few seconds until the work is done.
"""

import argparse
import contextlib
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from ...errors import ToolError
from ...file_access import reason
from .console import note

LOOPBACK = "127.0.0.1"

REFRESH_S = 3

WAITING = "<!doctype html><html lang=en><title>Tilewright</title><p>The first results come soon."


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Add `--serve`."""
    parser.add_argument(
        "--serve", action="store_true",
        help="show the page while it grows, at an address of this computer that has a secret "
        "token, until Ctrl-C",
    )  # fmt: skip


class LivePage:
    """Serve the page of the newest data at `address` until it is closed.

    Parameters
    ----------
    render
        Makes the page from data; called in another thread, for each request.

    Raises
    ------
    ToolError
        If loopback cannot be listened on.
    """

    def __init__(self, render: Callable[[Any], str]) -> None:
        self._render = render
        self._data: Any = None
        self._done = False
        path = f"/{secrets.token_urlsafe(24)}/"
        page = self

        class Handler(BaseHTTPRequestHandler):
            @override
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                host = f"{LOOPBACK}:{page.port}"
                known = secrets.compare_digest(self.path.encode(), path.encode())
                # Another host is a name that a site lets point here, to read from this address.
                if not known or self.headers.get("Host") != host:
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                body = page.text().encode()
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                if not page._done:
                    self.send_header("Refresh", str(REFRESH_S))
                self.end_headers()
                self.wfile.write(body)

        try:
            self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        except OSError as problem:
            raise ToolError(
                f"`--serve`: cannot listen on {LOOPBACK}, got `{reason(problem)}`; leave it out"
            ) from None
        self.port = self._server.server_address[1]
        self.address = f"http://{LOOPBACK}:{self.port}{path}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def text(self) -> str:
        """Return the page as it is now."""
        return WAITING if self._data is None else self._render(self._data)

    def show(self, data: Any, *, done: bool = False) -> None:
        """Show other data, which nobody changes any more; once `done`, it is loaded no more."""
        self._data, self._done = data, done

    def keep(self, what: str) -> None:
        """Let the user read the final page until Ctrl-C, then stop serving."""
        with contextlib.suppress(KeyboardInterrupt):
            note(f"{self.address}: {what} is done; Ctrl-C closes the page")
            threading.Event().wait()
        self.close()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
