"""Debian's Chromium with no network at all, driven by selenium; what a page asked for is known.

The browser starts in a network namespace of its own, in which not even loopback is up, and its driver speaks to it
through a pipe. It promises that its processes end with the test run, however that ends: without its driver it goes by
itself, and the driver goes with its starter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

ALONE = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]


def missing() -> str | None:
    """What this machine lacks to run one, by name; None if nothing."""
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver"), ("setpriv", "util-linux")):
        if shutil.which(program) is None:
            return f"{program} (package {package})"
    tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    return f"network namespaces ({tried.stderr.strip()})" if tried.returncode else None


class Browser:
    """One browser. Its `folder` holds all that it writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        options = webdriver.ChromeOptions()
        options.binary_location = str(self._program("chromium", [*ALONE, "chromium"]))
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        for argument in (
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",  # it refuses root without, and reads nothing but the file that a test has made
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            f"--user-data-dir={folder / 'profile'}",
            "--lang=en",
        ):
            options.add_argument(argument)
        driver = self._program("driver", ["setpriv", "--pdeathsig", "KILL", "chromedriver"])
        here = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "TZ": "UTC", "LANG": "C.UTF-8"}
        self.driver = webdriver.Chrome(options, Service(str(driver), env=here, log_output=str(folder / "driver.log")))

    def _program(self, name: str, words: list[str]) -> Path:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        path.chmod(0o700)
        return path

    def close(self) -> None:
        self.driver.quit()

    def open(self, page: Path, width: int = 1280, dark: bool = False) -> None:
        """Load the page anew, in a window of that width."""
        self.prefer(dark)
        shape = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        for log in ("performance", "browser"):
            self.driver.get_log(log)
        self.driver.get(page.as_uri())

    def prefer(self, dark: bool) -> None:
        """What the system's colours are, as the page sees it."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def asked_for(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the browser wrote to its console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def run(self, script: str, *given: object) -> Any:
        return self.driver.execute_script(script, *given)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def titles(self) -> list[str]:
        """The titles in the table, in its order."""
        return [
            str(text) for text in self.run("return [...document.querySelectorAll('.title')].map(e => e.textContent)")
        ]
