#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""//:explore and --explore of a program: what they answer, refuse and bear."""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

EXPLORE = "programs/explore"
OWN = "tests/programs/with_flags"
# A file that no question may write.
NEW = os.path.join(tempfile.mkdtemp(), "x")
# Far longer than the limits of these tests.
ENDLESS = {"model": "gpt", "layers": 100_000, "mesh": "dp=2"}


class Playground:
    def __init__(self, *flags, program=EXPLORE):
        self.process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.rstrip("/").rsplit(":", 1)[-1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out + err

    def get(self, path, query=(), headers=None):
        """(status, body, headers) of a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        pairs = query.items() if isinstance(query, dict) else query
        query = urllib.parse.urlencode(list(pairs))
        connection.request("GET", path + ("?" + query if query else ""),
                           headers=headers or {})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body, response.headers

    def ask(self, command, query):
        status, body, _ = self.get("/api/" + command, query)
        return status, json.loads(body)

    def ask_later(self, command, query):
        """A thread that asks, and the list to which it appends the answer."""
        answers = []

        def ask():
            try:
                answers.append(self.ask(command, query))
            except (OSError, http.client.HTTPException):
                pass  # the server has ended

        thread = threading.Thread(target=ask)
        thread.start()
        return thread, answers

    def children(self):
        path = f"/proc/{self.process.pid}/task"
        found = []
        for task in os.listdir(path):
            with open(f"{path}/{task}/children") as f:
                found += f.read().split()
        return found

    def wait_for_children(self, number, seconds=10):
        end = time.monotonic() + seconds
        while len(self.children()) != number and time.monotonic() < end:
            time.sleep(0.002)
        return len(self.children())

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(next(x for x in f if x.startswith("VmRSS")).split()[1]) << 10


def program_says(*arguments):
    done = subprocess.run([EXPLORE, *arguments], capture_output=True, text=True)
    return done.returncode, done.stderr.strip()


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Playground()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_page_has_the_form(self):
        status, body, headers = self.server.get("/")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
        self.assertIn("connect-src 'self'", body)
        self.assertIn('"id":"size"', body)

    def test_answers_are_those_of_the_program(self):
        for command, query in (
                ("op", [("op", "matmul"), ("in", "8x8:R,R"), ("in", "8x8:R,R")]),
                ("explain", [("model", "gpt"), ("mesh", "dp=2,tp=4"), ("layers", 1)]),
                ("explain", [("model", "gpt"), ("mesh", "dp=2,tp=2"), ("compare", "dp,tp")]),
                ("plan", [("mesh", "2x2"), ("shape", "8,8"), ("from", "P,S1"),
                          ("to", "S0,R"), ("to-mesh", "4x1")])):
            status, record = self.server.ask(command, query)
            self.assertEqual(status, 200, record)
            flags = [word for name, text in query for word in ("--" + name, str(text))]
            done = subprocess.run(
                [EXPLORE, "plan" if command == "plan" else "explain", *flags,
                 "--record", "-"], capture_output=True, text=True)
            want = json.loads(done.stdout)
            for one in [record] + [want]:
                for r in one if isinstance(one, list) else [one]:
                    del r["command"]  # "--a=b" here and "--a b" there
            self.assertEqual(record, want)

    def test_a_wrong_flag_gets_the_sentence_of_the_program(self):
        for command, flags in (
                ("explain", ("--modle=gpt",)),
                ("explain", ("--model=gtp",)),
                ("explain", ("--model=gpt", "--mesh=dp=x")),
                ("explain", ("--model=gpt", "--hidden=255")),
                ("plan", ("--shape=8,8",))):
            code, sentence = program_says(command, *flags)
            self.assertEqual(code, 2)
            query = [tuple(flag[2:].split("=", 1)) for flag in flags]
            self.assertEqual(self.server.ask(command, query), (400, {"error": sentence}))

    def test_names_of_files_are_refused(self):
        for command, query in (
                ("explain", {"model": "gpt", "cost": "/etc/passwd"}),
                ("explain", {"model": "gpt", "mesh": "pp=2", "schedule": "/etc/passwd"}),
                ("explain", {"model": "gpt", "compare": "dp,tp", "svg": NEW}),
                ("plan", {"shape": "8", "mesh": "2", "from": "R", "to": "S0", "svg": NEW}),
                ("explain", {"model": "gpt", "flight": os.path.dirname(NEW)}),
                ("explain", {"model": "gpt", "trace": NEW}),
                ("explain", {"model": "gpt", "json": NEW}),
                ("explain", {"model": "gpt", "record": NEW})):
            status, answer = self.server.ask(command, query)
            self.assertEqual(status, 400, answer)
            self.assertRegex(answer["error"], "cannot use files|cannot be asked here")
        self.assertFalse(os.path.exists(NEW))
        self.assertEqual(self.server.ask("explain", {"model": "gpt", "mesh": "dp=8",
                                                     "cost": "h100"})[0], 200)

    def test_other_pages_and_hosts_are_refused(self):
        query = {"model": "gpt"}
        for headers, status in (({"Host": "evil.example"}, 403),
                                ({"Host": f"evil.example:{self.server.port}"}, 403),
                                ({"Sec-Fetch-Site": "cross-site"}, 403),
                                ({"Sec-Fetch-Site": "same-origin"}, 200)):
            self.assertEqual(self.server.get("/api/explain", query, headers)[0], status)
        self.assertEqual(self.server.get("/../etc/passwd")[0], 404)
        self.assertEqual(self.server.get("/api/train")[0], 404)

    def test_a_name_is_never_html(self):
        name = "<img src=x onerror=alert(1)>"
        status, body, headers = self.server.get("/api/op", {"op": name})
        self.assertEqual(status, 400)
        self.assertEqual(headers["Content-Type"], "application/json")
        self.assertIn(name, json.loads(body)["error"])

    def test_hostile_queries_leave_it_answering_in_the_same_memory(self):
        words = ["model", "mesh", "op", "in", "=", "&", "%", "%00", "--", "dp=2", "gpt",
                 "'", '"', "\\", "$(id)", ";", "9" * 30, "-1", "S0,R", "x" * 500, "é"]
        chosen = random.Random(7)
        self.server.ask("explain", {"model": "gpt"})
        before = self.server.resident()
        for _ in range(300):
            text = "".join(chosen.choice(words) for _ in range(chosen.randint(1, 12)))
            query = text if chosen.random() < 0.5 else urllib.parse.quote(text)
            with socket.create_connection(("127.0.0.1", self.server.port)) as s:
                s.sendall(f"GET /api/explain?{query} HTTP/1.1\r\nHost: localhost:"
                          f"{self.server.port}\r\n\r\n".encode())
                if chosen.random() < 0.8:
                    s.recv(100)
        self.assertEqual(self.server.ask("explain", {"model": "gpt"})[0], 200)
        self.assertLess(self.server.resident() - before, 8 << 20)
        self.assertEqual(self.server.wait_for_children(0), 0)


class Bounds(unittest.TestCase):
    def test_operators(self):
        with Playground("--operators", "50") as server:
            status, answer = server.ask("explain", {"model": "gpt", "layers": 4, "mesh": "dp=2"})
            self.assertEqual(status, 400)
            self.assertIn("more than 50 operators", answer["error"])
            status, answer = server.ask("op", {"op": "add", "in": "4:R", "mesh": "2"})
            self.assertEqual(status, 400)  # of another reason: it takes two
            self.assertNotIn("more than", answer["error"])

    def test_seconds(self):
        with Playground("--seconds", "0.5") as server:
            begun = time.monotonic()
            status, answer = server.ask("explain", ENDLESS)
            self.assertEqual(status, 422)
            self.assertIn("more than 0.5 s; ", answer["error"])
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual(server.children(), [])

    def test_ranks(self):
        with Playground("--ranks", "64") as server:
            query = {"model": "gpt", "layers": 1, "batch": 128}
            self.assertEqual(server.ask("explain", query | {"mesh": "dp=64"})[0], 200)
            status, answer = server.ask("explain", query | {"mesh": "dp=128"})
            self.assertEqual(status, 400)
            self.assertIn("this page takes at most 64", answer["error"])
            move = {"shape": "256", "from": "R", "to": "S0", "mesh": "64", "to-mesh": "64"}
            self.assertEqual(server.ask("plan", move)[0], 200)
            status, answer = server.ask("plan", move | {"to-mesh": "65"})
            self.assertEqual(status, 400)
            self.assertIn("[--to-mesh] a0=65 has 65 ranks", answer["error"])
            self.assertIn("this page takes at most 64", answer["error"])

    def test_memory(self):
        with open(EXPLORE, "rb") as f:
            text = f.read()
        if b"__asan_init" in text or b"__tsan_init" in text:
            self.skipTest("sanitizers take any amount of addresses")
        with Playground("--memory", "0.25") as server:
            status, answer = server.ask("explain", ENDLESS)
            self.assertEqual(status, 422, answer)
            self.assertIn("may use 238.4 MiB", answer["error"])

    def test_two_slow_questions_do_not_block_a_quick_one(self):
        with Playground() as server:
            slow = [server.ask_later("explain", ENDLESS | {"client": c}) for c in "ab"]
            self.assertEqual(server.wait_for_children(2), 2)
            begun = time.monotonic()
            self.assertEqual(server.ask("plan", {"mesh": "2", "shape": "8", "from": "R",
                                                 "to": "S0", "client": "c"})[0], 200)
            self.assertLess(time.monotonic() - begun, 3)
            self.assertTrue(all(thread.is_alive() for thread, _ in slow))
            for client in "ab":
                server.ask("plan", {"client": client})
            for thread, answers in slow:
                thread.join()
                self.assertEqual(answers[0][0], 409)

    def test_a_newer_question_ends_the_older(self):
        with Playground() as server:
            thread, answers = server.ask_later("explain", ENDLESS | {"client": "a"})
            other, others = server.ask_later("explain", ENDLESS | {"client": "b"})
            self.assertEqual(server.wait_for_children(2), 2)
            status, _ = server.ask("explain", {"model": "gpt", "client": "a"})
            self.assertEqual(status, 200)
            thread.join(timeout=5)
            self.assertEqual(answers[0][0], 409)
            self.assertIn("newer", answers[0][1]["error"])
            self.assertEqual((other.is_alive(), others), (True, []))
            server.stop()
            other.join()

    def test_a_client_that_leaves_ends_its_question_within_100_ms(self):
        with Playground() as server:
            took = []
            for _ in range(3):
                s = socket.create_connection(("127.0.0.1", server.port))
                s.sendall(f"GET /api/explain?{urllib.parse.urlencode(ENDLESS)} HTTP/1.1"
                          f"\r\nHost: localhost:{server.port}\r\n\r\n".encode())
                self.assertEqual(server.wait_for_children(1), 1)
                time.sleep(0.2)
                s.close()
                begun = time.monotonic()
                self.assertEqual(server.wait_for_children(0), 0)
                took.append(time.monotonic() - begun)
            self.assertLess(sorted(took)[1], 0.1)

    def test_too_many_questions_are_refused(self):
        with Playground("--questions", "1") as server:
            slow = [server.ask_later("explain", ENDLESS) for _ in range(20)]
            refused = []
            end = time.monotonic() + 20
            while not refused and time.monotonic() < end:
                time.sleep(0.1)
                refused = [a for _, answers in slow for a in answers]
            self.assertEqual(refused[0][0], 503, refused)
            self.assertEqual(len(server.children()), 1)
            server.stop()
            for thread, _ in slow:
                thread.join()


class Program(unittest.TestCase):
    def test_listens_on_this_machine_alone(self):
        with Playground() as server:
            self.assertTrue(server.url.startswith("http://127.0.0.1:"))
            with self.assertRaises(OSError):
                socket.create_connection(("127.0.0.2", server.port), timeout=5)
        with Playground("--host", "0.0.0.0") as server:
            socket.create_connection(("127.0.0.2", server.port), timeout=5).close()

    def test_ends_at_a_signal_with_its_children(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = Playground()
            thread, answers = server.ask_later("explain", ENDLESS)
            self.assertEqual(server.wait_for_children(1), 1)
            child = server.children()[0]
            code, printed = server.stop(number)
            self.assertEqual((code, printed), (0, ""))
            thread.join()
            self.assertFalse(os.path.exists(f"/proc/{child}"))

    def test_refuses_what_it_does_not_know(self):
        with Playground() as server:
            for flags, sentence in (
                    (("--prot", "1"), "did you mean --port?"),
                    (("--port", "70000"), "from 0 to 65535"),
                    (("--port", str(server.port)), "cannot listen"),
                    (("--host", "nowhere.invalid"), "cannot listen"),
                    (("words",), "belongs to no flag")):
                code, said = program_says(*flags)
                self.assertIn(code, (1, 2))
                self.assertIn(sentence, said)

    def test_a_program_of_ones_own(self):
        with Playground("--explore", "--rows", "16", program=OWN) as server:
            _, page, _ = server.get("/")
            form = json.loads(page.split('id="form">')[1].split("</script>")[0])
            names = {f["name"]: f for f in form["tabs"][0]["fields"]}
            self.assertEqual(names["rows"]["value"], ["16"])
            self.assertIn("mesh", names)
            for name in ("json", "flight", "backend", "device", "explore", "record", "notes"):
                self.assertNotIn(name, names)
            status, record = server.ask("run", {"rows": 32, "mesh": "tp=4"})
            self.assertEqual(status, 200, record)
            self.assertEqual(record["collectives"][0]["bytes_predicted"], 12288)
            status, answer = server.ask("run", {"rows": -1})
            self.assertEqual(status, 400)
            self.assertIn("[--rows]", answer["error"])
            for flag in ("json", "record", "flight", "explore", "rendezvous", "notes"):
                self.assertEqual(server.ask("run", {flag: NEW})[0], 400, flag)
        done = subprocess.run([OWN, "--explore", "x"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("'x' is not a port", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
