#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""//:chat: its answers are those of //:serve for the same messages; how it ends."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import serve_test  # noqa: E402

CHAT = "programs/chat"
LINES = ["Hi", "é", "/reset", "", "Hi", "Bo"]


def setUpModule():
    serve_test.make_model()


def start(*flags, env=None):
    return subprocess.Popen(
        [CHAT, "--model", serve_test.MODEL, "--ignore-eos", *flags], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})


def talk(lines, *flags):
    """(exit code, output, errors) of a conversation."""
    process = start(*flags)
    out, err = process.communicate("\n".join(lines).encode(), timeout=60)
    return process.returncode, out.decode(), err.decode()


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve_test.Serving("--mesh", "tp=2")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def served(self, lines, system="", **members):
        """The messages of the same conversation with the server, and all its answers."""
        messages = begin = [{"role": "system", "content": system}] if system else []
        answers = []
        for line in lines:
            if line == "/reset":
                messages = begin
            elif line:
                messages = messages + [{"role": "user", "content": line}]
                status, text = self.server.ask("/v1/chat/completions", {
                    "messages": messages, "ignore_eos": True, **members})
                self.assertEqual(status, 200, text)
                answers.append(json.loads(text)["choices"][0]["message"]["content"])
                messages = messages + [{"role": "assistant", "content": answers[-1]}]
        return messages, answers

    def test_the_answers_are_those_of_the_server(self):
        for flags, members in (((), {}),
                               (("--temperature", "0.9", "--seed", "3", "--top-k", "40"),
                                {"temperature": 0.9, "seed": 3, "top_k": 40})):
            messages, answers = self.served(LINES, "Be", max_tokens=3, **members)
            for mesh in "tp=1", "tp=3":
                code, out, err = talk(LINES, "--system", "Be", "--tokens", "3", "--mesh", mesh, *flags)
                self.assertEqual(code, 0, err)
                self.assertEqual(out, "".join(a + "\n" for a in answers))
                self.assertIn("/reset begins anew", err)
        code, out, err = talk(LINES, "--system", "Be", "--tokens", "3", "--json", *flags)
        self.assertEqual(json.loads(out)["messages"], messages)
        self.assertIn(answers[0], err)

    def test_stop_strings(self):
        whole = self.served(["Hello"], max_tokens=20)[1][0]
        stop = whole[5:7]
        want = self.served(["Hello"], max_tokens=20, stop=stop)[1][0]
        self.assertEqual(talk(["Hello"], "--tokens", "20", "--stop", stop)[1], want + "\n")

    def test_a_line_that_waits_while_an_answer_ends_early(self):
        stop = self.served(["Hello"], max_tokens=20)[1][0][1]
        lines = ["Hello", "/reset"] * 5
        want = self.served(lines, max_tokens=20, stop=stop)[1]
        code, out, err = talk(lines, "--tokens", "20", "--stop", stop)
        self.assertEqual((code, out), (0, "".join(w + "\n" for w in want)), err)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([CHAT, "--model", serve_test.MODEL], input=b"Hi\n",
                                  stdout=subprocess.PIPE, stderr=full, timeout=60)
        self.assertEqual(done.returncode, 1)

    def test_without_tokens_the_answer_takes_the_room(self):
        self.assertEqual(talk(["Hello"])[1], self.served(["Hello"])[1][0] + "\n")

    def test_commands(self):
        code, out, err = talk(["/what", "/quit", "Hello"])
        self.assertEqual((code, out), (0, ""))
        self.assertIn("There is no /what. /reset begins anew", err)
        done = subprocess.run([CHAT, "--help"], capture_output=True, text=True)
        self.assertIn("/quit", done.stdout)
        self.assertEqual(talk([])[:2], (0, ""))

    def test_a_conversation_that_is_too_long_goes_on(self):
        code, out, err = talk(["x" * 99, "Hello"], "--tokens", "5", "--mesh", "tp=2")
        self.assertEqual(code, 0)
        self.assertEqual(out, self.served(["Hello"], max_tokens=5)[1][0] + "\n")
        self.assertIn("the conversation has 116 tokens, but it and an answer together may have 64; "
                      "write a shorter message, or /reset", err)

    def test_messages_that_the_template_refuses(self):
        folder = serve_test.MODEL + "_strict"
        shutil.copytree(serve_test.MODEL, folder)
        path = os.path.join(folder, "tokenizer_config.json")
        with open(path) as f:
            config = json.load(f)
        config["chat_template"] = ("{% for m in messages %}{% if m.content == 'no' %}"
                                   "{{ raise_exception('say yes') }}{% endif %}{{ m.content }}"
                                   "{% endfor %}")
        with open(path, "w") as f:
            json.dump(config, f)
        code, out, err = talk(["no", "a"], "--model", folder, "--tokens", "3")
        self.assertEqual((code, len(out) > 1), (0, True))
        self.assertIn("say yes", err)
        del config["chat_template"]
        with open(path, "w") as f:
            json.dump(config, f)
        code, out, err = talk(["a"], "--model", folder)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("chat_template", err)
        self.assertEqual(talk([], "--model", folder, "--dry-run")[0], 0)

    def test_bad_input_is_a_sentence(self):
        done = subprocess.run([CHAT], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "chat: [--model] it is missing; write --model DIR\n"))
        self.assertIn("[--stop] it is empty", talk([], "--stop", "")[2])


class Ends(unittest.TestCase):
    def test_an_interrupt_ends_the_answer_or_the_program(self):
        process = start("--mesh", "tp=2", "--model", serve_test.make_long_model())
        process.stdin.write(b"Hello\n")
        process.stdin.flush()
        first = process.stdout.read(1)
        self.assertTrue(first)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(b"/quit\n", timeout=20)
        self.assertEqual(process.returncode, 0, err)
        self.assertLess(len(out), 90000)

    def test_an_interrupt_of_nothing_ends_the_program(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = start("--mesh", "tp=2")
            process.stderr.readline()
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=20), code)
            self.assertIn("interrupted by", process.stderr.read().decode())
            process.stdin.close()
            process.stdout.close()
            process.stderr.close()

    def test_it_waits_longer_than_the_timeout(self):
        process = start("--mesh", "tp=2", "--timeout", "0.5", "--tokens", "3")
        process.stderr.readline()
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(timeout=1.5)
        out, _ = process.communicate(b"Hello\n", timeout=20)
        self.assertEqual((process.returncode, out.count(b"\n") > 0), (0, True))


class Processes(unittest.TestCase):
    def test_they_answer_as_threads_do(self):
        flags = ["--tokens", "6", "--mesh", "tp=2"]
        want = talk(LINES, *flags)
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
               "LOCAL_WORLD_SIZE": "2"}
        ranks = [start(*flags, "--backend", "tcp", env={**env, "RANK": str(r), "LOCAL_RANK": str(r)})
                 for r in range(2)]
        ranks[1].stdin.close()
        out, err = ranks[0].communicate("\n".join(LINES).encode(), timeout=60)
        self.assertEqual((ranks[0].returncode, out.decode()), want[:2], err)
        self.assertEqual(ranks[1].stdout.read(), b"")
        self.assertEqual(ranks[1].wait(timeout=20), 0)
        ranks[1].stdout.close()
        ranks[1].stderr.close()

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_under_mpirun(self):
        flags = ["--tokens", "6", "--mesh", "tp=2"]
        want = talk(LINES, *flags)
        done = subprocess.run(
            ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n", "2", CHAT, "--model", serve_test.MODEL,
             "--ignore-eos", *flags], input="\n".join(LINES).encode(), capture_output=True,
            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        if b"MPI" in done.stderr and done.returncode == 2:
            self.skipTest("the program is built without MPI")
        self.assertEqual((done.returncode, done.stdout.decode()), want[:2], done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
