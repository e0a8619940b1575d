#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""//:serve: the answers of OpenAI's HTTP interface, what it refuses, and how it ends."""

import http.client
import json
import math
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

SERVE = "programs/serve"
GENERATE = "programs/generate"
MODEL = os.path.join(tempfile.mkdtemp(), "tiny")
PADDED = 250  # an id of the model that the tokenizer does not have
TEMPLATE = ("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
            "{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")


def characters_of_bytes():
    """The character by which a byte-level tokenizer writes each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def make_model():
    """Llama of the tests with a token for each byte that UTF-8 has, and one id without a token."""
    shutil.copytree("tests/nn/data/llama", MODEL)
    os.chmod(MODEL, 0o755)
    special = ["<unk>", "<s>", "</s>"]
    vocab = {token: i for i, token in enumerate(special)}
    vocab |= {c: 3 + b for b, c in characters_of_bytes().items() if b < 247}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
             "use_regex": False}
    added = [{"id": i, "content": token, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False} for i, token in enumerate(special)]
    files = {"tokenizer.json": {
                 "version": "1.0", "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": None}},
             "tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>",
                                       "chat_template": TEMPLATE}}
    for name, content in files.items():
        with open(os.path.join(MODEL, name), "w") as f:
            json.dump(content, f)


def make_long_model():
    """The same model for sequences that take minutes."""
    folder = MODEL + "_long"
    shutil.copytree(MODEL, folder, dirs_exist_ok=True)
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        config = json.load(f)
    with open(path, "w") as f:
        json.dump({**config, "max_position_embeddings": 100000, "eos_token_id": None}, f)
    return folder


def expected():
    """Three rows of tokens, and the mean loss that transformers computes for them."""
    with open("tests/nn/data/llama/expected.safetensors", "rb") as f:
        raw = f.read()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])

    def values(name, letter):
        begin, end = header[name]["data_offsets"]
        part = raw[8 + size + begin:8 + size + end]
        return struct.unpack(f"<{len(part) // 8}{letter}", part)

    ids = values("input_ids", "q")
    n = header["input_ids"]["shape"][1]
    return [list(ids[i:i + n]) for i in range(0, len(ids), n)], values("loss", "d")[0]


def setUpModule():
    make_model()


class Serving:
    """A running server."""

    def __init__(self, *flags, env=None, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, SERVE, "--model", MODEL, "--port", "0", *flags], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError(self.process.communicate()[1])
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

    def open(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body if body is None or isinstance(body, str)
                           else json.dumps(body), headers or {})
        return connection, connection.getresponse()

    def ask(self, path, body=None, method=None, headers=None):
        """(status, text) of a request."""
        return self.ask_all(path, body, method, headers)[::2]

    def ask_all(self, path, body=None, method=None, headers=None):
        """(status, headers, text) of a request."""
        connection, response = self.open(method or ("GET" if body is None else "POST"), path, body,
                                         headers)
        text = response.read().decode()
        connection.close()
        return response.status, response.headers, text

    def complete(self, prompt="Hello", path="/v1/completions", **members):
        status, text = self.ask(path, {"prompt": prompt, "ignore_eos": True, **members})
        if status != 200:
            raise AssertionError(text)
        return json.loads(text)

    def text(self, *arguments, **members):
        return self.complete(*arguments, **members)["choices"][0]["text"]

    def chat(self, content="Hello", **members):
        status, text = self.ask("/v1/chat/completions", {
            "messages": [{"role": "user", "content": content}], "ignore_eos": True, **members})
        if status != 200:
            raise AssertionError(text)
        return json.loads(text)

    def stream(self, path="/v1/completions", **members):
        """The events of a stream, without the last, which must be [DONE]."""
        status, text = self.ask(path, {"stream": True, "ignore_eos": True, **members})
        if status != 200:
            raise AssertionError(text)
        events = text.split("\n\n")
        if events[-2:] != ["data: [DONE]", ""]:
            raise AssertionError(text)
        return [json.loads(e.removeprefix("data: ")) for e in events[:-2]]

    def error(self, path="/v1/completions", body=None, **more):
        status, text = self.ask(path, body, **more)
        if "error" not in json.loads(text):
            raise AssertionError(f"{body} is answered: {text}")
        return status, json.loads(text)["error"]

    def metrics(self):
        lines = self.ask("/metrics")[1].splitlines()
        return {name.removeprefix("dtensor_"): int(value)
                for name, value in (x.split() for x in lines if not x.startswith("#"))}

    def wait_for_metric(self, name, value, seconds=20):
        end = time.monotonic() + seconds
        while (now := self.metrics()[name]) != value and time.monotonic() < end:
            time.sleep(0.01)
        return now


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--mesh", "tp=3")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_a_completion_is_that_of_generate(self):
        done = subprocess.run([GENERATE, "--model", MODEL, "--prompt", "Hello", "--tokens", "30",
                               "--ignore-eos", "--mesh", "tp=1", "--json"], capture_output=True, text=True)
        want = json.loads(done.stdout)
        answer = self.server.complete(max_tokens=30)
        self.assertEqual(answer["choices"], [{"index": 0, "text": want["text"][0],
                                              "logprobs": None, "finish_reason": "length"}])
        self.assertEqual(answer["usage"], {"prompt_tokens": 5, "completion_tokens": 30,
                                           "total_tokens": 35,
                                           "prompt_tokens_details": {"cached_tokens": 0}})
        self.assertEqual((answer["object"], answer["model"]), ("text_completion", "tiny"))
        self.assertEqual(len(self.server.complete(logprobs=0)["choices"][0]["logprobs"]["tokens"]),
                         16)

    def test_generate_ends_before_a_stop_string_as_the_server_does(self):
        whole = self.server.text(max_tokens=30)
        for stop in whole[7:9], whole[20]:
            want = self.server.complete(max_tokens=30, stop=["never there", stop])
            for flags in (), ("--mesh", "tp=3"), ("--no-cache",):
                done = subprocess.run(
                    [GENERATE, "--model", MODEL, "--prompt", "Hello", "--tokens", "30", "--ignore-eos",
                     "--json", "--stop", "never there", "--stop", stop, *flags],
                    capture_output=True, text=True)
                got = json.loads(done.stdout)
                self.assertEqual(got["text"], [whole[:whole.find(stop)]])
                self.assertEqual(got["text"][0], want["choices"][0]["text"])
                self.assertEqual(len(got["ids"][0]), want["usage"]["completion_tokens"])
        done = subprocess.run([GENERATE, "--model", MODEL, "--prompt", "a", "--stop", ""],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("[--stop] it is empty", done.stderr)

    def test_prompts_are_texts_or_ids_or_lists(self):
        ids = [3 + b for b in b"Hello"]
        want = self.server.text(max_tokens=8)
        self.assertEqual(self.server.text(ids, max_tokens=8), want)
        for prompt in (["Hello", "Bye"], [ids, [3 + b for b in b"Bye"]]):
            answer = self.server.complete(prompt, max_tokens=8)
            self.assertEqual([c["text"] for c in answer["choices"]],
                             [want, self.server.text("Bye", max_tokens=8)])
            self.assertEqual(answer["usage"]["prompt_tokens"], 8)

    def test_a_stream_is_the_whole_answer_in_pieces(self):
        members = {"max_tokens": 40, "temperature": 1, "seed": 3}
        want = self.server.text(**members)
        events = self.server.stream(prompt="Hello", stream_options={"include_usage": True},
                                    **members)
        self.assertGreater(len(events), 10)
        self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), want)
        self.assertEqual([e["choices"][0]["finish_reason"] for e in events[:-1]],
                         [None] * (len(events) - 2) + ["length"])
        self.assertEqual((events[-1]["choices"], events[-1]["usage"]["completion_tokens"]),
                         ([], 40))
        self.assertEqual(len({e["id"] for e in events}), 1)

    def test_a_chat_continues_the_template(self):
        want = self.server.text("user: Hello\nassistant:", max_tokens=12)
        answer = self.server.chat(max_completion_tokens=12)
        self.assertEqual(answer["choices"][0]["message"]["content"], want)
        self.assertEqual(answer["object"], "chat.completion")
        parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
        self.assertEqual(self.server.chat(parts, max_tokens=12)["choices"], answer["choices"])
        events = self.server.stream("/v1/chat/completions", max_tokens=12,
                                    messages=[{"role": "user", "content": "Hello"}])
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(events[0]["object"], "chat.completion.chunk")
        self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events), want)
        # Without a limit, a chat goes on to the longest sequence.
        self.assertEqual(self.server.chat()["usage"]["total_tokens"], 64)

    def test_n_texts_have_seeds_in_turn(self):
        members = {"temperature": 1.5, "max_tokens": 10}
        choices = self.server.complete(n=3, seed=5, **members)["choices"]
        self.assertEqual([c["text"] for c in choices],
                         [self.server.text(seed=5 + i, **members) for i in range(3)])
        self.assertEqual(len({c["text"] for c in choices}), 3)
        texts = {self.server.text(**members) for _ in range(4)}
        self.assertGreater(len(texts), 1)  # without a seed
        events = self.server.stream(prompt="Hello", n=3, seed=5, **members)
        for c in choices:
            self.assertEqual("".join(e["choices"][0]["text"] for e in events
                                     if e["choices"][0]["index"] == c["index"]), c["text"])

    def test_a_text_ends_before_a_stop_string(self):
        letters = {str(3 + b): 50 for b in b"abcdefgh"}
        for seed in range(3):
            members = {"max_tokens": 50, "temperature": 1, "seed": seed, "logit_bias": letters}
            whole = self.server.text(**members)
            for at, size in ((0, 1), (7, 1), (9, 3), (20, 5)):
                stop = whole[at:at + size]
                want = whole[:whole.find(stop)]
                answer = self.server.complete(stop=["never there", stop], **members)["choices"][0]
                self.assertEqual((answer["text"], answer["finish_reason"]), (want, "stop"))
                events = self.server.stream(prompt="Hello", stop=stop, logprobs=0, **members)
                self.assertEqual("".join(e["choices"][0]["text"] for e in events), want)
                self.assertEqual("".join(t for e in events if e["choices"][0]["logprobs"]
                                         for t in e["choices"][0]["logprobs"]["tokens"]), want)
                self.assertEqual(events[-1]["choices"][0]["finish_reason"], "stop")
            # Text that was held back comes when no more can follow.
            answer = self.server.complete(stop=whole[-3:] + "x", **members)["choices"][0]
            self.assertEqual((answer["text"], answer["finish_reason"]), (whole, "length"))

    def test_the_end_token_ends_a_text(self):
        answer = self.server.complete(logit_bias={"2": 100}, max_tokens=9, ignore_eos=False)
        self.assertEqual((answer["choices"][0]["text"], answer["choices"][0]["finish_reason"],
                          answer["usage"]["completion_tokens"]), ("", "stop", 1))

    def test_each_text_is_counted_once(self):
        before = self.server.metrics()
        letters = {str(3 + b): 50 for b in b"ab"}
        threads = [threading.Thread(target=self.server.text, kwargs={
            "max_tokens": 2 + i % 3, "temperature": 1, "seed": i, "stop": ["a", "b"][i % 2],
            "logit_bias": letters}) for i in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(self.server.wait_for_metric("running", 0), 0)
        after = self.server.metrics()
        self.assertEqual(sum(after[name] - before[name] for name in
                             ("stopped_total", "full_length_total", "cancelled_total")), 64)

    def test_a_token_that_the_tokenizer_lacks_has_no_text(self):
        members = {"max_tokens": 3, "logit_bias": {str(PADDED): 100}, "logprobs": 2}
        answer = self.server.complete(**members)
        self.assertEqual(answer["choices"][0]["text"], "")
        self.assertEqual(answer["choices"][0]["logprobs"]["tokens"], [""] * 3)
        self.assertEqual(answer["usage"]["completion_tokens"], 3)
        events = self.server.stream(prompt="Hello", **members)
        self.assertEqual("".join(e["choices"][0]["text"] for e in events), "")

    def test_logprobs(self):
        got = self.server.complete(max_tokens=6, logprobs=3)["choices"][0]
        logprobs = got["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), 6)
        self.assertEqual(logprobs["text_offset"], list(range(6)))
        for token, logprob, best in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                        logprobs["top_logprobs"]):
            self.assertAlmostEqual(max(best.values()), logprob)  # greedy
            self.assertLess(logprob, 0)
        chat = self.server.chat(max_tokens=6, logprobs=True, top_logprobs=2)["choices"][0]
        content = chat["logprobs"]["content"]
        self.assertEqual(len(content), 6)
        for one in content:
            self.assertEqual(one["top_logprobs"][0]["logprob"], one["logprob"])
            self.assertEqual(bytes(one["bytes"]).decode(), one["token"])
            self.assertGreaterEqual(one["top_logprobs"][0]["logprob"],
                                    one["top_logprobs"][1]["logprob"])
        events = self.server.stream("/v1/chat/completions", max_tokens=6, logprobs=True,
                                    top_logprobs=2,
                                    messages=[{"role": "user", "content": "Hello"}])
        streamed = [one for e in events if e["choices"][0]["logprobs"]
                    for one in e["choices"][0]["logprobs"]["content"]]
        self.assertEqual(streamed, content)

    def test_a_prompt_is_echoed(self):
        text = self.server.text("Hell\u00f6", max_tokens=9)
        for members in ({}, {"logprobs": 1}):
            answer = self.server.complete("Hell\u00f6", max_tokens=9, echo=True, **members)
            self.assertEqual(answer["choices"][0]["text"], "Hell\u00f6" + text)
            self.assertEqual(answer["usage"]["completion_tokens"], 9)
            events = self.server.stream(prompt="Hell\u00f6", max_tokens=9, echo=True, **members)
            self.assertEqual("".join(e["choices"][0]["text"] for e in events), "Hell\u00f6" + text)
            alone = self.server.complete(["Hell\u00f6", "Bye"], max_tokens=0, echo=True, n=2,
                                         **members)
            self.assertEqual([(c["text"], c["finish_reason"]) for c in alone["choices"]],
                             [(t, "length") for t in ("Hell\u00f6", "Hell\u00f6", "Bye", "Bye")])
            self.assertEqual(alone["usage"]["completion_tokens"], 0)
        # Stop strings end the continuation alone.
        answer = self.server.complete("Hello", max_tokens=9, echo=True, stop="l")["choices"][0]
        self.assertEqual(answer["text"], "Hello" + self.server.text(max_tokens=9, stop="l"))
        whole = self.server.complete("x" * 64, max_tokens=0, echo=True, logprobs=0)["choices"][0]
        self.assertEqual((whole["text"], len(whole["logprobs"]["tokens"])), ("x" * 64, 64))

    def test_logprobs_of_prompts_are_those_of_transformers(self):
        rows, loss = expected()
        for members in ({"max_tokens": 0}, {"max_tokens": 1}):
            # As lm-eval asks, and reads: from the context's tokens to the last but one.
            choices = self.server.complete(rows, echo=True, logprobs=1, temperature=0, seed=1234,
                                           **members)["choices"]
            total = 0
            for row, choice in zip(rows, choices):
                got = choice["logprobs"]
                size = len(row) + members["max_tokens"]
                for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                    self.assertEqual(len(got[name]), size, name)
                self.assertEqual((got["token_logprobs"][0], got["top_logprobs"][0]), (None, None))
                total += sum(got["token_logprobs"][1:len(row)])
                for token, logprob, best in zip(got["tokens"][1:], got["token_logprobs"][1:],
                                                got["top_logprobs"][1:]):
                    self.assertEqual(len(best), 1)
                    # It is greedy if the numbers are equal.
                    self.assertTrue(logprob < max(best.values()) or token in best)
            self.assertAlmostEqual(-total / sum(len(r) - 1 for r in rows), loss, places=5)
        text = "Hell\u00f6 <s>you"
        got = self.server.complete(text, max_tokens=2, echo=True, logprobs=0)["choices"][0]
        tokens = got["logprobs"]["tokens"]
        self.assertEqual(got["logprobs"]["text_offset"][-2:], [len("Hell\u00f6 you"),
                                                               len("Hell\u00f6 you") + 1])
        self.assertEqual(tokens[-6], "<s>")
        # The logprobs of a text that was generated are those of the same text as a prompt.
        letters = {str(3 + b): 50 for b in b"abcdefgh"}
        made = self.server.complete("Hello", max_tokens=20, logprobs=2,
                                    logit_bias=letters)["choices"][0]
        again = self.server.complete("Hello" + made["text"], max_tokens=0, echo=True,
                                     logprobs=2)["choices"][0]["logprobs"]
        for a, b in zip(made["logprobs"]["token_logprobs"], again["token_logprobs"][5:]):
            self.assertAlmostEqual(a, b, places=5)
        for a, b in zip(made["logprobs"]["top_logprobs"], again["top_logprobs"][5:]):
            self.assertEqual(list(a), list(b))
        events = self.server.stream(prompt=rows[0], max_tokens=3, echo=True, logprobs=1)
        streamed = [x for e in events if e["choices"][0]["logprobs"]
                    for x in e["choices"][0]["logprobs"]["token_logprobs"]]
        whole = self.server.complete(rows[0], max_tokens=3, echo=True, logprobs=1)["choices"][0]
        self.assertEqual(streamed, whole["logprobs"]["token_logprobs"])

    def test_members_that_ask_for_nothing(self):
        want = self.server.text(max_tokens=4)
        for members in ({"tools": []}, {"parallel_tool_calls": False}, {"tool_choice": "none"},
                        {"functions": []}, {"suffix": ""}, {"echo": False}, {"tools": None}):
            self.assertEqual(self.server.text(max_tokens=4, **members), want, members)
        self.server.chat(max_tokens=2, tools=[], tool_choice="auto", modalities=["text"])

    def test_a_connection_is_kept(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.connect()
        mine = connection.sock
        for body in ({"prompt": "a", "max_tokens": 2}, {"prompt": "a", "stream": True},
                     {"prompt": ""}, {"prompt": "b", "max_tokens": 2}):
            connection.request("POST", "/v1/completions", json.dumps(body))
            response = connection.getresponse()
            text = response.read().decode()
            self.assertEqual(response.status, 200 if body["prompt"] else 400, text)
            self.assertIs(connection.sock, mine)
        # In chunks, as for a body of unknown length.
        connection.request("POST", "/v1/completions", iter([b'{"prompt": "b",', b'"max_tokens": 2}']),
                           encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        chunked = json.loads(connection.getresponse().read())["choices"]
        self.assertEqual(chunked, json.loads(text)["choices"])
        self.assertIs(connection.sock, mine)
        connection.close()

    def test_sampling_members(self):
        greedy = self.server.text(max_tokens=8)
        for members in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}):
            self.assertEqual(self.server.text(max_tokens=8, temperature=1, **members), greedy)
        self.assertEqual(self.server.text(max_tokens=4, logit_bias={"68": 100}), "AAAA")
        for members in ({"frequency_penalty": 2}, {"presence_penalty": 2},
                        {"repetition_penalty": 5}):
            self.assertNotEqual(self.server.text(max_tokens=50, **members),
                                self.server.text(max_tokens=50), members)

    def test_many_at_once_are_as_each_alone(self):
        asked = [{"prompt": "x" * (1 + i % 7), "max_tokens": 10 + i, "temperature": i % 2,
                  "seed": i} for i in range(32)]
        alone = [self.server.text(**members) for members in asked]
        together = [None] * len(asked)

        def ask(i):
            together[i] = self.server.text(**asked[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(asked))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(together, alone)

    def test_models_health_metrics_and_page(self):
        models = json.loads(self.server.ask("/v1/models")[1])
        self.assertEqual([m["id"] for m in models["data"]], ["tiny"])
        self.assertEqual(json.loads(self.server.ask("/v1/models/tiny")[1]), models["data"][0])
        status, error = self.server.error("/v1/models/other")
        self.assertEqual((status, error["code"]), (404, "model_not_found"))
        for path in ("/health", "/v1/models"):
            status, headers, text = self.server.ask_all(path, method="HEAD")
            self.assertEqual((status, text), (200, ""))
        self.assertEqual(json.loads(self.server.ask("/health")[1]), {"status": "ok"})
        before = self.server.metrics()
        self.server.complete(max_tokens=7)
        self.assertEqual(self.server.wait_for_metric("running", 0), 0)
        after = self.server.metrics()
        for name, more in (("requests_total", 1), ("prompt_tokens_total", 5),
                           ("generated_tokens_total", 7), ("steps_total", 7),
                           ("full_length_total", 1), ("cancelled_total", 0)):
            self.assertEqual(after[name] - before[name], more, name)
        status = json.loads(self.server.ask("/status")[1])
        self.assertEqual((status["model"], status["failure"], status["requests"], status["pages"]),
                         ("tiny", "", [], status["free_pages"]))
        for cached in (0, 32):  # a page of equal tokens
            before = self.server.metrics()["cached_tokens_total"]
            answer = self.server.complete(prompt=[9] * 40, max_tokens=1)
            self.assertEqual(self.server.wait_for_metric("running", 0), 0)
            self.assertEqual(self.server.metrics()["cached_tokens_total"] - before, cached)
            self.assertEqual(answer["usage"]["prompt_tokens_details"], {"cached_tokens": cached})
        # A prompt counts once, however many texts it has.
        new, old = [7] * 40, [9] * 40
        usage = self.server.complete(prompt=[new, old], n=3, max_tokens=1)["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["prompt_tokens_details"]),
                         (80, {"cached_tokens": 32}))
        usage = self.server.stream(prompt=old, stream_options={"include_usage": True})[-1]["usage"]
        self.assertEqual(usage["prompt_tokens_details"], {"cached_tokens": 32})
        page = self.server.ask("/")[1]
        self.assertIn("connect-src 'self'", page)
        self.assertIn("/v1/chat/completions", page)


class Reproducible(unittest.TestCase):
    def test_each_mesh_gives_the_same_bits(self):
        answers = []
        for mesh in "tp=1", "tp=2", "pp=2":
            with Serving("--mesh", mesh, "--reproducible", "--chunk", "7") as server:
                answers.append([
                    server.complete(prompt, max_tokens=20, temperature=1, seed=3, n=3,
                                    logprobs=5)["choices"]
                    for prompt in ("Hello", "a longer text, in six chunks or more", "Hello there")])
        self.assertEqual(answers[1:], answers[:1] * 2)


class Refuses(unittest.TestCase):
    def test_wrong_requests(self):
        with Serving() as server:
            for body, sentence in (
                    ("{", "not a JSON object"), ("[]", "not a JSON object"),
                    ({"prompt": "a", "tools": [{}]}, "'tools' is not supported"),
                    ({"prompt": "a", "tool_choice": "required"}, "'tool_choice' is not supported"),
                    ({"prompt": "a", "parallel_tool_calls": 0}, "'parallel_tool_calls'"),
                    ({"prompt": "a", "suffix": "b"}, "'suffix' is not supported"),
                    ({"prompt": "a", "n": 0}, "'n' is 0, but must be an integer from 1 to 128"),
                    ({"prompt": "a", "n": "1"}, "'n' is \"1\""),
                    ({"prompt": "a", "temperature": -1}, "'temperature' is -1"),
                    ({"prompt": "a", "temperature": "x" * 5000}, "'temperature' is \"xxxx"),
                    ({"prompt": "a", "top_p": True}, "'top_p' is true"),
                    ({"prompt": "a", "stop": ""}, "'stop'"),
                    ({"prompt": "a", "stop": [1]}, "'stop'"),
                    ({"prompt": "a", "stop": ["b", "x" * 1025]}, "'stop' has a string of 1025 bytes"),
                    ({"prompt": "a", "best_of": 2}, "'best_of' is 2, but 'n' is 1"),
                    ({"prompt": "a", "logprobs": 21}, "'logprobs' is 21"),
                    ({"prompt": "a", "logit_bias": {"x": 1}}, "'logit_bias' has \"x\""),
                    ({"prompt": "a", "logit_bias": {"999": 1}}, "999"),
                    ({"prompt": "a", "stream": 1}, "'stream' is not true or false"),
                    ({"prompt": "a", "echo": 1}, "'echo' is not true or false"),
                    ({"prompt": "a", "max_tokens": 0}, "'max_tokens' is 0"),
                    ({"prompt": "x" * 65, "echo": True, "max_tokens": 0}, "the prompt has 65"),
                    ({"prompt": "x" * 64, "echo": True}, "the prompt has 64 tokens"),
                    ({"prompt": ""}, "no tokens"), ({}, "'prompt' must be"),
                    ({"prompt": {"a": 1}}, "'prompt' must be"),
                    ({"prompt": [999]}, "the prompt has the token 999"),
                    ({"prompt": "x" * 64}, "the prompt has 64 tokens"),
                    ({"prompt": "x" * 60, "max_tokens": 5}, "'max_tokens' is 5, but this prompt leaves room")):
                status, error = server.error(body=body)
                self.assertEqual(status, 400, body)
                self.assertIn(sentence, error["message"])
                self.assertEqual(error["type"], "invalid_request_error")
            long = server.error(body={"prompt": "x" * 99})[1]
            self.assertEqual((long["code"], long["param"]), ("context_length_exceeded", "prompt"))
            chat = "/v1/chat/completions"
            for messages, sentence in (
                    ([], "at least one message"), ("a", "'messages' must be a list"),
                    ([{"role": "user"}], "'role' and 'content'"),
                    ([{"role": "user", "content": [{"type": "image_url"}]}], "type \"text\""),
                    ([{"role": "tool", "content": "a"}], "no tools")):
                status, error = server.error(chat, {"messages": messages})
                self.assertEqual(status, 400)
                self.assertIn(sentence, error["message"])
            status, error = server.error(chat, {"messages": [{"role": "user", "content": "a"}],
                                                "response_format": {"type": 1}})
            self.assertEqual((status, error["param"]), (400, "response_format"))
            status, error = server.error(body={"prompt": "a", "model": "gpt-4"})
            self.assertEqual((status, error["code"]), (404, "model_not_found"))
            for path in ("/v1/nothing", "/v1", "/nothing", "/v1/completions/"):
                for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                    self.assertEqual(server.error(path, method=method)[0], 404, (path, method))
            for path, allowed in (("/v1/completions", "POST"), ("/v1/chat/completions", "POST"),
                                  ("/cancel", "POST"), ("/", "GET, HEAD"),
                                  ("/health", "GET, HEAD"), ("/v1/models", "GET, HEAD"),
                                  ("/v1/models/tiny", "GET, HEAD"), ("/status", "GET, HEAD")):
                for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                    if method in allowed:
                        continue
                    status, headers, text = server.ask_all(path, method=method)
                    self.assertEqual((status, headers["Allow"]), (405, allowed), (path, method))
                    self.assertIn(f"use {allowed.split(',')[0]} for {path}", text)
            self.assertEqual(server.error(body={"prompt": "a"},
                                          headers={"Sec-Fetch-Site": "cross-site"})[0], 403)
            self.assertEqual(server.ask("/v1/completions", "x" * (9 << 20))[0], 413)
            self.assertEqual(server.text(max_tokens=1), server.text(max_tokens=1))

    def test_a_wrong_key(self):
        with Serving("--api-key", "secret") as server:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"},
                            {"Authorization": "Bearer secrets"}):
                for path, body in (("/v1/models", None), ("/v1/completions", {"prompt": "a"}),
                                   ("/v1/models/tiny", None), ("/status", None),
                                   ("/metrics", None), ("/cancel", {"id": 0})):
                    status, error = server.error(path, body, headers=headers)
                    self.assertEqual((status, error["code"]), (401, "invalid_api_key"))
            right = {"Authorization": "Bearer secret"}
            self.assertEqual(server.ask("/v1/completions", {"prompt": "a"}, headers=right)[0], 200)
            for path in ("/status", "/metrics"):
                self.assertEqual(server.ask(path, headers=right)[0], 200)
            for path in ("/health", "/"):
                self.assertEqual(server.ask(path)[0], 200)

    def test_other_hosts(self):
        with Serving("--allow-host", "Model.example", "--allow-host", "b.example") as server:
            for host in (f"localhost:{server.port}", "LOCALHOST:9000", "127.0.0.1", "[::1]:80",
                         "model.example", "MODEL.EXAMPLE:443", "b.example"):
                self.assertEqual(server.ask("/health", headers={"Host": host})[0], 200, host)
            status, text = server.ask("/health", headers={"Host": "evil.example:80"})
            self.assertEqual(status, 403)
            for part in ("evil.example", "b.example", "model.example", "localhost", "--allow-host"):
                self.assertIn(part, text)

    def test_many_at_once_are_all_answered(self):
        with Serving("--mesh", "tp=2", "--max-requests", "4") as server:
            results = []

            def ask(i):
                try:
                    status, headers, _ = server.ask_all("/v1/completions", {
                        "prompt": "a" * (1 + i % 9), "max_tokens": 20, "ignore_eos": True})
                    results.append((status, headers["Retry-After"]))
                except (OSError, http.client.HTTPException) as e:
                    results.append((0, repr(e)))

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(200)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(len(results), 200)
            self.assertLessEqual(set(results), {(200, None), (429, "1"), (503, "1")})
            self.assertIn((200, None), results)
            self.assertEqual(server.ask("/health")[0], 200)

    def test_large_prompts_take_no_memory(self):
        with Serving() as server:
            def megabytes(name):
                with open(f"/proc/{server.process.pid}/status") as f:
                    return next(int(line.split()[1]) / 1024 for line in f if line.startswith(name))

            server.complete(max_tokens=2)
            before = megabytes("VmRSS")
            body = json.dumps({"prompt": "x" * 8_300_000})
            errors = []
            threads = [threading.Thread(target=lambda: errors.append(server.error(body=body)))
                       for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(len(errors), 4)
            for status, error in errors:
                self.assertEqual((status, error["code"]), (400, "context_length_exceeded"))
                self.assertIn("the prompt has 8300000 bytes", error["message"])
                self.assertIn("64 tokens, which are at most 1280 bytes", error["message"])
            # A chat's text is that of its template.
            chat = {"messages": [{"role": "user", "content": "x" * 1281}]}
            self.assertIn("the prompt has 1298 bytes",
                          server.error("/v1/chat/completions", chat)[1]["message"])
            self.assertLess(megabytes("VmHWM") - before, 200)
            self.assertLess(megabytes("VmRSS") - before, 60)

    def test_too_many(self):
        with Serving("--max-requests", "2") as server:
            self.assertEqual(len(server.complete(n=2)["choices"]), 2)
            for members, count, fewer in (
                    ({"prompt": "a", "n": 3}, 3, "a smaller 'n'"),
                    ({"prompt": ["a"] * 3}, 3, "fewer prompts"),
                    ({"prompt": ["a", "b"], "n": 2}, 4, "fewer prompts or a smaller 'n'"),
                    # It is refused before a prompt is read.
                    ({"prompt": ["x" * 99] * 2, "n": 2}, 4, "fewer prompts or a smaller 'n'")):
                status, error = server.error(body=members)
                self.assertEqual((status, error["type"]), (400, "invalid_request_error"))
                self.assertIn(f"asks for {count} texts", error["message"])
                self.assertTrue(error["message"].endswith(f"; write {fewer}"), error)
        with Serving("--max-requests", "64", "--batch", "1") as server:
            connection, _ = server.open("POST", "/v1/completions", Ends.LONG)
            status, error = server.error(body={"prompt": "a", "n": 3})
            self.assertEqual((status, error["type"]), (429, "rate_limit_error"))
            self.assertEqual(server.metrics()["refused_total"], 3)
            connection.close()

    def test_bodies_that_would_take_a_stack_or_minutes(self):
        deep = "[" * 100000 + "]" * 100000
        many = ",".join(f'"a{i}":null' for i in range(300000))
        objects = "[" + "0," * 2000000 + ",".join(["{}"] * 100000) + "]"
        with Serving() as server:
            for body, sentence in (
                    (f'{{"prompt": {deep}}}', "deeper than 64"),
                    (f'{{"prompt": "a", "n": {deep}}}', "deeper than 64"),
                    ("[" * 1000000, "deeper than 64"),
                    (f'{{"prompt": "a", {many}}}', "more than 10000 members"),
                    (f'{{"prompt": {objects}}}', "'prompt' must be")):
                begun = time.monotonic()
                status, error = server.error(body=body)
                self.assertEqual(status, 400)
                self.assertIn(sentence, error["message"])
                self.assertLess(time.monotonic() - begun, 5)
            # Brackets and colons of a text do not count.
            self.assertIn("the prompt has 60000 bytes",
                          server.error(body={"prompt": '[{:"\\' * 12000})[1]["message"])
            self.assertEqual(len(server.text(max_tokens=1)), 1)

    def test_a_cache_that_is_too_small(self):
        with Serving("--cache-tokens", "32") as server:
            status, error = server.error(body={"prompt": "x" * 32})
            self.assertEqual(status, 400)
            self.assertIn("together may have 32", error["message"])
            self.assertEqual(server.complete("x" * 22, max_tokens=10)["usage"]["total_tokens"], 32)


class Ends(unittest.TestCase):
    # Thousands of steps with --batch 1.
    LONG = {"prompt": "a", "n": 64, "max_tokens": 63, "stream": True, "ignore_eos": True}

    def test_a_client_that_leaves_cancels_its_texts(self):
        with Serving("--mesh", "tp=2", "--batch", "1") as server:
            for streams in (True, False):
                before = server.metrics()
                body = json.dumps({**self.LONG, "stream": streams})
                with socket.create_connection(("127.0.0.1", server.port)) as s:
                    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
                              f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
                    self.assertEqual(server.wait_for_metric("running", 1), 1)
                self.assertEqual(server.wait_for_metric("waiting", 0), 0)
                self.assertEqual(server.wait_for_metric("running", 0), 0)
                after = server.metrics()
                self.assertGreater(after["cancelled_total"] - before["cancelled_total"], 8)
                self.assertLess(after["generated_tokens_total"] - before["generated_tokens_total"],
                                32 * 63)
            self.assertEqual(len(server.complete(n=2)["choices"]), 2)

    def test_a_client_that_does_not_read_holds_nobody_up(self):
        with Serving("--mesh", "tp=2", "--batch", "4", "--cache-tokens", "100000", "--model",
                     make_long_model()) as server, socket.socket() as s:
            want = server.text(max_tokens=20)
            body = json.dumps({"prompt": "a", "n": 2, "max_tokens": 40000, "stream": True,
                               "logprobs": 20})
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.port))
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
            self.assertEqual(server.wait_for_metric("running", 2), 2)
            answered, begun = 0, time.monotonic()
            # Buffers fill up, and ten seconds later the client is disconnected.
            while server.metrics()["cancelled_total"] < 2:
                self.assertEqual(server.text(max_tokens=20), want)
                answered += 1
                self.assertLess(time.monotonic() - begun, 45)
            self.assertGreater(answered, 50)
            self.assertEqual(server.wait_for_metric("running", 0), 0)

    def test_a_text_that_is_cancelled_ends_for_its_client(self):
        with Serving("--mesh", "tp=2", "--batch", "1", "--model", make_long_model()) as server:
            def status():
                return json.loads(server.ask("/status")[1])

            connection, response = server.open("POST", "/v1/completions", {
                "prompt": "abc", "n": 2, "max_tokens": 50000, "stream": True})
            response.readline()
            self.assertEqual(server.wait_for_metric("waiting", 1), 1)
            first, second = status()["requests"]
            self.assertEqual([(r["id"], r["state"], r["prompt_tokens"], r["most_tokens"])
                              for r in (first, second)],
                             [(0, "running", 3, 50000), (1, "waiting", 3, 50000)])
            self.assertEqual(second["generated_tokens"], 0)
            while status()["requests"][0]["generated_tokens"] <= first["generated_tokens"]:
                pass
            for i, left in ((1, [0]), (0, [])):
                self.assertEqual(server.ask("/cancel", {"id": i}), (200, "{}"))
                self.assertEqual([r["id"] for r in status()["requests"]], left)
            events = response.read().decode().split("\n\n")
            self.assertEqual(events[-2:], ["data: [DONE]", ""])
            ends = [c for e in events[:-2] if e.startswith("data: ")
                    for c in json.loads(e[6:])["choices"] if c["finish_reason"]]
            self.assertEqual([(c["index"], c["finish_reason"]) for c in ends],
                             [(1, "stop"), (0, "stop")])
            connection.close()
            self.assertEqual(server.wait_for_metric("running", 0), 0)
            self.assertEqual(server.metrics()["cancelled_total"], 2)
            for body, code, sentence in (({"id": 0}, 404, "no text with the id 0 runs or waits"),
                                         ({"id": "0"}, 400, "not an object with an integer 'id'"),
                                         ("[", 400, "not an object with an integer 'id'")):
                got, error = server.error("/cancel", body)
                self.assertEqual(got, code)
                self.assertIn(sentence, error["message"])
            for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
                self.assertEqual(server.error("/cancel", {"id": 0}, headers=headers)[0], 403)
            many = {str(i): i for i in range(400_000)}
            before = time.monotonic()
            self.assertEqual(server.error("/cancel", many)[0], 413)
            self.assertLess(time.monotonic() - before, 30)
            time.sleep(2)  # ranks tell their numbers once a second
            ranks = status()["ranks"]
            self.assertEqual(len(ranks), 2)
            for r in ranks:
                self.assertLess(r["cache_bytes"], r["memory_bytes"])
                self.assertLessEqual(r["memory_bytes"], r["peak_bytes"])
                self.assertGreater(r["received_bytes"], 1000)
                self.assertLess(r["heard_seconds_ago"], 3)

    def test_a_signal(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            server = Serving("--mesh", "tp=2")
            begun = time.monotonic()
            got, printed = server.stop(number)
            self.assertEqual(got, code)
            self.assertIn("interrupted by " + signal.Signals(number).name, printed)
            self.assertLess(time.monotonic() - begun, 5)

    def test_clients_are_told_that_the_run_ends(self):
        server = Serving("--mesh", "tp=2", "--batch", "1")
        connection, response = server.open("POST", "/v1/completions", self.LONG)
        response.readline()
        self.assertEqual(server.stop()[0], 143)
        text = response.read().decode()
        self.assertIn('"message":"[run] interrupted by SIGTERM"', text)
        self.assertIn('"type":"server_error"', text)
        connection.close()

    def test_texts_go_on_after_sigterm(self):
        server = Serving("--mesh", "tp=2", "--batch", "1", "--drain", "60")
        connection, response = server.open("POST", "/v1/completions", {**self.LONG, "n": 8})
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20
        while server.ask("/health")[0] == 200 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(server.ask("/health"), (503, '{"status":"ending"}'))
        status, headers, text = server.ask_all("/v1/completions", {"prompt": "a"})
        self.assertEqual((status, headers["Retry-After"]), (503, "1"))
        self.assertIn("is about to end", text)
        self.assertIsNone(server.process.poll())
        events = response.read().decode().split("\n\n")
        self.assertEqual(events[-2:], ["data: [DONE]", ""])
        connection.close()
        self.assertEqual(server.process.wait(timeout=20), 143)
        self.assertIn("interrupted by SIGTERM", server.stop()[1])

    def test_the_time_to_go_on_is_limited(self):
        for seconds, signals in (("0.5", 1), ("600", 2)):
            server = Serving("--mesh", "tp=2", "--batch", "1", "--drain", seconds, "--model",
                             make_long_model())
            connection, response = server.open(
                "POST", "/v1/completions", {"prompt": "a", "max_tokens": 50000, "stream": True})
            response.readline()
            for _ in range(signals):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.4)
            text = response.read().decode()
            self.assertIn('"message":"[run] interrupted by SIGTERM"', text)
            connection.close()
            self.assertEqual(server.process.wait(timeout=20), 143)
            server.stop()

    def test_an_idle_server_does_little(self):
        with Serving("--mesh", "tp=2") as server:
            server.complete(max_tokens=2)

            def seconds():
                with open(f"/proc/{server.process.pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

            before = seconds()
            time.sleep(2)
            self.assertLess(seconds() - before, 0.4)

    def test_it_idles_longer_than_the_timeout(self):
        with Serving("--mesh", "tp=2", "--timeout", "0.6") as server:
            time.sleep(1.5)
            self.assertEqual(server.complete()["usage"]["completion_tokens"], 16)


class Flags(unittest.TestCase):
    def test_bad_input_ends_with_2(self):
        for program, flags, also in (
                (SERVE, ["--length", "65"], ""), (SERVE, ["--length", "1000000"], ""),
                (GENERATE, ["--prompt", "a", "--tokens", "100000"],
                 " and the length of the longest prompt is 1,")):
            done = subprocess.run([program, "--model", MODEL, *flags], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"[{flags[-2]}] it is {flags[-1]},{also} but the model's longest "
                          "sequence is 64", done.stderr)
        done = subprocess.run([SERVE, "--model", MODEL, "--drain", "1e7"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("[--drain] 10000000 s is more than 1000000 s", done.stderr)
        for flags, why in (
                (["--batch", "1000000000"],
                 "[--batch] 1000000000 is too large; write a whole number from 1 to 1048576"),
                (["--cache-tokens", "99999999999999"],
                 "[--cache-tokens] 99999999999999 is too large"),
                (["--json"], "[--json] a server ends by a signal, so it has no result to write"),
                (["--html", "page.html"], "[--html] a server ends by a signal")):
            done = subprocess.run([SERVE, "--model", MODEL, *flags], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)
        # Without a cache, a text may leave the sequence behind.
        done = subprocess.run([GENERATE, "--model", MODEL, "--prompt", "a", "--tokens", "65",
                               "--no-cache"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


class Processes(unittest.TestCase):
    """A rank in each process."""

    def start(self, *more):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
               "LOCAL_WORLD_SIZE": "2"}
        flags = ["--mesh", "tp=2", "--backend", "tcp", *more]
        self.other = subprocess.Popen(
            [SERVE, "--model", MODEL, "--port", "0", *flags], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **env, "RANK": "1", "LOCAL_RANK": "1"})
        self.addCleanup(self.other.communicate)
        self.addCleanup(self.other.kill)
        return Serving(*flags, env={**env, "RANK": "0", "LOCAL_RANK": "0"})

    def test_they_answer_as_threads_do(self):
        with Serving("--mesh", "tp=2") as threads:
            members = {"max_tokens": 30, "temperature": 1, "seed": 4, "n": 2}
            want = threads.complete(**members)["choices"]
        server = self.start()
        self.assertEqual(server.complete(**members)["choices"], want)
        server.stop()

    def seconds_until_told_of_a_stopped_rank(self, *flags):
        server = self.start(*flags)
        connection, response = server.open("POST", "/v1/completions", Ends.LONG)
        response.readline()
        self.other.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        text = response.read().decode()
        took = time.monotonic() - begun
        connection.close()
        self.assertIn("rank 1", json.loads(text.split("data: ")[-1])["error"]["message"])
        self.other.kill()
        self.assertEqual(server.process.wait(timeout=20), 1)
        server.stop()
        return took

    def test_clients_are_told_that_a_rank_does_not_answer(self):
        self.assertLess(self.seconds_until_told_of_a_stopped_rank("--timeout", "1"), 2)

    def test_a_rank_that_stops_holds_clients_for_ten_seconds(self):
        took = self.seconds_until_told_of_a_stopped_rank()
        self.assertGreater(took, 8)
        self.assertLess(took, 30)

    def test_sigterm_of_any_process_lets_texts_go_on(self):
        for which in ("main", "other", "both"):
            server = self.start("--drain", "60")
            connection, response = server.open("POST", "/v1/completions", {**Ends.LONG, "n": 8})
            response.readline()
            for name, process in (("main", server.process), ("other", self.other)):
                if which in (name, "both"):
                    process.send_signal(signal.SIGTERM)
            text = response.read().decode()
            self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-300:])
            connection.close()
            self.assertEqual(server.process.wait(timeout=20), 143, which)
            self.assertEqual(self.other.wait(timeout=20), 143, which)
            server.stop()

    def test_a_rank_that_dies_ends_the_requests_within_a_second(self):
        server = self.start()
        connection, response = server.open("POST", "/v1/completions", Ends.LONG)
        response.readline()
        self.other.kill()
        begun = time.monotonic()
        text = response.read().decode()
        self.assertLess(time.monotonic() - begun, 1)
        connection.close()
        error = json.loads(text.split("data: ")[-1])["error"]
        self.assertIn("rank 1", error["message"])
        server.process.wait(timeout=20)
        self.assertEqual(server.stop()[0], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
