#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers makes of chats by chat templates, for tests/nn/text/data.

  tools/chat_template_goldens.py DIR                       writes chats.golden
  tools/chat_template_goldens.py DIR --show TEMPLATE CHAT  prints one text
  tools/chat_template_goldens.py DIR --take FOLDER NAME... copies NAME.jinja

Needs the Python package `transformers`. DIR has

  templates.json   templates of models, by name
  chats.json       messages, tools and variables, by name
  chats.golden     for each template and chat: its names, and a hash of the text
                   that tests/nn/text/chat_template_test.cc repeats, or "error"

The clock of strftime_now() stands at NOW, in UTC.
"""

import datetime
import json
import os
import pathlib
import sys
import time

NOW = 1764201600


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def hash_of(text):
    """FNV-1a, 32 bits."""
    h = 0x811C9DC5
    for byte in text.encode():
        h = (h ^ byte) * 0x01000193 % 2**32
    return h


def text_of(template, chat):
    """The text, or the exception."""
    from transformers.utils import chat_template_utils
    chat_template_utils.datetime = Clock
    try:
        result = chat_template_utils.render_jinja_template(
            [chat["messages"]], tools=chat.get("tools"), chat_template=template,
            add_generation_prompt=chat["add_generation_prompt"],
            bos_token="<s>", eos_token="</s>", **chat.get("variables", {}))
        return result[0][0]
    except Exception as e:  # a template raises whatever it runs into
        return e


def write(path, entries):
    """A JSON object with one entry a line."""
    path.write_text("{\n" + ",\n".join(
        json.dumps(k) + ": " + json.dumps(v) for k, v in entries.items()) + "\n}\n")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else sys.exit(__doc__)
    os.environ["TZ"] = "UTC"
    time.tzset()
    path = folder / "templates.json"
    templates = json.loads(path.read_text()) if path.exists() else {}
    chats = json.loads((folder / "chats.json").read_text())
    command = sys.argv[2:3]
    if command == ["--take"] and len(sys.argv) > 4:
        for name in sys.argv[4:]:
            templates[name] = (
                pathlib.Path(sys.argv[3]) / f"{name}.jinja").read_text()
        write(path, templates)
    elif command == ["--show"] and len(sys.argv) == 5:
        print(text_of(templates[sys.argv[3]], chats[sys.argv[4]]))
    elif command:
        sys.exit(__doc__)
    else:
        golden = ""
        for name, template in templates.items():
            for chat in chats:
                text = text_of(template, chats[chat])
                golden += f"{name} {chat} "
                golden += "error\n" if isinstance(text, Exception) else (
                    f"{hash_of(text):08x}\n")
        (folder / "chats.golden").write_text(golden)


if __name__ == "__main__":
    main()
