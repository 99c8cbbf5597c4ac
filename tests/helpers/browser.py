"""A headless Chromium driven over its debugging pipe, for the optional browser test."""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


class Browser:
    """One page; ``errors`` holds what its console and its scripts complained about."""

    def __init__(self, profile):
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        # Chromium reads commands from descriptor 3 and writes answers to 4.
        source, sink = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out))
        joined = f'exec "$0" "$@" 3</dev/fd/{source} 4>/dev/fd/{sink}'
        self._process = subprocess.Popen(
            ["sh", "-c", joined, CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}",
             "about:blank"],
            pass_fds=(source, sink), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (theirs_in, theirs_out, source, sink):
            os.close(end)
        self._rest, self._number, self._session, self._events = b"", 0, None, []
        self.errors, self.requests = [], []
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self):
        with contextlib.suppress(OSError):
            self._session = None
            self._call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        self._process.wait(timeout=30)

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _next(self):
        while b"\0" not in self._rest:
            got = os.read(self._in, 1 << 16)
            if not got:
                raise OSError("the browser has gone")
            self._rest += got
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        method, params = event.get("method"), event.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded":
            self.errors.append(json.dumps(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path, *, width=1280, height=900, dark=False):
        """Load a file at this size."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._call("Page.navigate", url=f"file://{path}")
        while "Page.loadEventFired" not in self._events:
            self._note(self._next())

    def run(self, program):
        """Return the value of a JavaScript expression."""
        result = self._call("Runtime.evaluate", expression=program, returnByValue=True,
                            awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def centre(self, query):
        """Scroll to an element; return the middle of what it covers in the window."""
        return self.run(
            f"new Promise((done) => {{ const e = document.querySelector({query!r});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            # The page hears of its scrolling with the next frame.
            "requestAnimationFrame(() => requestAnimationFrame(() => {"
            "const b = e.getBoundingClientRect();"
            "done([b.left + b.width / 2, b.top + b.height / 2]) })) })"
        )

    def move(self, x, y):
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name):
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=name)

    def picture(self, path, query=None):
        """Write a PNG of an element, or of the whole page."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({query or 'html'!r});"
            "const b = e.getBoundingClientRect();"
            "return [b.left + scrollX, b.top + scrollY, b.width, b.height] })()"
        )
        clip = dict(zip(("x", "y", "width", "height"), box, strict=True), scale=1)
        shot = self._call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))
