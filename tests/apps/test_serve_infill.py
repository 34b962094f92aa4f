#!/usr/bin/env python3
"""Gaps that a model fills: /infill, suffix in completions, in lines of a batch and of runnel run. What the prompt is
made of is put together here once more, token by token; the text is that of a request with these tokens."""
import json
import os
import pathlib
import tempfile
import unittest

import common
from batch_job import TEXT, Job, bodies, line
from common import MODEL, run
from server import Server

KEYS = {"pre": 2040, "suf": 2041, "mid": 2042, "rep": 2043, "sep": 2044}
BEFORE, BEHIND = "def f(a):\n    b = ", "\n    return b\n"
GREEDY = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
FILES = [{"filename": "a.py", "text": "c = 1\n"}, {"text": "d = <|im_start|>2\n"}]

# What llama.cpp's server (0c1e570 of November 2026) answers with the model without a token in front of texts: body,
# tokens_evaluated, content, stop_type, the last of its tokens. The two likeliest tokens are never nearer than 0.1.
STORY = "Once upon a time"
AS_LLAMA = [
    ({"input_prefix": STORY, "input_suffix": " The end."}, 27, " to 10.", "eos", 2047),
    ({"input_prefix": STORY + ",", "prompt": " a wren", "input_suffix": " in the wood."}, 32, " to hear today?", "eos",
     2047),
    ({"input_prefix": STORY, "input_suffix": ""}, 24, " e a r e r", "eos", 2047),
    ({"input_prefix": "The <|im_start|>", "input_suffix": " is red."}, 34, " g e r", "eos", 2047),
    ({"input_prefix": STORY, "input_suffix": " The end.", "stop": ["."]}, 27, " to 10", "word", 46),
    ({"input_prefix": STORY, "input_suffix": " The end.", "n_predict": 3}, 27, " to 10.", "limit", 46),
]
AS_LLAMA_WITHOUT_FILES = [
    ({"input_prefix": STORY, "input_suffix": " The end."}, 10, " to to hear today?", "eos", 2047),
    ({"input_prefix": STORY, "input_suffix": " The end.", "input_extra": [{"text": "c = 1\n"}]}, 30,
     " to to hear today?", "eos", 2047),
    ({"input_prefix": STORY + ",", "prompt": " a wren", "input_suffix": " in the wood."}, 15, " to hear today?", "eos",
     2047),
    ({"input_prefix": "", "input_suffix": " was kind."}, 6, " to hear today?", "eos", 2047),
    ({"input_prefix": STORY, "input_suffix": ""}, 7, ".", "eos", 2047),
]

BAD = [
    ("/infill", {"input_prefix": "a"}, 400, "missing_required_parameter", "input_suffix"),
    ("/infill", {"input_suffix": "a"}, 400, "missing_required_parameter", "input_prefix"),
    ("/infill", {"input_prefix": 5, "input_suffix": "a"}, 400, "invalid_type", "input_prefix"),
    ("/infill", {"input_prefix": "a", "input_suffix": ["a"]}, 400, "invalid_type", "input_suffix"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "prompt": [1]}, 400, "invalid_type", "prompt"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": 5}, 400, "invalid_type", "input_extra"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": ["x"]}, 400, "invalid_type",
     "input_extra[0]"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": "x"}, 400, "invalid_type", "n_predict"),
    ("/infill", {"input_prefix": "word " * 20000, "input_suffix": "b"}, 400, "context_length_exceeded", None),
    (TEXT, {"prompt": "a", "suffix": 5}, 400, "invalid_type", "suffix"),
    (TEXT, {"prompt": [1, 2], "suffix": "b"}, 400, "unsupported_value", "prompt"),
    (TEXT, {"prompt": "a", "suffix": "b" * 1000000}, 400, "context_length_exceeded", None),
]


def with_keys(folder, names):
    """The model with these tokens around gaps."""
    return common.with_metadata(os.path.join(folder, "gaps.gguf"), {f"tokenizer.ggml.{k}": v for k, v in names.items()})


def without_bos(folder):
    """The model without a token in front of texts."""
    whole = bytearray(pathlib.Path(MODEL).read_bytes())
    key = b"tokenizer.ggml.add_bos_token"
    at = whole.index(key) + len(key) + 4
    assert whole[at - 4:at + 1] == b"\x07\0\0\0\x01"
    whole[at] = 0
    path = pathlib.Path(folder, "plain.gguf")
    path.write_bytes(whole)
    return path


class Infill(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.model = with_keys(cls.folder, {f"fim_{k}_token_id": v for k, v in KEYS.items()})
        cls.server = Server(model=cls.model)
        cls.bos = cls.tokens("", add_special=True)

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    @classmethod
    def tokens(cls, text, **more):
        return cls.server.post("/tokenize", {"content": text, **more})[1]["tokens"]

    def prompt(self, before, behind, files=None):
        all_files = []
        if files is not None:
            all_files = [KEYS["rep"]] + self.tokens("myproject\n")
            for file in files:
                all_files += [KEYS["sep"]] + self.tokens(file.get("filename", "tmp") + "\n") + self.tokens(file["text"])
            all_files += [KEYS["sep"]] + self.tokens("filename\n")
        return (self.bos + all_files + [KEYS["pre"]] + self.tokens(before) + [KEYS["suf"]] + self.tokens(behind) +
                [KEYS["mid"]])

    def want(self, *parts, **more):
        status, body = self.server.post(TEXT, {"prompt": self.prompt(*parts), **GREEDY, **more})
        self.assertEqual(status, 200, body)
        return body

    def test_suffix(self):
        want = self.want(BEFORE, BEHIND)
        status, got = self.server.post(TEXT, {"prompt": BEFORE, "suffix": BEHIND, **GREEDY})
        self.assertEqual((status, got["choices"][0]["text"]), (200, want["choices"][0]["text"]))
        self.assertEqual(got["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"])
        self.assertTrue(want["choices"][0]["text"])
        events = self.server.events(TEXT, {"prompt": BEFORE, "suffix": BEHIND, **GREEDY})
        self.assertEqual("".join(c["choices"][0]["text"] for _, c in events[:-1]), want["choices"][0]["text"])
        _, several = self.server.post(TEXT, {"prompt": [BEFORE, ""], "suffix": BEHIND, "echo": True, **GREEDY})
        self.assertEqual([c["text"] for c in several["choices"]],
                         [BEFORE + want["choices"][0]["text"], self.want("", BEHIND)["choices"][0]["text"]])
        for none in ("", None):
            self.assertEqual(self.server.post(TEXT, {"prompt": BEFORE, "suffix": none, **GREEDY})[1]["choices"],
                             self.server.post(TEXT, {"prompt": BEFORE, **GREEDY})[1]["choices"])

    def test_infill(self):
        for files in ([], FILES):
            with self.subTest(files=files):
                want = self.want(BEFORE, BEHIND, files)
                body = {"input_prefix": BEFORE[:10], "prompt": BEFORE[10:], "input_suffix": BEHIND, "n_predict": 12,
                        "temperature": 0, "ignore_eos": True, "input_extra": files}
                status, got = self.server.post("/infill", body)
                self.assertEqual((status, got["content"]), (200, want["choices"][0]["text"]))
                self.assertEqual(got["tokens_evaluated"], want["usage"]["prompt_tokens"])
                events = self.server.events("/infill", body)
                self.assertEqual("".join(e["content"] for _, e in events), got["content"])
                if not files:
                    del body["input_extra"]
                    self.assertEqual(self.server.post("/infill", body)[1]["content"], got["content"])

    def test_ollama(self):
        want = self.want(BEFORE, BEHIND, ignore_eos=False, top_k=40, top_p=0.9)
        body = {"prompt": BEFORE, "suffix": BEHIND, "options": {"temperature": 0, "num_predict": 12}}
        status, got = self.server.post("/api/generate", {**body, "stream": False})
        self.assertEqual((status, got["response"]), (200, want["choices"][0]["text"]))
        self.assertEqual((got["prompt_eval_count"], got["eval_count"]),
                         (want["usage"]["prompt_tokens"], want["usage"]["completion_tokens"]))
        _, data, _ = self.server.ask("POST", "/api/generate", json.dumps(body))
        lines = [json.loads(text) for text in data.decode().splitlines()]
        self.assertEqual("".join(x["response"] for x in lines), got["response"])
        self.assertEqual([x["done"] for x in lines], [False] * (len(lines) - 1) + [True])
        self.assertIn("insert", self.server.post("/api/show", {"model": "gaps"})[1]["capabilities"])
        self.assertEqual(self.server.post("/api/generate", {**body, "system": "Be short"})[0], 400)
        self.assertEqual(self.server.post("/api/generate", {**body, "suffix": ["a"]})[0], 400)

    def test_a_batch_and_the_program_have_the_same(self):
        body = {"prompt": BEFORE, "suffix": BEHIND, **GREEDY}
        want = self.server.post(TEXT, body)[1]["choices"]
        self.assertEqual(bodies([line("a", TEXT, body)], model=self.model)[0]["choices"], want)
        self.assertEqual(Job([line("a", TEXT, body)], "--check", model=self.model).run().returncode, 0)
        got = run("run", self.model, "-p", BEFORE, "--suffix", BEHIND, "-n", 12, "--temperature", 0, "--ignore-eos",
                  "-q")
        self.assertEqual((got.returncode, got.stdout.decode()), (0, want[0]["text"]))
        got = run("run", self.model, "--suffix", BEHIND, "-n", 12, "--temperature", 0, "--ignore-eos", "-q")
        self.assertEqual(got.stdout.decode(), self.want("", BEHIND)["choices"][0]["text"])
        self.assertEqual(run("run", self.model, "--tokens", "1,2", "--suffix", BEHIND).returncode, 2)

    def test_older_keys_and_no_files(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(model=with_keys(folder, {"prefix_token_id": 2040, "suffix_token_id": 2041,
                                                     "middle_token_id": 2042}))
            body = {"input_prefix": BEFORE, "input_suffix": BEHIND, "n_predict": 12, "temperature": 0,
                    "ignore_eos": True}
            got = server.post("/infill", body)[1]
            line_between = server.post("/infill", {**body, "input_extra": FILES})[1]
            self.assertEqual(server.stop()[0], 0)
        self.assertEqual(got["content"], self.want(BEFORE, BEHIND)["choices"][0]["text"])
        more = sum((self.tokens("\n\n--- snippet ---\n\n") + self.tokens(file["text"]) for file in FILES), [])
        self.assertEqual(line_between["tokens_evaluated"], len(self.prompt(BEFORE, BEHIND)) + len(more))

    def test_as_llama_server(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        plain = without_bos(folder)
        for keys, cases in ((KEYS, AS_LLAMA), ({k: KEYS[k] for k in ("pre", "suf", "mid")}, AS_LLAMA_WITHOUT_FILES)):
            model = common.with_metadata(os.path.join(folder, f"{len(keys)}.gguf"),
                                         {f"tokenizer.ggml.fim_{k}_token_id": v for k, v in keys.items()}, plain)
            server = Server(model=model)
            for body, n_prompt, text, stop, last in cases:
                with self.subTest(body=body, keys=len(keys)):
                    _, got = server.post("/infill", {"n_predict": 16, "temperature": 0, "return_tokens": True, **body})
                    self.assertEqual((got["tokens_evaluated"], got["content"], got["stop_type"], got["tokens"][-1]),
                                     (n_prompt, text, stop, last))
                    self.assertEqual((len(got["tokens"]), got["has_new_line"]), (got["tokens_predicted"], False))
            self.assertEqual(server.stop()[0], 0)

    def test_another_file_ends_an_answer(self):
        """What would begin another file is no text of the gap's."""
        _, got = self.server.post(TEXT, {"prompt": BEFORE, "suffix": BEHIND, "max_tokens": 5, "temperature": 0,
                                         "logit_bias": {str(KEYS["sep"]): 100}})
        self.assertEqual((got["choices"][0]["text"], got["choices"][0]["finish_reason"]), ("", "stop"))

    def test_a_model_without(self):
        server = Server(model=MODEL)
        for path, body in ((TEXT, {"prompt": "a", "suffix": "b"}),
                           ("/infill", {"input_prefix": "a", "input_suffix": "b"})):
            status, got = server.post(path, body)
            self.assertEqual(status, 400, got)
            self.assertIn("does not fill gaps", got["error"]["message"])
        self.assertEqual(server.stop()[0], 0)
        result = run("run", MODEL, "-p", "a", "--suffix", "b")
        self.assertEqual((result.returncode, b"does not fill gaps" in result.stderr), (1, True))
        result = Job([line("a", TEXT, {"prompt": "a", "suffix": "b"})], "--check").run()
        self.assertEqual((result.returncode, b"does not fill gaps" in result.stdout), (3, True))

    def test_bad_requests(self):
        for path, body, status, code, param in BAD:
            with self.subTest(path=path, body=str(body)[:80]):
                got, answer = self.server.post(path, body)
                self.assertEqual((got, answer["error"]["code"], answer["error"]["param"]), (status, code, param))


if __name__ == "__main__":
    common.main("__main__")
