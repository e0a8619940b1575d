#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Asks questions in the playground as a person does, in headless Chromium.

With arguments, unittest's: playground_test.py Playground.test_typing
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import page_test  # noqa: E402
from page_test import MISSING  # noqa: E402

if not MISSING:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

EXPLORE = "programs/explore"
OWN = "tests/programs/with_flags"


def start(program, *flags):
    process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def end(process):
    process.terminate()
    process.communicate(timeout=20)


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}; setup.sh --browser installs it")
class Playground(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process, cls.url = start(EXPLORE)
        cls.addClassCleanup(end, cls.process)
        folder = os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp()
        cls.browser = page_test.browser(folder)
        cls.addClassCleanup(cls.browser.quit)

    def open(self, query=(), view=""):
        self.browser.get("about:blank")
        query = urllib.parse.urlencode(list(query))
        self.browser.get(f"{self.url}{'?' * bool(query)}{query}{'#view=' * bool(view)}{view}")

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def one(self, css):
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def text(self, css):
        return self.script("return document.querySelector(arguments[0])?.textContent ?? ''", css)

    def wait(self, css, part, seconds=20):
        """Until the element's text has the part."""
        stop = time.monotonic() + seconds
        while part not in self.text(css):
            self.assertLess(time.monotonic(), stop, f"{css} has {self.text(css)!r}, not {part!r}")
            time.sleep(0.02)

    def write(self, name, text):
        field = self.one(f"#field-{name}")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    def query(self):
        return urllib.parse.parse_qs(self.script("return location.search.slice(1)"))

    def tab(self, title):
        self.browser.find_element(By.LINK_TEXT, title).click()

    def test_opens_on_a_model_with_a_weight_drawn(self):
        self.open()
        self.wait("#title", "gpt on dp=2,tp=4")
        self.wait("main figure figcaption", "f32[")
        self.wait("main table", "all-reduce over dp")
        self.wait("main", "predicted for CPU ranks")
        # The command stands in the form, and nowhere else.
        self.assertIn("--mesh dp=2,tp=4", self.text("#command"))
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, ".command")), 1)

    def test_says_that_it_computes(self):
        self.open([("tab", "model"), ("model", "gpt"), ("layers", "100000"), ("mesh", "dp=2")])
        self.wait("main", "The answer is being computed")
        self.browser.find_element(By.XPATH, "//button[.='Cancel']")
        self.wait(".progress", " s ")
        self.browser.find_element(By.XPATH, "//button[.='Cancel']").click()
        self.wait("main", "There is no answer yet.")
        self.write("layers", "none")
        self.wait("#error", "none")
        self.assertEqual(self.text("main"), "There is no answer yet.")

    def test_typing(self):
        self.open([("tab", "op")])
        self.wait("#title", "matmul on dp=2,tp=4")
        self.write("mesh", "dp=4,tp=2")
        self.wait("#title", "matmul on dp=4,tp=2")
        self.assertEqual(self.query()["mesh"], ["dp=4,tp=2"])
        self.assertIn("--mesh dp=4,tp=2 ", self.text("#command"))
        self.assertTrue(self.text("#command").startswith("bazel run -c opt //:explain -- --op matmul"))

    def test_each_state_has_a_link(self):
        self.open([("tab", "move"), ("mesh", "2x2"), ("shape", "8,8"), ("from", "P,S1"), ("to", "S0,R")],
                  view="totals")
        self.wait("#title", "to S0,R")
        self.write("to", "S1,R")
        self.wait("#title", "to S1,R")
        address = self.browser.current_url
        self.assertIn("view=totals", address)
        self.browser.get("about:blank")
        self.browser.get(address)
        self.wait("#title", "to S1,R")
        self.assertEqual(self.one("#field-to").get_attribute("value"), "S1,R")
        self.assertEqual(self.text("#command"), "bazel run -c opt //:plan -- --shape 8,8 --mesh 2x2 "
                         "--from P,S1 --to S1,R")

    def test_the_command_says_the_same(self):
        self.open([("tab", "op"), ("op", "mk,kn->mn"), ("mesh", "2"), ("in", "4x8:R"), ("in", "8x4:S0")])
        self.wait("#title", "mk,kn->mn on")
        command = self.text("#command").replace("bazel run -c opt //:explain --", f"{EXPLORE} explain")
        done = subprocess.run(command + " --record -", shell=True, capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(done.stdout)["title"], self.text("#title"))

    def test_an_error_stands_at_its_field(self):
        self.open([("tab", "op"), ("op", "matmul"), ("mesh", "2"), ("in", "4x8:R"), ("in", "8x4:S0")])
        self.wait("#title", "matmul on")
        self.write("op", "<img src=x onerror=document.title=1>")
        self.wait("#error", "there is no operator '<img src=x onerror=document.title=1>'")
        self.assertTrue(self.one("#error").is_displayed())
        self.assertEqual(self.one("#field-op").get_attribute("aria-invalid"), "true")
        self.assertEqual(self.script("return document.querySelectorAll('img').length"), 0)
        self.assertIn("matmul on", self.text("#title"))  # the last answer
        self.write("op", "matmul")
        stop = time.monotonic() + 20
        while self.one("#error").is_displayed():
            self.assertLess(time.monotonic(), stop)
        self.assertIsNone(self.one("#field-op").get_attribute("aria-invalid"))

    def test_a_newer_question_replaces_the_older(self):
        self.open([("tab", "model"), ("model", "gpt"), ("layers", "100000"), ("mesh", "dp=2")])
        self.wait(".progress", " s ")
        self.write("layers", "2")
        self.wait("#title", "gpt on dp=2", 5)
        self.assertEqual(self.text("#error"), "")

    def test_a_question_can_be_cancelled(self):
        self.open([("tab", "model"), ("model", "gpt"), ("layers", "100000"), ("mesh", "dp=2")])
        self.wait(".progress", " s ")
        self.browser.find_element(By.XPATH, "//button[.='Cancel']").click()
        self.wait("#error", "cancelled")
        self.assertFalse(self.browser.find_element(By.XPATH, "//button[.='Cancel']").is_displayed())

    def test_an_axis_is_doubled_by_the_keyboard(self):
        self.open([("tab", "model"), ("model", "gpt"), ("layers", "1"), ("mesh", "dp=2,tp=2")])
        self.wait("#title", "gpt on dp=2,tp=2")
        self.one("#Double-1").send_keys(Keys.ENTER)
        self.wait("#title", "gpt on dp=2,tp=4")
        self.assertEqual(self.one("#field-mesh").get_attribute("value"), "dp=2,tp=4")
        self.assertEqual(self.script("return document.activeElement.id"), "Double-1")
        self.one("#Halve-1").send_keys(Keys.SPACE)
        self.wait("#title", "gpt on dp=2,tp=2")

    def test_tabs_and_the_way_back(self):
        self.open()
        self.wait("#title", "gpt on dp=2,tp=4")
        self.tab("An operator")
        self.wait("#title", "matmul")
        self.browser.back()
        self.wait("#title", "gpt on dp=2,tp=4")
        self.assertEqual(self.text("nav [aria-current]"), "A model")

    def test_a_published_size_on_gpus(self):
        self.open()
        self.tab("A published size")
        self.wait("#verdict", "yes, the cheapest", 60)
        rows = self.browser.find_elements(By.CSS_SELECTOR, "#verdict tbody tr")
        self.assertEqual(len(rows), 4)
        self.write("_memory", "10")
        self.wait("#verdict", "On GPUs with 10 GiB, at the prices of h100", 60)
        self.assertNotIn("yes", self.text("#verdict"))
        self.assertNotIn("memory", self.text("#command"))
        self.one("#preset").send_keys("Llama 3 8B")
        self.wait("#verdict", "yes", 60)
        self.assertIn("--layers 32 ", self.text("#command"))

    def test_a_flag_that_repeats(self):
        self.open([("tab", "op"), ("op", "add"), ("mesh", "2"), ("in", "4x8:R")])
        self.one("#add-in").click()
        self.assertEqual(self.script("return document.activeElement.id"), "field-in-1")
        self.one("#field-in-1").send_keys("4x8:S0")
        self.wait("#title", "add on")
        self.assertEqual(self.query()["in"], ["4x8:R", "4x8:S0"])

    def test_every_control_has_a_name(self):
        for tab in ("op", "move", "model", "size"):
            self.open([("tab", tab)])
            self.script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            for control in self.browser.find_elements(By.CSS_SELECTOR, "#question input, #question select, #question button"):
                if control.is_displayed():
                    self.assertTrue(control.accessible_name.strip(), control.get_attribute("outerHTML"))

    def test_fits_a_phone(self):
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False})
        for tab in ("op", "size"):
            self.open([("tab", tab)])
            self.wait("#title", " on ", 60)
            wide = self.script("return document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(wide, 0, tab)

    def test_no_request_leaves_the_server(self):
        self.browser.get_log("performance")
        self.open()
        self.wait("#title", "gpt on")
        events = [json.loads(e["message"])["message"] for e in self.browser.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        self.assertTrue(any("/api/explain?" in url for url in urls), urls)
        for url in urls:
            self.assertTrue(url.startswith(self.url) or url.startswith("about:") or
                            url.startswith("data:"), url)

    def test_a_program_of_ones_own(self):
        process, url = start(OWN, "--explore")
        self.addCleanup(end, process)
        self.browser.get(url)
        self.wait("#title", "with_flags on tp=2")
        self.write("rows", "32")
        self.write("mesh", "tp=4")
        self.wait("#title", "with_flags on tp=4")
        self.assertEqual(self.text("#command"), "with_flags --dry-run --mesh tp=4 --rows 32")


if __name__ == "__main__":
    sys.exit(page_test.main())
