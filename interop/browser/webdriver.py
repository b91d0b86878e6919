"""A browser, driven over the WebDriver protocol of its chromedriver."""

import base64
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request

# Seconds that a command of the browser may take.
PATIENCE = 60
# Nothing that a browser does of its own accord.
QUIET = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # Only this machine; where `localhost` has two addresses, QUIC tries the first one only.
    "--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class Failed(Exception):
    """What was expected of the browser did not happen."""


class Browser:
    """A headless Chromium with a profile of its own, ended by `close`."""

    def __init__(self, scratch, arguments):
        driver = subprocess.Popen(
            [shutil.which("chromedriver"), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # What it starts must not write anywhere else.
            env=dict(os.environ, HOME=scratch),
        )
        self.driver = driver
        self.session = None
        try:
            line = next(line for line in driver.stdout if "started successfully on port" in line)
            port = line.split("port")[-1].strip(" .\n")
            self.base = f"http://127.0.0.1:{port}"
            options = {
                "binary": shutil.which("chromium"),
                "args": QUIET + [f"--user-data-dir={scratch}/profile"] + arguments,
            }
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            self.session = self.post("/session", wanted)["sessionId"]
        except BaseException:
            self.close()
            raise

    def close(self):
        """Ends the browser; its net log is complete then."""
        try:
            if self.session:
                self.call("DELETE", f"/session/{self.session}")
        finally:
            self.session = None
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            told = json.load(error)["value"]
            raise Failed(f"{told['error']}: {told['message'].splitlines()[0]}") from None

    def post(self, path, body):
        return self.call("POST", path, body)

    def command(self, name, **body):
        """A command of WebDriver for this session."""
        return self.post(f"/session/{self.session}/{name}", body)

    def tell(self, method, **parameters):
        """A command of the DevTools protocol."""
        return self.command("goog/cdp/execute", cmd=method, params=parameters)

    def open(self, url):
        self.command("url", url=url)

    def evaluate(self, script):
        return self.command("execute/sync", script=f"return {script}", args=[])

    def click(self, text):
        """Follows the link with this text."""
        found = self.command("element", using="xpath", value=f"//a[contains(., '{text}')]")
        (element,) = found.values()
        self.command(f"element/{element}/click")

    def protocol(self):
        """With which protocol the page came."""
        entry = "performance.getEntriesByType('navigation')[0]"
        return self.evaluate(f"{entry}.nextHopProtocol")

    def screenshot(self, path, width, height, dark=False):
        """The page in a window of this size; one below 600 pixels is that of a phone."""
        is_phone = width < 600
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])
        image = self.tell("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(image))
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        if self.evaluate(overflow) > 0:
            raise Failed(f"{path}: the page is wider than a window of {width} pixels")
