#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the server's page as a person does, in headless Chromium.

serving_test.py [--pictures FOLDER]    also saves the picture of docs/serving.md
"""

import json
import os
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../programs")]
import page_test  # noqa: E402
import serve_test  # noqa: E402
from page_test import MISSING  # noqa: E402

if not MISSING:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

NAME = "<b>tiny</b> & co"
pictures = None  # a folder


def make_model():
    """A model whose answers take minutes if nobody ends them, of syllables and ASCII."""
    serve_test.make_model()
    folder = serve_test.make_long_model()
    path = os.path.join(folder, "tokenizer.json")
    with open(path) as f:
        file = json.load(f)
    bytes_ = serve_test.characters_of_bytes()
    syllables = [a + b for a in "bdfgklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "o\u0120",
                                                          "a\u0120", "en\u0120", "is\u0120")]
    texts = [bytes_[b] for b in (10, *range(32, 127))] + syllables
    file["model"]["vocab"] = {text: i for i, text in enumerate(["<unk>", "<s>", "</s>"] + texts[:247])}
    with open(path, "w") as f:
        json.dump(file, f)
    return folder


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}; setup.sh --browser installs it")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.name = "tiny" if pictures else NAME
        cls.server = serve_test.Serving(
            "--model", make_model(), "--name", cls.name, "--mesh", "tp=2", "--batch", "2",
            "--cache-tokens", "100000", prefix=("nice",))  # the browser comes first
        cls.addClassCleanup(cls.server.stop)
        cls.browser = page_test.browser(os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp())
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        self.browser.set_window_size(900, 1000)
        self.browser.get("about:blank")
        self.browser.get(self.server.url)
        self.wait(lambda: self.server.metrics()["running"] == 0, "the requests before end")

    def one(self, css):
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def text(self, css):
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent).join('|')", css)

    def wait(self, holds, what, seconds=40):
        stop = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), stop, f"{what}: {self.text('#now, #log, table')}")
            time.sleep(0.02)

    def ask(self, text):
        self.one("#text").send_keys(text, Keys.ENTER)
        self.wait(lambda: self.text(".assistant"), "an answer begins")

    def row(self):
        return self.text("#requests tbody td").split("|")

    def ended(self):
        self.wait(lambda: not self.one("#stop").is_enabled(), "the answer ends")
        self.wait(lambda: not self.text("#requests tbody"), "the table is empty")
        self.assertTrue(self.one("#no-requests").is_displayed())
        self.assertFalse(self.one("#requests").is_displayed())

    def test_a_chat_streams_until_stop(self):
        self.ask("Hello")
        first = self.text(".assistant")
        self.wait(lambda: len(self.text(".assistant")) > len(first), "the answer grows")
        self.assertEqual(self.text(".user"), "Hello")
        self.wait(lambda: "1 running, 0 waiting" in self.text("#now"), "the request is counted")
        self.wait(lambda: "running" in self.row(), "the request has a row")
        _, state, prompt, tokens, _, seconds, _ = self.row()
        self.assertEqual((state, prompt), ("running", "22"))
        self.assertRegex(tokens, r"^\d+ of 99978$")
        self.wait(lambda: float(self.row()[4] or 0) > 0, "the rate is known")
        self.wait(lambda: int(self.row()[3].split()[0]) > int(tokens.split()[0]), "tokens are counted")
        self.one("#stop").send_keys(Keys.ENTER)
        self.ended()
        answer = self.text(".assistant")
        self.assertGreater(len(answer), len(first))
        self.assertEqual(self.text(".error"), "")
        # The next question has the answer before it.
        self.one("#tokens").send_keys("3")
        self.one("#text").send_keys("Bye", Keys.ENTER)
        self.wait(lambda: "Bye" in self.text(".user"), "the question is shown")
        self.ended()
        self.assertEqual(self.text(".user"), "Hello|Bye")
        self.one("#clear").click()
        self.assertEqual(self.text("#log"), "")

    def test_texts_of_other_clients_run_and_wait(self):
        self.one("#tokens").send_keys("60")
        self.ask("How are tensors split?")
        self.ended()
        others = [self.server.open("POST", "/v1/completions", {
            "prompt": "a", "stream": True, "max_tokens": 20000}) for _ in range(3)]
        self.wait(lambda: self.text("#requests tbody tr td:nth-child(2)") == "running|running|waiting",
                  "two run and one waits")
        self.wait(lambda: "2 running, 1 waiting" in self.text("#now"), "they are counted")
        if pictures:
            time.sleep(2)
            self.browser.save_screenshot(f"{pictures}/serving.png")
        for connection, response in others:
            response.close()
            connection.close()
        self.ended()

    def test_a_text_is_cancelled_by_the_keyboard(self):
        self.ask("Hello")
        before = self.server.metrics()["cancelled_total"]
        self.wait(lambda: self.text("#requests button") == "Cancel", "the request has a button")
        button = self.one("#requests button")
        self.assertRegex(button.get_attribute("aria-label"), r"^Cancel text \d+$")
        self.browser.execute_script("arguments[0].focus()", button)
        time.sleep(2.2)  # refreshed, and still focused
        self.assertEqual(self.browser.switch_to.active_element, button)
        self.browser.switch_to.active_element.send_keys(Keys.ENTER)
        self.ended()
        self.assertEqual(self.text(".error"), "")
        self.assertEqual(self.server.metrics()["cancelled_total"], before + 1)

    def test_ranks(self):
        self.wait(lambda: self.text("#ranks tbody td").count("|") == 11, "two ranks have rows")
        for row in self.browser.find_elements(By.CSS_SELECTOR, "#ranks tbody tr"):
            _, memory, most, cache, received, heard = [c.text for c in row.find_elements(By.TAG_NAME, "td")]
            for size in memory, most, cache:
                self.assertRegex(size, r"^[1-9][\d.]* [MG]B$")
            self.assertRegex(received, r"^[\d.]+ [kMG]B$")
            self.assertRegex(heard, r"^[0-3]\.\d s ago$")

    def test_the_name_is_text(self):
        self.wait(lambda: self.text("h1") == self.name, "the name is shown")
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "h1 *"), [])
        self.assertEqual(self.browser.title, self.name)

    def test_a_phone_and_the_dark(self):
        self.browser.set_window_size(500, 900)
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
        self.ask("word" * 40)
        self.wait(lambda: "running" in self.row(), "the request has a row")
        self.assertEqual(self.browser.execute_script("return document.documentElement.scrollWidth"), 360)
        paper = "return getComputedStyle(document.body).backgroundColor"
        light = self.browser.execute_script(paper)
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"features": []})
        self.assertEqual((light, self.browser.execute_script(paper)),
                         ("rgb(255, 255, 255)", "rgb(21, 24, 28)"))
        self.one("#stop").send_keys(Keys.ENTER)
        self.ended()

    def test_it_asks_nobody_but_the_server(self):
        self.browser.get_log("performance")
        self.browser.get(self.server.url)
        self.wait(lambda: self.text("#ranks tbody"), "the page has asked")
        messages = [json.loads(e["message"])["message"] for e in self.browser.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages
                if m["method"] == "Network.requestWillBeSent"]
        self.assertIn(self.server.url, urls)
        self.assertEqual([u for u in urls if not u.startswith(self.server.url)], [])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pictures"]:
        pictures = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), sys.argv[2])
        del sys.argv[1:3]
    unittest.main(verbosity=2)
