#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Uses the page of program/page as a person does, in headless Chromium.

With arguments, unittest's: page_test.py Page.test_folding
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from xml.sax.saxutils import quoteattr

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import records  # noqa: E402

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    MISSING = [p for p in ("chromium", "chromedriver") if not shutil.which(p, path="/usr/bin")]
except ImportError:
    MISSING = ["python3-selenium"]

VIEWS = ("overview", "program", "tensors", "mesh", "memory", "totals", "pictures", "compare",
         "operator&op=1", "tensor&param=0&rank=1", "tensor&move=0", "rank&rank=1")


def browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage",
                     "window-size=1200,900", f"user-data-dir={folder}/profile"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}; setup.sh --browser installs it")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.environ.get("TEST_TMPDIR") or tempfile.mkdtemp()
        cls.browser = browser(cls.folder)
        cls.addClassCleanup(cls.browser.quit)
        cls.gpt = records.gpt()
        cls.small = cls.write("small", cls.gpt)

    @classmethod
    def write(cls, name, *list_):
        """The address of a page with these records."""
        files = []
        for i, record in enumerate(list_):
            files.append(f"{cls.folder}/{name}{i}.json")
            with open(files[-1], "w", encoding="utf-8") as f:
                json.dump(record, f)
        subprocess.run([f"{HERE}/write_page", f"{cls.folder}/{name}.html", *files], check=True)
        return f"file://{cls.folder}/{name}.html"

    def open(self, page, view=""):
        self.browser.get("about:blank")
        self.browser.get(f"{page}#{'view=' * bool(view)}{view}")

    def all(self, css):
        return self.browser.find_elements(By.CSS_SELECTOR, css)

    def one(self, css, text=""):
        """The first element that a selector finds whose text contains `text`."""
        for element in self.all(css):
            if not text or text in element.text:
                return element
        return self.fail(f"no {css} with {text!r} in: {self.script('return document.body.innerText')}")

    def text(self):
        return self.one("main").text

    def address(self):
        return self.browser.execute_script("return location.hash")

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def click_shape(self, css):
        """SVG shapes that others cover have no point for the driver to click."""
        self.script("document.querySelector(arguments[0]).dispatchEvent("
                    "new MouseEvent('click', {bubbles: true}))", css)
        time.sleep(0.1)

    def type_number(self, id_, number):
        field = self.one(f"#{id_}")
        field.clear()
        self.one(f"#{id_}").send_keys(f"{number}\n")
        time.sleep(0.1)

    def slide(self, *keys):
        self.one("#slider").send_keys(*keys)
        self.browser.execute_async_script(  # what follows is drawn in the next frame
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def test_a_link_and_the_way_back(self):
        self.open(self.small)
        self.assertIn("576 KiB", self.text())
        self.one("main a", "#1 matmul").click()
        self.assertIn("view=operator", self.address())
        self.assertIn("op=1", self.address())
        self.assertIn("mk,kn->mn", self.text())
        self.browser.back()
        self.assertIn("Which operators send the most", self.text())

    def test_the_command_can_be_copied(self):
        self.open(self.small)
        self.one("button", "Copy the command").click()
        time.sleep(0.2)
        self.assertRegex(self.one(".command [role=status]").text, "Copied|Selected")

    def test_folding(self):
        self.open(self.small, "program")
        layers = self.one("button.fold", "blocks.0–1")
        self.assertIn("2 equal layers", layers.text)
        self.assertEqual(layers.get_attribute("aria-expanded"), "false")
        self.assertNotIn("attention", self.text())
        layers.click()
        self.assertEqual(layers.get_attribute("aria-expanded"), "true")
        self.one("button.fold", "attn").click()
        self.assertIn("#2 attention", self.text())
        self.one("button", "Show all 2 layers").click()
        self.one("button.fold", "blocks.1").click()
        self.all("button.fold[title='blocks.1.attn']")[0].click()
        self.assertIn("#7 attention", self.text())

    def test_search_and_filter(self):
        self.open(self.small, "program")
        self.one("#search").send_keys("attention")
        self.assertIn("4 of 21 operators", self.text())
        self.one("#sends").click()
        self.assertIn("0 of 21 operators", self.text())
        self.one("#search").clear()
        self.one("#search").send_keys("backward all-reduce")
        self.assertIn("4 of 21 operators", self.text())
        self.browser.refresh()
        self.assertIn("4 of 21 operators", self.text())

    def test_an_operator_has_prices_and_reasons(self):
        self.open(self.small, "operator&op=1")
        self.assertIn("The matmul costs 12.25 us, the next one 15.5 us.", self.text())
        self.assertIn("7.5 us 3.25 us 1.5 us 12.3 us", self.one("tr.chosen").text)
        rows = self.one("table", "Candidates").text
        self.assertIn("3.25 us 1.5 us 44.8 us it would send a parameter", rows)
        self.assertIn("6.5 us 1.5 us 15.5 us it costs 3.25 us more", rows)
        self.assertIn("12 more candidates", self.text())
        self.one("main a", "next").click()
        self.assertIn("#2 attention", self.one("h1").text)

    def test_signs_are_explained(self):
        self.open(self.small, "operator&op=1")
        for text in ("one placement for each axis of the mesh (dp, tp)", "S0: dimension 0 is split",
                     "R: each rank along it holds a copy", "P: each rank along it holds a term",
                     "a⇒b: an input moves", "linear 0: input 0 may be a sum"):
            self.assertIn(text, self.text())
        for sign in "P(max)", "n~", "n!", "[{tp},{}]":  # they do not occur
            self.assertNotIn(f"{sign}: ", self.text())
        record = json.loads(json.dumps(self.gpt))
        record["calls"][record["runs"][0]["operators"][1]["call"]]["rule"] = "YZn~,k!->YZn"
        self.open(self.write("rule", record), "operator&op=1")
        for text in "Z: capitals are leading dimensions", "n~: if n is split, the operator combines", "n!: n is never split":
            self.assertIn(text, self.text())
        self.assertNotIn("linear 0: ", self.text())
        self.open(self.small, "program")
        self.assertIn("a⇒b: an input moves", self.text())

    def test_times_say_whose_they_are(self):
        self.open(self.small)
        self.assertNotIn("--cost", self.text())
        self.open(self.write("cpu", self.gpt | {"machine": "CPU ranks"}))
        self.assertIn("predicted for CPU ranks", self.one(".tile", "Communication").text)
        self.assertIn("Those of GPUs are taken with --cost h100", self.text())
        self.open(self.write("h100", self.gpt | {"machine": "h100"}))
        self.assertIn("predicted for h100", self.one(".tile", "work").text)
        self.assertNotIn("--cost", self.text())

    def test_where_a_sum_was_made(self):
        self.open(self.small)
        self.assertIn("sum of #3 matmul blocks.0.attn", self.one("tr", "#4 add").text)
        self.one("main a", "#3 matmul").click()
        self.assertIn("Its output is a sum that is taken later, by #4 add blocks.0, forward.", self.text())
        self.one("main a", "#4 add").click()
        self.assertIn("The sum that it takes was made by #3 matmul blocks.0.attn, forward.", self.text())
        # Through an operator that hands a sum on.
        record = json.loads(json.dumps(self.gpt))
        operators, calls = record["runs"][0]["operators"], record["calls"]
        partial = calls[operators[3]["call"]]["out"][0]
        calls.append({"op": "scale", "in": [partial], "to": [partial], "out": [partial], "moves": [None]})
        operators[2] |= {"call": operators[3]["call"]}
        operators[3] |= {"call": len(calls) - 1, "sums": [[0, 2]]}
        self.open(self.write("handed", record), "operator&op=4")
        self.assertIn("The sum that it takes was made by #2 matmul", self.text())
        self.open(self.small, "program&q=matmul")
        self.assertIn("its sum is taken by #4 add blocks.0", self.text())

    def test_a_weight_is_drawn(self):
        self.open(self.small)
        self.assertIn("Which rank holds what of blocks.0.attn.wq", self.text())
        self.assertEqual(len(self.all("figure .box")), 4)

    def test_all_ranks_together(self):
        self.open(self.small, "operator&op=1")
        self.assertIn("7 KiB", self.one("table", "Plan: ").text)
        self.assertIn("576 KiB", self.one("table", "Sent").text)
        self.open(self.small)
        self.assertIn("by all ranks together", self.text())

    def test_a_move_that_no_operator_made(self):
        record = json.loads(json.dumps(self.gpt))
        operators = record["runs"][0]["operators"]
        operators.append(operators[-1] | {"move": "grad", "moves": [0, 1], "sends": [0]})
        del operators[-1]["call"]
        self.open(self.write("moved", record), f"operator&op={len(operators) - 1}")
        self.assertIn("grad", self.one("h1").text)
        self.assertIn("S0,S1 ⇒ S0,R · S0,P ⇒ S0,S1", self.text())
        self.assertEqual(len(self.all("main h3")), 2)
        self.one("main a", "Draw it before and after").click()
        self.assertIn("view=tensor&move=0", self.address())
        self.assertEqual(len(self.all("figure")), 2)

    def test_the_optimizer(self):
        record = json.loads(json.dumps(self.gpt))
        operators = record["runs"][0]["operators"]
        operators.append({"kernel": "adamw", "tensors": 5, "touches": [0, 4096, 2048, 8192, 0],
                          "path": 0, "phase": operators[-1]["phase"], "memory": operators[-1]["memory"]})
        self.open(self.write("kernel", record), f"operator&op={len(operators) - 1}")
        self.assertIn("adamw", self.one("h1").text)
        self.assertIn("It touches 4 KiB of parameters, 2 KiB of gradients, 8 KiB of state.", self.text())
        self.open(self.write("kernel", record), "program&q=adamw")
        self.assertIn("adamw", self.one(".tree").text)

    def test_a_run_has_counted_bytes(self):
        ran = json.loads(json.dumps(self.gpt))
        for event in ran["events"]:
            event["counted"] = 3 * 1024
        sends = next(i for i, op in enumerate(ran["runs"][0]["operators"]) if len(op.get("sends", [])) == 1)
        self.open(self.write("ran", ran), f"operator&op={sends}")
        self.assertIn("Counted on this rank", self.text())
        self.assertIn("3 KiB", self.text())
        self.open(self.small, f"operator&op={sends}")
        self.assertNotIn("Counted", self.text())

    def test_which_rank_holds_a_row(self):
        self.open(self.small, "tensors")
        self.one("#search").send_keys("1.attn.wq")
        self.one("main a", "blocks.1.attn.wq").click()
        self.one("#dim").send_keys("dimension 1")
        time.sleep(0.1)
        self.type_number("row", 32)  # 66 columns in parts of 16, 17, 16 and 17
        self.assertIn("Index 32 of dimension 1 lies on 2 ranks: 1, 5.", self.text())
        self.type_number("row", 33)
        self.assertIn("Index 33 of dimension 1 lies on 2 ranks: 2, 6.", self.text())
        self.type_number("row", 66)
        self.assertIn("Dimension 1 has 66 indices: 0 to 65.", self.text())

    def test_a_click_on_a_box_names_its_rank(self):
        self.open(self.small, "tensor&move=0&op=1")
        # Zig-zag: of eight chunks of three, rank 1 has the second and the last but one.
        self.click_shape("figure .box[data-ranks='1']")
        self.assertIn("rank=1", self.address())
        self.assertIn("Before: rank 1 (dp 0, tp 1) holds dimension 0: 0–3; "
                      "dimension 1: 3–5, 18–20; dimension 2: 0–15. 384 elements, 1.5 KiB.",
                      self.text())
        self.assertIn("After: rank 1 (dp 0, tp 1) holds dimension 0: 0–3; dimension 1: 0–23",
                      self.text())
        self.assertEqual(self.one("tr", "rank 1").text.split()[2:], ["384"] * 3 + ["1,152"])
        self.one(".answer a", "rank 1").click()
        self.assertIn("After #1 matmul blocks.0.attn, forward, it holds", self.text())
        self.assertIn("blocks.0.attn.wq", self.text())

    def test_parts_are_to_scale(self):
        self.open(self.small, "tensor&param=0")
        widths = {b.get_attribute("data-ranks"): float(b.find_element(By.TAG_NAME, "rect")
                  .get_attribute("width")) for b in self.all("figure .box")}
        self.assertEqual(list(widths), ["0 4", "1 5", "2 6", "3 7"])
        self.assertAlmostEqual(widths["0 4"] / widths["1 5"], 16 / 17, 4)
        self.assertIn("2 copies", self.text())

    def test_the_slider_along_the_mesh(self):
        self.open(self.small, "mesh&op=3")
        before = self.text()
        self.assertEqual(len(self.all(".cell")), 8)
        self.slide(*[Keys.ARROW_RIGHT] * 3)
        self.assertIn("op=6", self.address())
        self.assertIn("#6 matmul", self.text())
        self.assertNotEqual(self.text(), before)
        self.click_shape(".cell[data-ranks='6']")
        self.assertIn("rank 6 (dp 1, tp 2)", self.text())
        self.one("#metric").send_keys("received up to here")
        self.assertIn("288 KiB, received up to here", self.text())

    def test_one_figure_of_memory(self):
        self.open(self.small)
        peak = self.gpt["runs"][0]["operators"][9]["memory"]
        self.assertIn(f"Memory is largest after #9 add blocks.1, forward: {sum(peak) / 1024:.1f} KiB", self.text())
        self.open(self.small, "mesh")
        cell = "return document.querySelector(`.cell[data-ranks='${arguments[0]}'] title`).textContent"
        self.assertEqual(self.script(cell, 0), f"rank 0: {sum(peak) / 1024:.1f} KiB")
        # Rank 1 has 17 of 66 columns of each parameter, and rank 0 has 16.
        parameters, outputs = 4 * 2 * 2 * 16, 0
        for op in self.gpt["runs"][0]["operators"][:10]:
            spec = self.gpt["specs"][self.gpt["calls"][op["call"]]["out"][0]]
            if spec["shape"][2] == 66:  # the outputs of products and attention
                outputs += op["makes"] / 16
        expected = sum(peak) + parameters + outputs + peak[2] * 17 / 16 - peak[2]
        self.assertEqual(self.script(cell, 1), f"rank 1: {expected / 1024:.1f} KiB")
        self.open(self.small, "rank&rank=1&op=9")
        self.assertIn(f"it holds {expected / 1024:.1f} KiB:", self.text())
        self.assertIn(f"{peak[2] * 17 / 16:.0f} B of gradients", self.text())

    def test_memory_starts_at_its_peak(self):
        self.open(self.small, "memory")
        self.assertIn("After #9 add", self.text())
        self.assertIn("10 operators made what is in use here: 30 KiB", self.text())
        self.assertIn("2 × 3 KiB: #0 layer_norm", self.text())
        self.slide(Keys.ARROW_RIGHT)  # the last use of what operator 9 made
        self.assertIn("9 operators made what is in use here: 27 KiB", self.text())
        self.slide(Keys.HOME)
        self.assertIn("1 operator made what is in use here: 3 KiB", self.text())
        self.slide(Keys.END)
        self.assertIn("0 operators made what is in use here: 0 B", self.text())

    def test_totals_by_module(self):
        self.open(self.small, "totals")
        self.one("main a", "blocks").click()
        self.assertIn("receive 576 KiB", self.text())
        self.one("main a", "blocks.1").click()
        self.assertIn("receive 288 KiB", self.text())
        self.one("main a", "the program").click()
        sums = self.script(
            "return [...document.querySelectorAll('[aria-label=\"Received by operator\"] "
            "td:nth-child(2) [data-bytes]')].map((e) => Number(e.dataset.bytes))")
        self.assertEqual(sum(sums), self.gpt["totals"]["bytes"])
        self.open(self.write("eleven", records.gpt(layers=11)), "totals&path=blocks.1")
        self.assertIn("receive 288 KiB", self.text())  # without those of blocks.10

    def test_a_pipeline_has_stages(self):
        self.open(self.write("pipeline", records.pipeline()), "mesh")
        self.assertIn("Hatched ranks belong to other stages", self.text())
        self.one("#run").send_keys("2 of 2")
        time.sleep(0.1)
        self.assertIn("run=1", self.address())
        self.assertIn("stage1", self.text())
        self.one("nav a", "Pictures").click()
        self.assertEqual(self.script("return document.querySelector('figure img').naturalWidth"),
                         200)

    def test_comparing(self):
        self.open(self.write("two", self.gpt, records.gpt(kind="exchange", title="exchanged")))
        self.one("nav a", "Compare").click()
        self.assertIn("2 of 21 operators differ", self.text())
        self.assertIn("all-gather over tp, 96 KiB", self.text())
        self.assertIn("exchange over tp, 96 KiB", self.text())
        self.one("#record").send_keys("2: ")
        time.sleep(0.1)
        self.assertEqual(self.one("#title").text, "exchanged")

    def test_strategies_that_were_refused(self):
        refused = {"strategy": "tp=3", "reason": "4 heads <b>do not</b> divide by 3"}
        page = self.write("refused", self.gpt | {"refused": [refused]}, records.gpt(title="other"))
        for view in "overview", "compare", "overview&r=1":
            self.open(page, view)
            self.assertIn("tp=3: 4 heads <b>do not</b> divide by 3", self.text(), view)
        self.open(self.small)
        self.assertNotIn("cannot run", self.text())

    def test_other_records_in_place(self):
        self.open(self.small, "program")
        self.script("dtensor_page.show([arguments[0]])", records.gpt(layers=3, title="three"))
        self.assertEqual(self.one("#title").text, "three")
        self.assertIn("blocks.0–2", self.text())

    def test_records_that_it_cannot_show(self):
        self.open(self.write("later", self.gpt | {"version": 2}))
        self.assertIn("its version is 2, and the page reads version 1", self.one("[role=alert]").text)
        self.open(self.write("broken", self.gpt | {"specs": []}), "tensors")
        self.assertIn("cannot show its record", self.one("[role=alert]").text)
        self.open(self.write("none"))
        self.assertIn("There is no record in this page.", self.text())

    def test_what_a_record_leaves_out(self):
        record = records.gpt()
        for dim in record["dims"]:
            if "parts" in dim:
                dim["parts"] = None
        record["runs"][0]["dropped"] = 7
        page = self.write("short", record)
        self.open(page, "tensor&move=0")
        self.assertIn("so many pieces that the record does not list them", self.text())
        self.assertIn("The record leaves out the last 7 operators", self.one("header").text)
        for view in "rank&op=9", "mesh&op=9", "operator&op=1":
            self.open(page, view)
            self.assertEqual(self.all("[role=alert]"), [], view)
            self.assertTrue(self.all("main h1"), view)

    def test_names_are_text(self):
        page = self.write("hostile", records.hostile())
        for view in VIEWS:
            self.open(page, view)
            self.assertNotIn("owned", self.script("return document.title")[:5], view)
            self.assertEqual(self.all("main img[src=x]"), [], view)
            self.assertIn("</script><img src=x onerror", self.one("body").text, view)

    def test_nothing_leaves_the_page(self):
        self.browser.get_log("performance")
        for view in VIEWS:
            self.open(self.small, view)
        self.script("fetch('http://127.0.0.1:9/').catch(() => {}); "
                    "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/'}))")
        time.sleep(0.3)
        messages = [json.loads(e["message"])["message"] for e in self.browser.get_log("performance")]
        sent = {m["params"]["requestId"]: m["params"]["request"]["url"] for m in messages
                if m["method"] == "Network.requestWillBeSent"}
        blocked = {m["params"]["requestId"] for m in messages
                   if m["params"].get("blockedReason") == "csp"}
        left = {u for i, u in sent.items() if i not in blocked and not u.startswith("data:")}
        self.assertEqual(left - {"about:blank"}, {u for u in left if u.startswith(self.small)})
        self.assertTrue(left)

    def test_errors(self):
        self.browser.get_log("browser")
        for view in VIEWS + ("operator&op=99999", "tensor&spec=-1", "mesh&rows=9&cols=x&rank=1e9",
                             "nothing", "constructor", "rank&op=20&r=5&run=7"):
            self.open(self.small, view)
            self.assertTrue(self.all("main h1"), view)
        self.assertEqual([e["message"] for e in self.browser.get_log("browser")], [])
        self.open(self.small, "operator&op=99999")
        self.assertEqual(self.one("h1").text, "#0 layer_norm")

    def test_the_keyboard(self):
        self.open(self.small, "program")
        body = self.one("body")
        body.send_keys(Keys.TAB)
        self.assertEqual(self.script("return document.activeElement.textContent"),
                         "Skip to the content")
        for _ in range(40):
            webdriver.ActionChains(self.browser).send_keys(Keys.TAB).perform()
            if "blocks.0–1" in self.script("return document.activeElement.textContent"):
                break
        webdriver.ActionChains(self.browser).send_keys(Keys.ENTER).perform()
        self.assertEqual(self.one("button.fold", "blocks.0–1").get_attribute("aria-expanded"),
                         "true")
        self.open(self.small, "operator&op=3")
        webdriver.ActionChains(self.browser).send_keys(Keys.ESCAPE).perform()
        time.sleep(0.1)
        self.assertIn("view=program", self.address())

    def test_a_phone(self):
        size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
        page = self.write("phone", self.gpt, records.hostile())
        for record in range(2):
            for view in VIEWS:
                self.open(page, f"{view}&r={record}")
                self.assertLessEqual(
                    self.script("return document.documentElement.scrollWidth"), 360, view)

    def test_ten_thousand_operators(self):
        page = self.write("large", records.gpt(layers=1000))
        for view in "overview", "program", "memory", "mesh", "totals":
            self.open(page, view)
            milliseconds = self.script("return performance.now()")
            print(f"10,001 operators, {view}: on the screen after {milliseconds:.0f} ms")
            self.assertLess(milliseconds, 10000)
        self.open(page, "program")
        self.assertIn("1,000 equal layers", self.text())

    def test_many_ranks(self):
        page = self.write("ranks", records.gpt(mesh="dp=64,tp=64", seq=8192))
        self.open(page, "mesh&metric=sum")
        self.assertEqual([cell.get_attribute("data-ranks") for cell in self.all(".cell")], ["0–4095"])
        self.assertIn("Neighbours that are equal are one cell.", self.text())
        self.click_shape(".cell")
        self.assertIn("rank 0 (dp 0, tp 0): 384 KiB, received up to here", self.text())
        # 8 rows over dp=64: each eighth rank has one; 66 columns over tp=64: two ranks have two.
        self.open(page, "mesh")
        rows = len(list(itertools.groupby((i + 1) * 8 // 64 - i * 8 // 64 for i in range(64))))
        columns = len(list(itertools.groupby((i + 1) * 66 // 64 - i * 66 // 64 for i in range(64))))
        self.assertEqual(len(self.all(".cell")), rows * columns)
        # Every other rank has a part of the parameters, so that no neighbours are equal.
        self.open(self.write("striped", records.gpt(mesh="dp=1,tp=132", seq=264)), "mesh&fixed=0,40")
        self.assertEqual(len(self.all(".cell")), 64)
        self.assertEqual(self.all(".cell")[0].get_attribute("data-ranks"), "40")
        self.assertIn("Coordinates 40 to 103 of tp, of 132, are drawn,", self.text())
        self.one("#fixed1").send_keys(Keys.CONTROL, "a")
        self.one("#fixed1").send_keys("131\n")
        time.sleep(0.1)
        self.assertIn("Coordinates 68 to 131 of tp, of 132, are drawn,", self.text())
        self.open(page, "tensor&move=0&dim=1&row=100")
        self.assertIn("Index 100 of dimension 1 lies on", self.text())
        self.assertIn("56 parts of dimension 0 are empty", self.text())


class Result(unittest.TextTestResult):
    """Also remembers each case, for the file that Bazel reads."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self.cases.append([test.id(), ""])

    def note(self, test, text):
        if not self.cases or self.cases[-1][0] != test.id():
            self.cases.append([test.id(), ""])
        self.cases[-1][1] = text

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, f"<skipped message={quoteattr(reason)}/>")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "<failure/>")

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "<error/>")

    def write(self, path):
        with open(path, "w", encoding="utf-8") as f:
            f.write("<testsuites><testsuite name='page_test'>")
            for name, outcome in self.cases:
                f.write(f"<testcase name={quoteattr(name)}>{outcome}</testcase>")
            f.write("</testsuite></testsuites>\n")


def main():
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=2)
    result = unittest.main(testRunner=runner, exit=False).result
    if "XML_OUTPUT_FILE" in os.environ:
        result.write(os.environ["XML_OUTPUT_FILE"])
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
