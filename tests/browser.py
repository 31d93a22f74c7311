"""A page in headless Chromium that a test drives by scripts."""

import base64
import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any, Self

AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"

_VIOLATIONS = """
  Promise.allSettled(document.getAnimations().map((each) => each instanceof CSSTransition && each.finished))
    .then(() => axe.run(document, {resultTypes: ["violations"], preload: false, RULES}))
    .then(({violations}) => violations.filter((each) => each.impact !== "minor").map(({id, impact, nodes}) =>
      `${impact} ${id}: ${nodes.slice(0, 3).map((each) => each.html.slice(0, 200))}`))
"""


class Page:
    """A page in headless Chromium that a test drives by scripts, and takes pictures of.

    It speaks the DevTools protocol over two pipes, messages ended by NUL; nothing listens on a port.
    """

    def __init__(self, profile: Path, width: int = 1280, height: int = 900) -> None:
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        words = [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
        ]
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        shell = f'exec 3<&{commands} 4>&{answers}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", *words],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.problems: list[str] = []
        """Exceptions and refused resources that the page met."""
        try:
            target = self._do("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self._do(f"{domain}.enable")
            self.resize(width, height)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page a window as narrow as a phone's or as wide as a screen's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self._do("Emulation.setDeviceMetricsOverride", **size, mobile=False)

    def set_scheme(self, scheme: str) -> None:
        """Let the reader prefer `light` or `dark`."""
        self._do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Load `url`, and return when its scripts have run."""
        self._do("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        answer = self._do("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 20.0) -> None:
        """Return when the expression `condition` is true in the page."""
        found = self.run(
            f"""new Promise((done) => {{
              const until = performance.now() + {1_000 * seconds};
              const look = () => {{
                let met = false;
                try {{ met = Boolean({condition}); }} catch {{}}
                if (met || performance.now() > until) done(met); else setTimeout(look, 20);
              }};
              look();
            }})"""
        )
        assert found is True, f"never true: {condition}\n{self.run('document.body.innerText')}"

    def violations(self, *rules: str) -> list[str]:
        """Return what axe finds inaccessible, by default by all rules; minor findings are left out."""
        self.run(f"{AXE.read_text('utf-8')}; null")
        return self.run(_VIOLATIONS.replace("RULES", f"runOnly: {[*rules]}" if rules else ""))

    def press(self, key: str) -> None:
        """Press and release `Tab` or `Enter`."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            self._do("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text)

    def picture(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self._do("Page.captureScreenshot", format="png")["data"]))

    def _do(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.problems.append(event["params"]["entry"]["text"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], 60)
            assert ready, "Chromium does not answer"
            part = os.read(self._in, 1 << 20)
            assert part, "Chromium has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)
