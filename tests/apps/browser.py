"""A headless Chromium for tests of the page: driven by its DevTools protocol over a pipe, without other packages."""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import common


def find():
    """The program's path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page. What it complains of (exceptions, console errors, breaches of the policy) is in `complaints`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.source, from_write = os.pipe()
        words = [find(), "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                 "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--no-default-browser-check", "--disable-dev-shm-usage",
                 f"--user-data-dir={self.folder.name}", *(["--no-sandbox"] if os.getuid() == 0 else []), "about:blank"]
        self.process = common.popen(["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", *words],
                                    pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.number, self.rest, self.session, self.complaints = 0, b"", None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (EOFError, OSError):
            pass
        self.process.wait(timeout=common.PATIENCE)
        os.close(self.to)
        os.close(self.source)
        self.folder.cleanup()

    def receive(self):
        while b"\0" not in self.rest:
            data = os.read(self.source, 1 << 16)
            if not data:
                raise EOFError("the browser has gone")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def on_event(self, message):
        params = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif message["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        elif message["method"] == "Page.javascriptDialogOpening":
            self.complaints.append("a dialog: " + params["message"])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError((method, answer["error"]))
                return answer["result"]
            if "method" in answer:
                self.on_event(answer)

    def js(self, expression):
        """The value of an expression, or of what it promises."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError((expression, result["exceptionDetails"]))
        return result["result"].get("value")

    def until(self, expression):
        """Waits in the page."""
        self.js("new Promise((done) => { const look = () => { if (" + expression +
                ") done(true); else setTimeout(look, 20); }; look(); })")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def before_pages(self, script):
        """Runs in each further page before its own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def click(self, selector):
        """As a mouse does: what is covered or hidden is not clicked."""
        spot = self.js(f"""(() => {{
            const node = document.querySelector({json.dumps(selector)});
            if (!node) return "not there";
            node.scrollIntoView({{block: "nearest"}});
            const box = node.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            const top = document.elementFromPoint(x, y);
            return top && (node === top || node.contains(top)) ? [x, y]
                : "covered by " + (top && top.outerHTML.slice(0, 80));
        }})()""")
        assert isinstance(spot, list), (selector, spot)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code, text=None):
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                      **(more if kind == "keyDown" else {}))

    def enter(self):
        self.key("Enter", 13, "\r")

    def look(self, width, height, dark=False):
        """The size of the window, and which colours the user likes."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
