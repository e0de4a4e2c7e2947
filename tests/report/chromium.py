"""Drives headless Chromium over the DevTools protocol, by pipes: no package but Chromium itself is needed."""
import json
import os
import shutil
import subprocess
import tempfile
import time


def find_chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Chromium:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="tandem-chromium-")
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()

        def wire():
            os.dup2(to_child, 198)
            os.dup2(from_child, 199)
            os.dup2(198, 3)
            os.dup2(199, 4)
        self.process = subprocess.Popen(
            [find_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--user-data-dir=" + self.profile, "--no-first-run", "--hide-scrollbars", "about:blank"],
            close_fds=False, preexec_fn=wire, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        os.set_blocking(self.read_end, False)
        self.buffer = b""
        self.number = 0
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _messages(self, seconds):
        """Whole messages that arrive within the time; stops after the first lot."""
        end = time.time() + seconds
        while b"\0" not in self.buffer:
            try:
                self.buffer += os.read(self.read_end, 1 << 20)
            except BlockingIOError:
                if time.time() > end:
                    return
                time.sleep(0.01)
        *whole, self.buffer = self.buffer.split(b"\0")
        for message in whole:
            yield json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        end = time.time() + 60
        while time.time() < end:
            answer = None
            for message in self._messages(1):
                if message.get("id") == self.number:
                    answer = message
                elif "method" in message:
                    self.events.append(message)
            if answer is not None:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
        raise TimeoutError(method)

    def wait(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            for message in self._messages(0.1):
                if "method" in message:
                    self.events.append(message)

    def open(self, url, seconds=1.0):
        self.events.clear()
        self.call("Page.navigate", url=url)
        end = time.time() + 60
        while time.time() < end and not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.wait(0.1)
        self.wait(seconds)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def look(self, width, height, dark=False, media="", phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, mobile=phone,
                  deviceScaleFactor=2 if phone else 1)
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path, whole=True):
        import base64
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000), "scale": 1},
                    "captureBeyondViewport": True}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))

    def complaints(self):
        """What the console and the policy had to say."""
        said = []
        for event in self.events:
            what = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                said.append("exception: " + json.dumps(what["exceptionDetails"])[:500])
            elif event["method"] == "Log.entryAdded":
                said.append(f"{what['entry']['level']}: {what['entry']['text']}")
            elif event["method"] == "Runtime.consoleAPICalled":
                said.append(f"console: {json.dumps(what['args'])[:500]}")
        return said

    def requests(self):
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
