"""A real browser without a window: Debian's `chromium`, spoken to over its own protocol.

with Browser() as browser:
    page = browser.open(path, width=390, dark=True)
    page.run("document.title")
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.sync.client import connect

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
needed = pytest.mark.skipif(CHROMIUM is None, reason="run `apt-get install chromium`")


class Page:
    """One page; `errors` are what its console complained of."""

    def __init__(self, socket) -> None:
        self.socket, self.count = socket, itertools.count(1)
        self.errors: list[str] = []
        self.loaded = False

    def ask(self, method, **given):
        number = next(self.count)
        self.socket.send(json.dumps({"id": number, "method": method, "params": given}))
        while True:
            said = json.loads(self.socket.recv(timeout=30))
            self._hear(said)
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]

    def _hear(self, said) -> None:
        what, given = said.get("method"), said.get("params", {})
        if what == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.errors.append(str(details.get("exception", details).get("description", details)))
        elif what == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.errors.append(str(given["args"]))
        elif what == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(given["entry"]["text"])
        elif what == "Page.loadEventFired":
            self.loaded = True

    def run(self, script):
        """What a script comes to, awaited."""
        done = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, script, seconds=20.0):
        """Wait until a script says true."""
        end = time.monotonic() + seconds
        while not self.run(f"!!({script})"):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.03)

    def key(self, name) -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def point(self, x, y) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def shot(self, path, whole=False) -> Path:
        """A picture of what is seen, or of the whole page."""
        got = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(got["data"]))
        return Path(path)


class Browser:
    """Chromium with a folder of its own, ended with the block."""

    def __enter__(self) -> Browser:
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
             f"--user-data-dir={self.home.name}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        told = Path(self.home.name, "DevToolsActivePort")
        end = time.monotonic() + 30
        while not told.exists() or not told.read_text().strip():
            assert self.process.poll() is None, "chromium did not start"
            assert time.monotonic() < end, "chromium did not start in time"
            time.sleep(0.05)
        self.port = told.read_text().split()[0]
        self.sockets = ExitStack()
        return self

    def __exit__(self, *error) -> None:
        self.sockets.close()
        self.process.terminate()
        self.process.wait(10)
        self.home.cleanup()

    def open(self, path, width=1200, height=900, dark=False, scale=1) -> Page:
        """A new page of a file, loaded and drawn."""
        new = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT"
        )
        with urllib.request.urlopen(new) as answer:
            where = json.load(answer)["webSocketDebuggerUrl"]
        page = Page(self.sockets.enter_context(connect(where, max_size=None, compression=None)))
        for domain in ("Runtime", "Log", "Page", "Network"):
            page.ask(f"{domain}.enable")
        phone = width < 500
        page.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=scale, mobile=phone)  # fmt: skip
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.ask("Emulation.setEmulatedMedia", features=theme)
        page.ask("Page.navigate", url=Path(path).resolve().as_uri())
        page.until("document.readyState === 'complete'")
        return page
