"""Encoders by the program and over HTTP: BERT (Devlin et al. 2018, arXiv 1810.04805) as a straight line of
double-precision arithmetic is the judge of a small model with a WordPiece vocabulary and a head that ranks.

    x = norm(token + first type + position)    x = norm(x + attention(x))    x = norm(x + W2 . gelu(W1 . x + b1) + b2)

An embedding is that of the first position, of length 1; a score is cls.output . tanh(cls . first + bias) + bias."""
import json
import math
import os
import pathlib
import random
import struct
import tempfile
import unittest

import common
import server

WIDTH, HEADS, FEED, BLOCKS, CONTEXT = 16, 2, 24, 2, 32
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581the", "\u2581river", "\u2581run", "s", "\u2581past", "\u2581mill",
          "\u2581.",
          "\u2581ol", "d"]
TEXTS = {"The river runs past the mill.": [2, 4, 5, 6, 7, 8, 4, 9, 10, 3],  # small letters, words in pieces
         "Old mill": [2, 11, 12, 9, 3],
         "the \u00f6ld X": [2, 4, 11, 12, 1, 3]}  # an accent goes, a stranger is one token
QUERY, QUERY_TOKENS = "river mill", [5, 9]


def tensors():
    shapes = {"token_embd.weight": (len(TOKENS), WIDTH), "token_types.weight": (2, WIDTH),
              "position_embd.weight": (CONTEXT, WIDTH), "cls.weight": (WIDTH, WIDTH), "cls.output.weight": (1, WIDTH)}
    norms, biases = ["token_embd_norm"], {"cls.bias": WIDTH, "cls.output.bias": 1}
    for b in range(BLOCKS):
        for name in ("q", "k", "v", "output"):
            shapes[f"blk.{b}.attn_{name}.weight"] = (WIDTH, WIDTH)
            biases[f"blk.{b}.attn_{name}.bias"] = WIDTH
        shapes[f"blk.{b}.ffn_up.weight"], shapes[f"blk.{b}.ffn_down.weight"] = (FEED, WIDTH), (WIDTH, FEED)
        biases[f"blk.{b}.ffn_up.bias"], biases[f"blk.{b}.ffn_down.bias"] = FEED, WIDTH
        norms += [f"blk.{b}.attn_output_norm", f"blk.{b}.layer_output_norm"]
    noise = random.Random(7)
    made = {name: [[noise.gauss(0, 0.4) for _ in range(cols)] for _ in range(rows)]
            for name, (rows, cols) in shapes.items()}
    for name in norms:
        made[name + ".weight"] = [[noise.gauss(1, 0.2) for _ in range(WIDTH)]]
        biases[name + ".bias"] = WIDTH
    for name, n in biases.items():
        made[name] = [[noise.gauss(0, 0.2) for _ in range(n)]]
    rounded = {}
    for name, rows in made.items():
        form = f"<{len(rows[0])}f"
        rounded[name] = [list(struct.unpack(form, struct.pack(form, *row))) for row in rows]
    return rounded


def write(path, weights):
    def text(string):
        return struct.pack("<Q", len(string.encode())) + string.encode()

    keys = {"general.architecture": struct.pack("<I", 8) + text("bert"),
            "bert.attention.layer_norm_epsilon": struct.pack("<If", 6, 1e-12),
            "bert.attention.causal": struct.pack("<I?", 7, False),
            "tokenizer.ggml.model": struct.pack("<I", 8) + text("bert"),
            "tokenizer.ggml.tokens": struct.pack("<IIQ", 9, 8, len(TOKENS)) + b"".join(map(text, TOKENS)),
            "tokenizer.ggml.token_type": struct.pack(f"<IIQ{len(TOKENS)}i", 9, 5, len(TOKENS), 3, 2, 3, 3,
                                                     *[1] * (len(TOKENS) - 4))}
    numbers = {"bert.block_count": BLOCKS, "bert.context_length": CONTEXT, "bert.embedding_length": WIDTH,
               "bert.feed_forward_length": FEED, "bert.attention.head_count": HEADS, "bert.pooling_type": 2,
               "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.cls_token_id": 2,
               "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.padding_token_id": 0,
               "tokenizer.ggml.token_type_count": 2}
    keys.update({key: struct.pack("<II", 4, value) for key, value in numbers.items()})
    directory, data = b"", b""
    for name, rows in weights.items():
        dims = [len(rows[0])] + ([len(rows)] if len(rows) > 1 else [])
        directory += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
        data += b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)
        data += bytes(-len(data) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(weights), len(keys))
    head += b"".join(text(key) + value for key, value in keys.items()) + directory
    pathlib.Path(path).write_bytes(head + bytes(-len(head) % 32) + data)


class Bert:
    def __init__(self, weights):
        self.weights = weights

    def linear(self, stem, x):
        bias = self.weights[stem + ".bias"][0]
        return [sum(w * v for w, v in zip(row, x)) + b for row, b in zip(self.weights[stem + ".weight"], bias)]

    def norm(self, stem, x):
        mean = sum(x) / len(x)
        root = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-12)
        weight, bias = (self.weights[f"{stem}.{part}"][0] for part in ("weight", "bias"))
        return [(v - mean) / root * w + b for v, w, b in zip(x, weight, bias)]

    def attend(self, q, keys, values):
        out, size = [], WIDTH // HEADS
        for at in range(0, WIDTH, size):
            scores = [sum(a * b for a, b in zip(q[at:at + size], k[at:at + size])) / math.sqrt(size) for k in keys]
            weights = [math.exp(s - max(scores)) for s in scores]
            out += [sum(w * v[i] for w, v in zip(weights, values)) / sum(weights) for i in range(at, at + size)]
        return out

    def block(self, b, rows):
        q, k, v = ([self.linear(f"blk.{b}.attn_{part}", x) for x in rows] for part in "qkv")
        out = []
        for x, query in zip(rows, q):
            mixed = self.linear(f"blk.{b}.attn_output", self.attend(query, k, v))
            x = self.norm(f"blk.{b}.attn_output_norm", [a + c for a, c in zip(x, mixed)])
            up = [0.5 * u * (1 + math.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u ** 3)))
                  for u in self.linear(f"blk.{b}.ffn_up", x)]
            down = self.linear(f"blk.{b}.ffn_down", up)
            out.append(self.norm(f"blk.{b}.layer_output_norm", [a + c for a, c in zip(x, down)]))
        return out

    def first(self, tokens):
        tables = [self.weights[name + ".weight"] for name in ("token_embd", "token_types", "position_embd")]
        rows = [self.norm("token_embd_norm", [sum(parts) for parts in zip(tables[0][t], tables[1][0], tables[2][i])])
                for i, t in enumerate(tokens)]
        for b in range(BLOCKS):
            rows = self.block(b, rows)
        return rows[0]

    def embedding(self, tokens):
        x = self.first(tokens)
        return [v / math.sqrt(sum(u * u for u in x)) for v in x]

    def score(self, tokens):
        return self.linear("cls.output", [math.tanh(v) for v in self.linear("cls", self.first(tokens))])[0]


class Encoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model, weights = os.path.join(cls.folder.name, "encoder.gguf"), tensors()
        write(cls.model, weights)
        bert = Bert(weights)
        cls.embeddings = [bert.embedding(tokens) for tokens in TEXTS.values()]
        cls.scores = [bert.score([2, *QUERY_TOKENS, 3, *tokens[1:]]) for tokens in TEXTS.values()]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def near(self, got, want):
        """Keys and values are kept with 16 bits."""
        self.assertEqual(len(got), len(want))
        self.assertLess(sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want), 1e-6)

    def good(self, *words):
        got = common.run(*words)
        self.assertEqual(got.returncode, 0, got.stderr)
        return got.stdout

    def test_program(self):
        told = json.loads(self.good("embed", self.model, "--json", *TEXTS))
        for row, want in zip(told["data"], self.embeddings):
            self.near(row["embedding"], want)
        self.assertEqual(told["usage"]["prompt_tokens"], sum(map(len, TEXTS.values())))
        rows = self.good("score", self.model, "--query", QUERY, *TEXTS, "-q").decode().split()
        self.near(list(map(float, rows)), self.scores)

    def test_what_is_refused(self):
        for words in (("run", self.model, "-p", "the river"),
                      ("logits", self.model, "--tokens", "4,5", "-o", "/dev/null"),
                      ("perplexity", self.model, __file__)):
            got = common.run(*words)
            self.assertEqual((got.returncode, got.stdout), (1, b""), words)
            self.assertIn(b"a model of architecture bert gives embeddings, and no logits", got.stderr)
        got = common.run("embed", self.model, "the " * CONTEXT)
        self.assertEqual((got.returncode, got.stdout), (1, b""))
        self.assertIn(f"{CONTEXT} fit".encode(), got.stderr)

    def test_server(self):
        s = server.Server(model=self.model)
        try:
            status, answer = s.post("/v1/embeddings", {"model": "encoder", "input": list(TEXTS)})
            self.assertEqual(status, 200, answer)
            for row, want in zip(answer["data"], self.embeddings):
                self.near(row["embedding"], want)
            status, answer = s.post("/v1/rerank", {"model": "encoder", "query": QUERY, "documents": list(TEXTS)})
            self.assertEqual(status, 200, answer)
            best = sorted(range(len(TEXTS)), key=lambda i: -self.scores[i])
            self.assertEqual([r["index"] for r in answer["results"]], best)
            for path, body in (("/v1/completions", {"prompt": "the river", "max_tokens": 4}),
                               ("/v1/chat/completions", {"messages": [{"role": "user", "content": "the river"}]})):
                status, answer = s.post(path, {"model": "encoder", **body})
                self.assertIn(status, (400, 422, 501), answer)
                self.assertIn("gives embeddings, and no logits", answer["error"]["message"])
            self.assertEqual(s.get("/health")[0], 200)
        finally:
            self.assertEqual(s.stop()[0], 0)


if __name__ == "__main__":
    common.main("__main__")
