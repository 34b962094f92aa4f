#!/usr/bin/env python3
"""What runnel serve makes of a model's architecture: one that generates nothing, one of the host's, one with
experts."""
import json
import os
import pathlib
import random
import struct
import tempfile
import unittest

import common
import server
from common import MODEL

PROMPT = "The river runs past the mill"


def renamed(folder, name):
    """The model as one of another architecture, whose name has as many letters."""
    path = os.path.join(folder, name + ".gguf")
    pathlib.Path(path).write_bytes(pathlib.Path(MODEL).read_bytes().replace(b"llama", name.encode()))
    return path


def entries(data):
    """The keys of a GGUF file: {key: bytes of type and value}."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    at, found = 24, {}

    def text_end(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        begin = text_end(at)
        key = data[at + 8:begin].decode()
        kind = struct.unpack_from("<I", data, begin)[0]
        end = begin + 4
        if kind == 8:
            end = text_end(end)
        elif kind == 9:
            item, n = struct.unpack_from("<IQ", data, end)
            end += 12
            for _ in range(n if item == 8 else 0):
                end = text_end(end)
            end += 0 if item == 8 else n * sizes[item]
        else:
            end += sizes[kind]
        found[key] = data[begin:end]
        at = end
    return found


def with_experts(folder, width=32, blocks=2, experts=4, used=2):
    """A model of random weights with the vocabulary of the other, and experts in each block."""
    keys = {k: v for k, v in entries(pathlib.Path(MODEL).read_bytes()).items() if not k.startswith("llama.")}
    numbers = {"block_count": blocks, "context_length": 256, "embedding_length": width, "feed_forward_length": 32,
               "attention.head_count": 2, "expert_count": experts, "expert_used_count": used}
    keys.update({"llama." + k: struct.pack("<II", 4, v) for k, v in numbers.items()})
    keys["llama.attention.layer_norm_rms_epsilon"] = struct.pack("<If", 6, 1e-5)
    vocabulary = struct.unpack_from("<IIQ", keys["tokenizer.ggml.tokens"])[2]
    shapes = {"token_embd.weight": (width, vocabulary), "output_norm.weight": (width,)}
    for b in range(blocks):
        for name in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{b}.{name}.weight"] = (width,)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{b}.{name}.weight"] = (width, width)
        shapes[f"blk.{b}.ffn_gate_inp.weight"] = (width, experts)
        for name in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"):
            shapes[f"blk.{b}.{name}.weight"] = (32, 32, experts)
    directory, data, noise = b"", b"", random.Random(1)
    for name, dims in shapes.items():
        n = 1
        for d in dims:
            n *= d
        directory += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(dims))
        directory += struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", 0, len(data))
        data += struct.pack("<%df" % n, *(noise.gauss(0, 0.2) for _ in range(n)))
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys))
    head += b"".join(struct.pack("<Q", len(k)) + k.encode() + v for k, v in keys.items()) + directory
    path = os.path.join(folder, "experts.gguf")
    pathlib.Path(path).write_bytes(head + bytes(-len(head) % 32) + data)
    return path


class Architectures(unittest.TestCase):
    def test_nothing_is_generated(self):
        """Of models that see both ways, which embed texts."""
        def embedding(model):
            return json.loads(common.run("embed", model, "--json", PROMPT).stdout)["data"][0]["embedding"]

        for name in ("dream", "llada"):
            with tempfile.TemporaryDirectory() as folder:
                s = server.Server(model=renamed(folder, name))
                try:
                    for path, body in (("/v1/completions", {"prompt": PROMPT, "max_tokens": 4}),
                                       ("/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "stream": True}),
                                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]})):
                        with self.subTest(name=name, path=path):
                            status, answer = s.post(path, {"model": name, **body})
                            self.assertIn(status, (400, 422, 501), answer)
                            self.assertIn(f"architecture {name} attends in both directions", answer["error"]["message"])
                    status, answer = s.post("/v1/embeddings", {"model": name, "input": PROMPT})
                    self.assertEqual(status, 200, answer)
                    self.assertEqual(answer["data"][0]["embedding"], embedding(renamed(folder, name)))
                    self.assertNotEqual(answer["data"][0]["embedding"], embedding(MODEL))
                    self.assertEqual(s.get("/health")[0], 200)
                finally:
                    self.assertEqual(s.stop()[0], 0)

    def test_architecture_of_ones_own(self):
        body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0}
        with tempfile.TemporaryDirectory() as folder:
            model, texts, warned = renamed(folder, "moose"), [], []
            for path, options in ((MODEL, []), (model, ["--architecture", "moose=llama"]), (model, [])):
                s = server.Server(*options, model=path)
                try:
                    status, answer = s.post("/v1/completions", {"model": pathlib.Path(path).stem, **body})
                    self.assertEqual(status, 200, answer)
                    texts.append(answer["choices"][0]["text"])
                finally:
                    code, said = s.stop()
                    self.assertEqual(code, 0)
                    warned.append(said.count("architecture 'moose' is not known"))
            self.assertEqual(texts[0], texts[1])
            self.assertNotEqual(texts[0], texts[2])  # halves are rotated, not neighbours
            self.assertEqual(warned, [0, 0, 1])
            refused = common.run("serve", model, "--port", "0", "--architecture", "moose=deer")
            self.assertEqual((refused.returncode, refused.stdout), (2, b""))
            self.assertIn(b"no architecture 'deer'", refused.stderr)

    def test_use_of_experts(self):
        with tempfile.TemporaryDirectory() as folder:
            s = server.Server(model=with_experts(folder))
            try:
                self.assertEqual(s.metric("runnel_expert_selections_total"), 0)
                status, answer = s.post("/v1/completions", {"model": "experts", "prompt": PROMPT, "max_tokens": 5,
                                                            "ignore_eos": True})
                self.assertEqual(status, 200, answer)
                rows = answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"] - 1
                text = s.get("/metrics")[1].decode()
                for name, kind in (("expert_selections_total", "counter"), ("experts_unused", "gauge"),
                                   ("expert_busiest_ratio", "gauge")):
                    self.assertEqual(text.count(f"# TYPE runnel_{name} {kind}\n"), 1, text)
                # Two blocks, of whose experts each row chooses two; of the last one only rows whose logits are wanted.
                self.assertEqual(s.metric("runnel_expert_selections_total"),
                                 2 * rows + 2 * answer["usage"]["completion_tokens"])
                self.assertIn(s.metric("runnel_experts_unused"), range(8))
                self.assertTrue(1 <= s.metric("runnel_expert_busiest_ratio") <= 2)  # at most every row: 4 / 2
            finally:
                self.assertEqual(s.stop()[0], 0)
        s = server.Server()
        try:
            self.assertNotIn("runnel_expert", s.get("/metrics")[1].decode())
        finally:
            s.stop()


if __name__ == "__main__":
    common.main("__main__")
