"""Scores of rerankers and classifiers by the program, in batches and over HTTP: another program's numbers of the same
file, the forms of answers, what is refused."""
import json
import math
import os
import subprocess
import tempfile
import unittest

import common
from batch_job import Job, line
from common import MODEL, run
from server import Server

QUERY = "Who lived in the woods?"
TEXTS = ["Once upon a time there was a little fox who lived in the woods.", "The cat sat on the mat.", "Hello",
         "Ein Bär schläft — im Wald."]
# llama.cpp's server of August 2026, --reranking, on the file that make_ranker makes with `template`.
SCORES = [0.08111046999692917, 0.006504272576421499, 0.008799389936029911, 0.007231332361698151]
TOKENS = 235


class Scores(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for kind in ("template", "bare"):
            path = os.path.join(cls.folder.name, kind + ".gguf")
            subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], MODEL, path, kind], check=True)
            setattr(cls, kind, path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def score(self, model, *words):
        got = run("score", model, *words, "-q")
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        return got.stdout.decode()

    def near(self, got, want):
        """The other program rounds activations in its own way: the odds are as close as embeddings are."""
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertLess(abs(math.log(a / (1 - a)) - math.log(b / (1 - b))), 0.1)

    def rows(self, text):
        return [[float(number) for number in line.split()] for line in text.splitlines()]

    # ---- The program

    def test_against_another_program(self):
        rows = self.rows(self.score(self.template, "--query", QUERY, *TEXTS))
        self.near([row[0] for row in rows], SCORES)
        for row in rows:
            self.assertAlmostEqual(sum(row), 1, places=6)
        answer = json.loads(self.score(self.template, "--query", QUERY, *TEXTS, "--json"))
        self.assertEqual([r["index"] for r in answer["results"]], [0, 2, 3, 1])
        self.assertEqual([r["relevance_score"] for r in answer["results"]], [rows[i][0] for i in (0, 2, 3, 1)])
        self.assertEqual(answer["usage"], {"prompt_tokens": TOKENS, "total_tokens": TOKENS})

    def test_forms(self):
        logits, chances = (self.rows(self.score(self.template, TEXTS[0], "--scores", form))[0]
                           for form in ("logits", "probabilities"))
        whole = sum(math.exp(x) for x in logits)
        for x, chance in zip(logits, chances):
            self.assertAlmostEqual(math.exp(x) / whole, chance, places=5)
        (logit,), (chance,) = (self.rows(self.score(self.bare, TEXTS[0], "--scores", form))[0]
                               for form in ("logits", "probabilities"))
        self.assertAlmostEqual(1 / (1 + math.exp(-logit)), chance, places=5)
        self.assertEqual(self.score(self.template, "-f", "/dev/null"), "")

    def test_lines_of_a_file(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(("\n\n".join(TEXTS[:3]) + "\r\n" + TEXTS[3]).encode())
            f.flush()
            self.assertEqual(self.score(self.bare, "-f", f.name), self.score(self.bare, *TEXTS))

    def prompt_tokens(self, model, query, text):
        return json.loads(self.score(model, "--query", query, text, "--json"))["usage"]["prompt_tokens"]

    def test_nobody_writes_control_tokens(self):
        """A mark that a client spells is many tokens, in either place and with or without a template."""
        for model in (self.template, self.bare):
            plain = self.prompt_tokens(model, "a", "a")
            for query, text in (("<|im_end|>", "a"), ("a", "<|im_end|>")):
                self.assertGreater(self.prompt_tokens(model, query, text), plain + 3)

    def test_places_in_a_text_are_text(self):
        """What a client writes is not looked through for places."""
        self.assertGreater(self.prompt_tokens(self.template, "{document}", "b"),
                           self.prompt_tokens(self.template, "b", "b") + 3)

    def test_refused(self):
        for words, code, part in (((MODEL, "a"), 1, b"no head"), ((self.template,), 2, b"give texts"),
                                  ((self.template, ""), 1, b"empty"),
                                  ((self.template, "--query", "a", ""), 1, b"empty"),
                                  ((self.template, "a", "--query", "b", "--special"), 1, b"parse_special"),
                                  ((self.template, "a", "--scores", "best"), 2, b"scores"),
                                  ((self.template, "--query", "a", "word " * 100, "--ctx", "64"), 1, b"64"),
                                  ((self.template, "--query", "a", "x" * 100000, "--ctx", "64"), 1, b"never fit")):
            with self.subTest(words=[w[:20] for w in words]):
                got = run("score", *words, "-q")
                self.assertEqual((got.returncode, got.stdout), (code, b""))
                self.assertIn(part, got.stderr)
        got = run("score", self.template, "a", "", "-q", "--json")
        self.assertEqual(got.returncode, 1)
        self.assertEqual(got.stderr.decode(), f"runnel: {json.loads(got.stdout)['error']['message']}\n")
        self.assertIn(b"text 2: ", got.stderr)
        got = run("embed", self.template, "a", "-q")
        self.assertEqual(got.returncode, 1)
        self.assertIn(b"though for scores: choose a pooling", got.stderr)
        self.assertEqual(run("embed", self.template, "a", "-q", "--pooling", "last").returncode, 0)

    # ---- Batches

    def test_batch(self):
        bodies = (("/v1/rerank", {"query": QUERY, "documents": TEXTS, "top_n": 3, "return_documents": True}),
                  ("/v1/classify", {"input": TEXTS}), ("/v1/rerank", {"query": QUERY}),
                  ("/v1/rerank", {"query": QUERY, "documents": ["a"], "top_k": 3}),
                  ("/v1/rerank", {"query": QUERY, "documents": [{"txt": "a"}]}))
        job = Job([line(str(i), *body) for i, body in enumerate(bodies)], model=self.template)
        result = job.run()
        self.assertEqual(result.returncode, 0, result.stderr)
        answers = job.answers()
        checked = run("batch", self.template, job.input, "--check", "-q")
        self.assertEqual(len(checked.stdout.splitlines()), 3)
        ranked, classes = (a["response"]["body"] for a in answers[:2])
        self.near([r["relevance_score"] for r in ranked["results"]], [SCORES[i] for i in (0, 2, 3)])
        self.assertEqual([r["document"]["text"] for r in ranked["results"]], [TEXTS[i] for i in (0, 2, 3)])
        self.assertEqual([c["probs"] for c in classes["data"]], self.rows(self.score(self.template, *TEXTS)))
        self.assertEqual([c["label"] for c in classes["data"]],
                         ["yes" if c["probs"][0] > c["probs"][1] else "no" for c in classes["data"]])
        self.assertEqual([a["response"]["body"]["error"]["param"] for a in answers[2:]],
                         ["documents", "top_k", "documents[0].text"])

    # ---- The server

    def test_server(self):
        server = Server(model=self.template)
        body = {"query": QUERY, "documents": TEXTS}
        status, whole = server.post("/v1/rerank", body)
        self.assertEqual(status, 200)
        self.assertEqual((whole["object"], whole["model"]), ("list", "template"))
        self.assertEqual(whole["usage"], {"prompt_tokens": TOKENS, "total_tokens": TOKENS})
        self.assertEqual(whole["meta"], {"tokens": {"input_tokens": TOKENS}})
        self.near([r["relevance_score"] for r in whole["results"]], [SCORES[i] for i in (0, 2, 3, 1)])
        for path in ("/v2/rerank", "/v1/reranking", "/rerank", "/reranking"):
            self.assertEqual(server.post(path, body)[1]["results"], whole["results"])
        # Jina's and Cohere's: objects, the best alone, with their texts
        status, best = server.post("/v1/rerank", {"query": QUERY, "documents": [{"text": t} for t in TEXTS], "top_n": 1,
                                                  "return_documents": True, "model": "template", "more": 1})
        self.assertEqual(best["results"], [{**whole["results"][0], "document": {"text": TEXTS[0]}}])
        # text-embeddings-inference's
        bare = server.post("/rerank", {"query": QUERY, "texts": TEXTS, "return_text": True})[1]
        self.assertEqual([(r["index"], r["score"], r["text"]) for r in bare],
                         [(r["index"], r["relevance_score"], TEXTS[r["index"]]) for r in whole["results"]])
        status, classes = server.post("/v1/classify", {"input": TEXTS[0]})
        self.assertEqual((status, classes["data"][0]["num_classes"]), (200, 2))
        self.assertEqual(classes["data"][0]["probs"], self.rows(self.score(self.template, TEXTS[0]))[0])
        plain = server.post("/classify", {"input": TEXTS[0]})[1]  # vLLM's own path
        self.assertEqual((plain["object"], plain["data"]), (classes["object"], classes["data"]))
        self.refused_by(server)
        self.assertEqual(server.stop()[0], 0)

    def refused_by(self, server):
        for path, body, param in (("/v1/rerank", {"documents": ["a"]}, "query"),
                                  ("/v1/rerank", {"query": "a"}, "documents"),
                                  ("/v1/rerank", {"query": 1, "documents": ["a"]}, "query"),
                                  ("/v1/rerank", {"query": "a", "documents": "a"}, "documents"),
                                  ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
                                  ("/v1/rerank", {"query": "a", "documents": [1]}, "documents[0]"),
                                  ("/v1/rerank", {"query": "a", "documents": ["a", ""]}, "documents[1]"),
                                  ("/v1/rerank", {"query": "a", "documents": ["a"], "texts": ["a"]}, "texts"),
                                  ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
                                  ("/v1/rerank", {"query": "a", "documents": ["a"], "return_documents": 1},
                                   "return_documents"),
                                  ("/v1/rerank", {"query": "a", "documents": ["a"], "rank_fields": ["title", "text"]},
                                   "rank_fields"),
                                  ("/v1/rerank", {"query": "a", "documents": ["a"], "max_tokens_per_doc": "a"},
                                   "max_tokens_per_doc"),
                                  ("/v1/classify", {"input": []}, "input"), ("/v1/classify", {}, "input")):
            with self.subTest(path=path, body=body):
                status, answer = server.post(path, body)
                self.assertEqual((status, answer["error"]["param"]), (400, param))

    def test_server_without_a_head(self):
        server = Server()
        for path, body in (("/v1/rerank", {"query": "a", "documents": ["b"]}), ("/v1/classify", {"input": "a"})):
            status, answer = server.post(path, body)
            self.assertEqual((status, answer["error"]["type"]), (501, "not_supported_error"))
            self.assertIn("no head", answer["error"]["message"])
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    common.main("__main__")
