#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Six questions of a newcomer, each answered within three clicks.

questions_test.py [--pictures FOLDER]    also saves the pictures of docs/seeing.md
"""

import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import page_test  # noqa: E402
import playground_test  # noqa: E402
from page_test import MISSING  # noqa: E402

if not MISSING:
    from selenium.webdriver.common.by import By

pictures = None  # a folder


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}; setup.sh --browser installs it")
class Questions(unittest.TestCase):
    """Each test begins at the playground's address and counts its clicks."""
    setUpClass = classmethod(playground_test.Playground.setUpClass.__func__)
    open = playground_test.Playground.open
    script = playground_test.Playground.script
    text = playground_test.Playground.text
    wait = playground_test.Playground.wait

    def setUp(self):
        self.browser.set_window_size(1100, 1000)
        self.open()
        self.wait("main", "gpt on")
        self.clicks = 0

    def click(self, by, text):
        self.clicks += 1
        self.assertLessEqual(self.clicks, 3)
        self.browser.find_element(by, text).click()

    def picture(self, name):
        if pictures:
            self.browser.save_screenshot(f"{pictures}/seeing_{name}.png")

    def test_which_operator_sends_most(self):
        self.wait("main table a", "grad")
        self.wait("main table", "all-reduce over dp")
        self.picture("most")

    def test_why_is_there_an_all_reduce_here(self):
        self.click(By.PARTIAL_LINK_TEXT, "layer_norm_through")
        self.wait("main", "chosen: Y: dp")
        self.wait("main", "all-reduce")  # it moves the partial sums of its input
        self.picture("why")

    def test_what_if_wo_were_split_by_rows(self):
        self.wait("main", "5.46 MiB")
        self.click(By.ID, "field-layout")
        self.browser.switch_to.active_element.send_keys("*.o_proj.weight=R,S0")
        self.wait("main", "5.86 MiB")  # more is sent
        self.picture("what_if")

    def test_which_rank_holds_row_100_of_wq(self):
        self.click(By.LINK_TEXT, "Tensors")
        self.click(By.LINK_TEXT, "transformer.h.0.attn.q_proj.weight")
        self.browser.find_element(By.ID, "row").send_keys("100")
        # 256 rows over tp=4, so it is in the second part of each copy.
        self.wait("main", "1, 5")
        self.picture("row")

    def test_what_stands_at_the_peak_of_memory(self):
        self.click(By.LINK_TEXT, "Memory")
        self.wait("main", "peak")
        self.picture("peak")

    def test_does_70b_train_on_64_gpus(self):
        self.click(By.LINK_TEXT, "A published size")
        self.wait("#verdict", "the cheapest", seconds=60)
        self.wait("#verdict", "GiB")
        self.picture("fits")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pictures"]:
        pictures = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), sys.argv[2])
        del sys.argv[1:3]
    sys.exit(page_test.main())
