#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tokenizers of tests/nn/text/data and what Hugging Face makes of text.

  tools/tokenizer_goldens.py DIR             writes what is derived from them
  tools/tokenizer_goldens.py DIR --line N    prints the ids of a line, by case

Needs the Python packages `tokenizers` and `sentencepiece`. DIR has

  lines.json     the fragments of the test's lines: line(n) below joins some of
                 them, and tests/nn/text/tokenizer_test.cc does the same
  NAME.json      a tokenizer, trained here unless it is there: unigram and
                 WordPiece models come out differently each time
  cases.json     for each case, a tokenizer and a patch of it (RFC 7386), and the
                 number of lines
  CASE.golden    six bytes for each line: a hash of the ids that encode() gives,
                 and the lower half of a hash of their decode()
"""

import collections
import json
import pathlib
import struct
import sys
import tempfile

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LINES = 10_000
MANY = 1_000  # lines of a case that varies another one
# Characters for the charsmap: a part of NFKC, and some of its own.
CHARSMAP = {"\ufb01": "fi", "\uff21": "A", "\uff22": "B", "\u2122": "TM",
            "\u00a0": " ", "\u3000": " ", "\u2028": " ", "\t": " ", "\n": " ",
            "\r": " ", "\u0001": "", "\u200b": "", "\ufeff": "", "e\u0301": "é",
            "\u00bd": "1\u20442", "\u2460": "1", "\u338f": "kg", "\u0f0c": "\u0f0b",
            "\u00a8": " \u0308", "\U0001f468\u200d": "man-"}


class Lines:
    def __init__(self, folder):
        data = json.loads((folder / "lines.json").read_text())
        self.groups = [[x.encode() for x in group] for group in data["groups"]]
        self.groups.append([bytes.fromhex(x) for x in data["broken"]])

    def line(self, n):
        """Bytes of line n; not all are UTF-8."""
        state = n

        def draw(below):
            nonlocal state
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            return (state >> 33) % below

        draw(2)
        result = b""
        for _ in range(1 + draw(12)):
            group = draw(len(self.groups) + 1)
            if group < len(self.groups):
                result += self.groups[group][draw(len(self.groups[group]))]
            else:
                # Blocks that Unicode completed long ago: libraries differ in
                # the versions that they know.
                c = draw(0x1200)
                result += chr(c if c < 0x600 else c + 0x1A00).encode()
            result += (b"", b" ", b" ", b"  ")[draw(4)]
        return result

    def text(self, n):
        return self.line(n).decode("utf-8", "replace")


def hash_of(data):
    """FNV-1a, 32 bits."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 % 2**32
    return h


def charsmap():
    import sentencepiece
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rules.tsv").write_text("".join(
            " ".join(f"{ord(c):X}" for c in a) + "\t" +
            " ".join(f"{ord(c):X}" for c in b) + "\n"
            for a, b in sorted(CHARSMAP.items())))
        (folder / "text").write_text("some words to train on\n" * 9)
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / "m"),
            vocab_size=20, hard_vocab_limit=False, minloglevel=2,
            normalization_rule_tsv=str(folder / "rules.tsv"))
        from sentencepiece import sentencepiece_model_pb2
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString((folder / "m.model").read_bytes())
        return model.normalizer_spec.precompiled_charsmap


def byte_level(corpus, size=900):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|begin|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool>", normalized=False, lstrip=True),
                  AddedToken("whole", single_word=True, normalized=True),
                  AddedToken("Café", normalized=True, rstrip=True),
                  AddedToken("        ", normalized=False),
                  AddedToken("  \n", normalized=False)])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
            special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))])])
    return t


def sentencepiece_bpe(corpus, size=900):
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True,
                             unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"] +
        [f"<0x{b:02X}>" for b in range(256)]))
    # Bytes are tokens of the model only.
    file = json.loads(t.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    t = Tokenizer.from_str(json.dumps(file))
    t.normalizer = normalizers.Sequence([
        normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    t.add_tokens(["<tool>", AddedToken("whole", single_word=True)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="$A $B",
        special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def unigram(corpus, size=700):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(charsmap()), normalizers.Strip(),
        normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus, trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, unk_token="<unk>",
        special_tokens=["<pad>", "</s>", "<unk>", "<mask>"]))
    t.add_tokens([AddedToken("whole", single_word=True, normalized=True)])
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A $B", special_tokens=[("</s>", 1)])
    return t


def word_piece(corpus, size=900):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def steps(kind, *list_):
    return {"type": "Sequence", kind: list(list_)}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior,
            "invert": invert}


TO_BYTES = {"type": "ByteLevel", "add_prefix_space": False,
            "trim_offsets": True, "use_regex": False}


def metaspace(scheme, split_):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme,
            "split": split_}


CASES = {
    "byte_level": ("byte_level", {}, LINES),
    "sentencepiece_bpe": ("sentencepiece_bpe", {}, LINES),
    "unigram": ("unigram", {}, LINES),
    "word_piece": ("word_piece", {}, LINES),
    "gpt2": ("byte_level", {
        "normalizer": None, "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
            "use_regex": True},
        "post_processor": {
            "type": "RobertaProcessing", "sep": ["<|im_end|>", 2],
            "cls": ["<|begin|>", 1], "trim_offsets": True,
            "add_prefix_space": True}, "model": {"ignore_merges": False}}, MANY),
    "gpt4o": ("byte_level", {
        "normalizer": {"type": "NFKC"}, "pre_tokenizer": steps(
            "pretokenizers", split({"Regex": GPT4O}, "Removed", True),
            TO_BYTES)}, MANY),
    "deepseek": ("byte_level", {
        "normalizer": None, "pre_tokenizer": steps(
            "pretokenizers", split({"Regex": r"\p{N}{1,3}"}, "Isolated"),
            split({"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "Isolated"),
            {"type": "Punctuation", "behavior": "MergedWithPrevious"},
            {"type": "Digits", "individual_digits": True}, TO_BYTES)}, MANY),
    "scripts": ("byte_level", {
        "normalizer": None, "pre_tokenizer": steps(
            "pretokenizers", split({"Regex": r"\p{Han}+"}, "Isolated"),
            split({"Regex": r"\w+"}, "MergedWithNext"), TO_BYTES)}, MANY),
    "bytes_first": ("byte_level", {
        "normalizer": {"type": "NFD"}, "pre_tokenizer": steps(
            "pretokenizers", TO_BYTES, split({"String": "Ġ"}, "MergedWithNext"),
            {"type": "Digits", "individual_digits": False})}, MANY),
    "words": ("byte_level", {
        "normalizer": steps("normalizers", {"type": "NFKD"},
                            {"type": "StripAccents"}, {"type": "Lowercase"}),
        "pre_tokenizer": steps(
            "pretokenizers", {"type": "WhitespaceSplit"},
            split({"Regex": r"\b|e"}, "MergedWithPrevious"), TO_BYTES)}, MANY),
    "mistral": ("sentencepiece_bpe", {
        "normalizer": None, "pre_tokenizer": metaspace("first", False),
        "decoder": metaspace("first", False),
        "model": {"fuse_unk": False, "byte_fallback": False}}, MANY),
    "first": ("sentencepiece_bpe", {
        "normalizer": {"type": "Strip", "strip_left": True,
                       "strip_right": True},
        "pre_tokenizer": metaspace("first", True)}, MANY),
    "whitespace": ("sentencepiece_bpe", {
        "normalizer": {"type": "Strip", "strip_left": True,
                       "strip_right": False},
        "pre_tokenizer": steps(
            "pretokenizers", {"type": "Whitespace"},
            split({"String": "e"}, "Contiguous")), "decoder": None}, MANY),
    "suffix": ("sentencepiece_bpe", {
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"end_of_word_suffix": "e", "continuing_subword_prefix": "t"},
        "decoder": {"type": "BPEDecoder", "suffix": "e"}}, 0),
    "albert": ("unigram", {
        "normalizer": {"normalizers": [{"type": "NFKD"}, {"type": "Lowercase"}]},
        "pre_tokenizer": steps(
            "pretokenizers", {"type": "WhitespaceSplit"},
            metaspace("always", True)),
        "decoder": metaspace("never", True)}, MANY),
    "cased": ("word_piece", {
        "normalizer": {"lowercase": False, "handle_chinese_chars": False,
                       "clean_text": False},
        "model": {"max_input_chars_per_word": 6},
        "decoder": {"cleanup": False}}, MANY),
    "stripped": ("word_piece", {
        "normalizer": {"strip_accents": True, "lowercase": False},
        "decoder": steps("decoders", {"type": "Replace", "content": "",
                                      "pattern": {"String": "##"}},
                         {"type": "Strip", "content": "e", "start": 1,
                          "stop": 0})}, MANY),
}


def patched(value, patch):
    """RFC 7386, except that null is a value."""
    if not isinstance(patch, dict) or not isinstance(value, dict) or (
            "type" in patch):
        return patch
    return {**value, **{k: patched(value.get(k), v) for k, v in patch.items()}}


def main():
    if len(sys.argv) not in (2, 4) or sys.argv[2:3] not in ([], ["--line"]):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    lines = Lines(folder)
    if not sys.argv[2:]:
        corpus = [lines.text(n) for n in range(LINES, LINES + 4000)]
        # Other characters are unknown to the models.
        common = {c for c, _ in collections.Counter(
            "".join(corpus)).most_common(300)}
        corpus = ["".join(c if c in common else " " for c in x) for x in corpus]
        for make in byte_level, sentencepiece_bpe, unigram, word_piece:
            path = folder / f"{make.__name__}.json"
            if not path.exists():
                make(corpus).save(str(path), pretty=False)
        (folder / "cases.json").write_text("[\n" + ",\n".join(
            json.dumps({"name": name, "file": file, "patch": patch, "lines": n})
            for name, (file, patch, n) in CASES.items() if n) + "\n]\n")
    for name, (file, patch, count) in CASES.items():
        if not count:
            continue
        text = patched(json.loads((folder / f"{file}.json").read_text()), patch)
        tokenizer = Tokenizer.from_str(json.dumps(text))
        if sys.argv[2:]:
            encoded = tokenizer.encode(lines.text(int(sys.argv[3])))
            print(name, *zip(encoded.ids, encoded.tokens))
            continue
        golden = b""
        for n in range(count):
            ids = tokenizer.encode(lines.text(n)).ids
            text = tokenizer.decode(ids)
            golden += struct.pack(
                "<IH", hash_of(b"".join(struct.pack("<I", x) for x in ids)),
                hash_of(text.encode()) & 0xFFFF)
        (folder / f"{name}.golden").write_bytes(golden)
        print(f"{name}: {count} lines")


if __name__ == "__main__":
    main()
