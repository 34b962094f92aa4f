#!/usr/bin/env python3
"""What the commands compute, against what other programs computed (../shared) and against each other."""
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

import common
from common import MODEL, ROOT, SHARED, run

ORACLES = SHARED / "oracles"
STORIES = SHARED / "models/stories260K.gguf"
TINY = SHARED / "models/runnel-tiny-F16.gguf"


def read_logits(path):
    data = pathlib.Path(path).read_bytes()
    n, vocab = struct.unpack_from("<II", data)
    tokens = struct.unpack_from(f"<{n}i", data, 8)
    values = struct.unpack_from(f"<{n * vocab}f", data, 8 + 4 * n)
    assert len(data) == 8 + 4 * n + 4 * n * vocab
    return tokens, [values[i * vocab:(i + 1) * vocab] for i in range(n)]


def nlls(tokens, rows):
    """Of every token after the first, from the rows before them."""
    out = []
    for row, token in zip(rows, tokens[1:]):
        top = max(row)
        out.append(math.log(math.fsum(math.exp(v - top) for v in row)) + top - row[token])
    return out


def nmse(rows, others):
    return (math.fsum((a - b) ** 2 for x, y in zip(rows, others) for a, b in zip(x, y)) /
            math.fsum(b * b for y in others for b in y))


class Results(unittest.TestCase):
    def good(self, *args, **more):
        result = run(*args, **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_greedy_story(self):
        want = (ORACLES / "stories260K.greedy.txt").read_bytes().rstrip()
        for args in ([], ["--reference"], ["--batch", "8", "--threads", "1"]):
            got = self.good("run", STORIES, "-q", "-n", "400", "--tokens", "1", *args).stdout # from BOS alone
            self.assertEqual(got[:len(want)], want)

    def test_empty_prompt(self):
        for args in ([], ["-p", ""], ["-f", "/dev/null"]):
            result = run("run", STORIES, "-q", "-n", "4", *args)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(b"the prompt is empty", result.stderr)
        self.assertEqual(run("run", STORIES, "-p", "x", "--tokens", "1").returncode, 2)

    def test_drafts_change_no_text(self):
        text = "Tom saw a cat. Tom saw a dog. Tom saw a cat. Tom saw a dog. Tom saw"
        drafted = 0
        for args in (["-n", "80"], ["-n", "80", "--temperature", "0.9", "--seed", "3", "--repetition-penalty", "1.1"]):
            want = self.good("run", MODEL, "-p", text, *args).stdout
            result = self.good("run", MODEL, "-p", text, *args, "--draft", "ngram", "--draft-max", "5")
            self.assertEqual(result.stdout, want)
            last = self.good("run", MODEL, "-p", text, *args, "--draft", "ngram", "--json").stdout.splitlines()[-1]
            usage = json.loads(last)["usage"]
            drafted += usage.get("drafted_tokens", 0)
            self.assertLessEqual(usage.get("accepted_tokens", 0), usage.get("drafted_tokens", 0))
        self.assertGreater(drafted, 0)
        result = run("run", MODEL, "-p", text, "--draft", "oracle") # a file's name
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"oracle: cannot be opened", result.stderr)
        self.assertEqual(run("run", MODEL, "-p", text, "--draft-max", "17").returncode, 2)

    def test_figures_on_stderr(self):
        result = self.good("run", STORIES, "-n", "5", "--tokens", "1")
        self.assertRegex(result.stderr.decode(),
                         r"^prompt: 1 token \(0 cached\), .*\nanswer: 5 tokens, .*, the first after .* ms\n$")

    def test_figures_behind_the_answer(self):
        """Where both go to one file a newline stands between them; else the answer is exact."""
        with tempfile.TemporaryFile() as file:
            subprocess.run([common.program, "run", MODEL, "-p", "Once upon a time", "-n", "5"], stdout=file,
                           stderr=file,
                           timeout=common.PATIENCE, check=True)
            file.seek(0)
            both = file.read()
        alone = self.good("run", MODEL, "-p", "Once upon a time", "-n", "5")
        self.assertTrue(both.startswith(alone.stdout + b"\nprompt: "), both)
        self.assertTrue(alone.stderr.startswith(b"prompt: "), alone.stderr)

    def test_figures_of_a_cached_prompt(self):
        """The speed of what little is left to compute says nothing."""
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                result = self.good("run", MODEL, "-p", "Once upon a time there was a fox. " * 8, "-n", "1",
                                   "--cache-dir",
                                   folder)
        self.assertRegex(result.stderr.decode(), r"^prompt: \d+ tokens \([1-9]\d* cached, \d+ %\), read in [\d.]+ ms\n")

    def test_prompt_file_and_stdin(self):
        text = "Once upon a time, there was\n"
        with tempfile.NamedTemporaryFile() as file:
            file.write(text.encode())
            file.flush()
            want = self.good("run", MODEL, "-p", text, "-n", "20").stdout
            self.assertEqual(self.good("run", MODEL, "-f", file.name, "-n", "20").stdout, want)
            self.assertEqual(self.good("run", MODEL, "-f", "-", "-n", "20", stdin=text.encode()).stdout, want)

    def test_stop(self):
        whole = self.good("run", MODEL, "-p", "Once upon a time", "-q").stdout.decode()
        for stop in ("harbour", ". ", "mped"):
            got = self.good("run", MODEL, "-p", "Once upon a time", "-q", "--stop", "never seen", "--stop", stop)
            self.assertEqual(got.stdout.decode(), whole.split(stop)[0])

    def test_deadline(self):
        args = ["run", MODEL, "-p", "Once", "--ignore-eos"]
        result = run(*args, "--deadline", "0.001")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"deadline", result.stderr)
        self.assertEqual(self.good(*args, "-n", "5", "--deadline", "3600").stdout, self.good(*args, "-n", "5").stdout)

    def test_seed(self):
        args = ["run", MODEL, "-p", "Once upon a time", "-n", "40", "-q", "--temperature", "1.2"]
        texts = [self.good(*args, "--seed", seed).stdout for seed in (1, 1, 2, 3)]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(len(set(texts)), 3)

    def test_run_json(self):
        args = ["run", MODEL, "-p", "Once upon a time", "-n", "30"]
        out = self.good(*args, "--json", "--logprobs", "3").stdout.decode()
        lines = [json.loads(line) for line in out.splitlines()]
        tokens = [line for line in lines if line["type"] == "token"]
        self.assertEqual("".join(t["text"] for t in tokens), self.good(*args, "-q").stdout.decode())
        self.assertEqual(lines[0]["type"], "progress")
        self.assertEqual(lines[0]["done"], lines[0]["total"])
        for t in tokens:
            self.assertEqual(len(t["top"]), 3)
            self.assertEqual((t["top"][0]["id"], t["top"][0]["logprob"]), (t["id"], t["logprob"]))  # greedy
            self.assertLessEqual(t["logprob"], 0)
        last = lines[-1]
        self.assertEqual((last["type"], last["finish"]), ("done", "length"))
        self.assertEqual(last["usage"], {"prompt_tokens": 5, "cached_tokens": 0, "completion_tokens": 30})
        self.assertEqual(len(tokens), 30)
        self.assertLessEqual(last["timings"]["first_token_us"], last["timings"]["end_us"])
        self.assertFalse({"stop", "stop_token"} & set(last))
        text = "".join(t["text"] for t in tokens)
        self.assertNotIn("id", last)
        for more, told in ((["--stop", "no such text", "--stop", text[9:12]], {"stop": 1}),
                           (["--stop-token", tokens[7]["id"]], {"stop_token": tokens[7]["id"]})):
            last = json.loads(self.good(*args, "--json", *more).stdout.splitlines()[-1])
            self.assertEqual(last["finish"], "stop")
            self.assertEqual({key: last[key] for key in ("stop", "stop_token") if key in last}, told)

    def test_the_token_that_ends_an_answer(self):
        """It has no event of its own, and is in the last one: what would come if it did not end the answer."""
        args = ["run", MODEL, "--special", "-p", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "--json",
                "--logprobs", "2"]
        last = json.loads(self.good(*args).stdout.splitlines()[-1])
        self.assertEqual((last["finish"], "stop_token" in last), ("stop", False))
        n = last["usage"]["completion_tokens"]
        went_on = [json.loads(line) for line in self.good(*args, "--ignore-eos", "-n", n).stdout.splitlines()]
        token = [event for event in went_on if event["type"] == "token"][n - 1]
        self.assertEqual({key: last[key] for key in ("id", "logprob", "top")},
                         {key: token[key] for key in ("id", "logprob", "top")})
        plain = json.loads(self.good(*args[:-2]).stdout.splitlines()[-1])
        self.assertEqual((plain["id"], "logprob" in plain), (last["id"], False))

    def test_behind_a_full_context(self):
        """Each token says how often the context was full by then; the end says it in words, too."""
        keep, ctx, n = 5, 64, 150
        args = ["run", MODEL, "-p", "Once upon a time", "-n", n, "--ignore-eos", "--ctx", ctx, "--context-keep", keep]
        *tokens, done = [json.loads(row) for row in run(*args, "--json").stdout.decode().splitlines()]
        seen, shifts, gone = done["usage"]["prompt_tokens"], 0, 0
        for token in (t for t in tokens if t["type"] == "token" and t["id"] >= 0):
            if seen == ctx:
                seen = keep + (ctx - keep) // 2
                shifts, gone = shifts + 1, gone + ctx - seen
            seen += 1
            self.assertEqual(token.get("shifts", 0), shifts)
        self.assertGreater(shifts, 2)
        self.assertEqual((done["usage"]["shifts"], done["usage"]["shifted_tokens"]), (shifts, gone))
        self.assertEqual(done["usage"]["completion_tokens"], n)
        self.assertIn(f"context: full {shifts} times, {gone} tokens of the text went", run(*args).stderr.decode())

    def test_logits(self):
        for model, name in ((STORIES, "stories260K"), (TINY, "runnel-tiny-F16"),
                            (SHARED / "models/runnel-tiny-draft-F16.gguf", "runnel-tiny-draft-F16")):
            tokens, want = read_logits(ORACLES / f"{name}.logits")
            with tempfile.NamedTemporaryFile() as out:
                self.good("logits", model, "--tokens", ",".join(map(str, tokens)), "-q", "-o", out.name)
                got_tokens, got = read_logits(out.name)
                piped = self.good("logits", model, "--tokens", ",".join(map(str, tokens)), "-q", "-o", "-")
                self.assertEqual(piped.stdout, pathlib.Path(out.name).read_bytes())
            self.assertEqual(got_tokens, tokens)
            error = math.fsum((a - b) ** 2 for x, y in zip(got, want) for a, b in zip(x, y))
            power = math.fsum(b * b for y in want for b in y)
            limit = 1e-6
            self.assertTrue(error / power <= limit, f"{name}: NMSE {error / power:.3g}")

    def test_perplexity_of_another_program(self):
        """llama.cpp's logits of a text give its mean NLL; ours must be that of the same text."""
        tokens, rows = read_logits(ORACLES / "runnel-tiny-F16.logits")
        want = nlls(tokens, rows)
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.text_of(tokens[1:]))
            file.flush()
            got = json.loads(self.good("perplexity", TINY, file.name, "--json", "-q").stdout)
        mean = math.fsum(want) / len(want)
        spread = math.sqrt(math.fsum((x - mean) ** 2 for x in want) / (len(want) - 1) / len(want))
        self.assertEqual(got["tokens"], len(want))
        self.assertAlmostEqual(got["nll"], mean, delta=2e-3 * mean)
        self.assertAlmostEqual(got["nll_error"], spread, delta=1e-2 * spread)
        self.assertAlmostEqual(got["perplexity"], math.exp(got["nll"]), delta=1e-6 * math.exp(mean))

    def text_of(self, tokens):
        """The program's own words for ids that occur in the held-out text."""
        lines = self.good("tokenize", TINY, "-f", ORACLES / "runnel-tiny.heldout.txt").stdout.decode().splitlines()
        pieces = dict(line.split("\t") for line in lines)
        return "".join(pieces[str(t)] for t in tokens).encode()

    def test_perplexity_in_windows(self):
        """Windows score what their logits say, and a model foretells the kind of text it was trained on."""
        text = (ORACLES / "runnel-tiny.heldout.txt").read_bytes()[:400]
        ids = [int(i) for i in self.good("tokenize", TINY, "-f", "-", "--ids", stdin=text).stdout.split()]
        context, bos, want = 64, 2045, []
        for at in range(0, len(ids), context - 2):
            window = [bos] + ids[at:at + context - 2]
            file = self.good("logits", TINY, "--tokens", ",".join(map(str, window)), "-q", "-o", "-").stdout
            with tempfile.NamedTemporaryFile() as out:
                out.write(file)
                out.flush()
                want += nlls(*read_logits(out.name))
        got = json.loads(self.good("perplexity", TINY, "-", "--ctx", context, "--json", "-q", stdin=text).stdout)
        self.assertEqual(got["tokens"], len(ids))
        self.assertAlmostEqual(got["nll"], math.fsum(want) / len(want), delta=1e-5)
        self.assertLess(got["perplexity"], 10)
        plain = self.good("perplexity", TINY, "-", "--ctx", context, "-q", stdin=text).stdout.decode()
        self.assertRegex(plain, rf"^tokens +{len(ids)}\nmean NLL +{got['nll']:.6f} ± [\d.]+\n"
                                r"perplexity +[\d.]+ ± [\d.]+\n$")

    def test_tokenize(self):
        for out in sorted((ORACLES / "tokenizers").glob("*.out")):
            model, source = out.with_suffix(""), out.with_suffix(".inp")
            if run("tokenize", model, "-p", "a").stderr.endswith(b"is not supported\n"):
                self.assertIn("bert", model.name)  # WordPiece: no causal model has it
                continue
            texts = source.read_bytes().split(b"\n__ggml_vocab_test__\n")[:-1]
            wanted = out.read_text().split("\n")[:-1]
            self.assertEqual(len(texts), len(wanted))
            for i in range(0, len(texts), 9):
                with self.subTest(model=model.name, i=i):
                    got = self.good("tokenize", model, "-f", "-", "--ids", stdin=texts[i]).stdout.decode()
                    self.assertEqual(got.split(), wanted[i].split())

    def test_without_a_vocabulary(self):
        model = ORACLES / "arch/apertus-dense.gguf"
        for args in (["tokenize", model, "-p", "hi"], ["logits", model, "-p", "hi", "-o", "-"],
                     ["perplexity", model, "-"], ["run", model, "hi"]):
            result = run(*args, "-q", stdin=b"Once upon a time")
            self.assertEqual((result.returncode, result.stderr.decode()),
                             (1, "runnel: the model has no text vocabulary\n"), args)

    def test_tokenize_lines(self):
        lines = self.good("tokenize", MODEL, "-p", "Once\\ upon\n<|im_end|>", "--special").stdout.decode().splitlines()
        ids = self.good("tokenize", MODEL, "-p", "Once\\ upon\n<|im_end|>", "--special", "--ids").stdout.decode()
        pairs = [line.split("\t") for line in lines]
        self.assertEqual([p[0] for p in pairs], ids.split())
        self.assertEqual("".join(p[1] for p in pairs), "Once\\\\ upon\\n<|im_end|>")

    def test_tokenize_spaced_words(self):
        """A vocabulary whose words have their space in front: each token is shown with it."""
        lines = self.good("tokenize", SHARED / "models/stories260K.gguf", "-p", "a b").stdout.decode().splitlines()
        self.assertEqual([line.split("\t")[1] for line in lines], [" a", " b"])
        shown = self.good("tokenize", SHARED / "models/stories260K.gguf", "-p", "a b", "--show").stdout.decode()
        self.assertEqual(shown, "[ a][ b]\n")

    def test_info(self):
        info = json.loads(self.good("info", MODEL, "--json", "--ctx", "512", "--kv-type", "f32").stdout)
        meta = {entry["key"]: entry for entry in info["metadata"]}
        self.assertEqual((info["architecture"], info["name"], info["trained_tokens"]), ("llama", "runnel-tiny", 1024))
        self.assertEqual(meta["tokenizer.ggml.tokens"]["count"], 2048)
        self.assertLess(len(meta["tokenizer.ggml.tokens"]["value"]), 20)
        self.assertIs(meta["tokenizer.ggml.add_bos_token"]["value"], True)
        self.assertEqual(meta["llama.block_count"]["value"], 6)
        self.assertIn("<|im_start|>", meta["tokenizer.chat_template"]["value"])
        self.assertEqual(sum(t["bytes"] for t in info["tensors"]), info["memory"]["weight_bytes"])
        self.assertEqual(sum(f["bytes"] for f in info["formats"]), info["memory"]["weight_bytes"])
        self.assertEqual(sum(f["elements"] for f in info["formats"]), info["parameters"])
        self.assertEqual(sum(f["tensors"] for f in info["formats"]), len(info["tensors"]))
        # 6 layers x (keys and values) x 4 heads x 32 x 4 bytes
        self.assertEqual(info["memory"]["kv_bytes_per_token"], 6 * 2 * 4 * 32 * 4)
        self.assertEqual(info["memory"]["kv_bytes"], 512 * info["memory"]["kv_bytes_per_token"])
        self.assertIn(b"token_embd.weight", self.good("info", MODEL).stdout)
        for kv_type, row in ("f16", 64), ("bf16", 64), ("fp8", 32), ("q8", 34), ("q4", 18), ("q3", 14):
            info = json.loads(self.good("info", MODEL, "--json", "--kv-type", kv_type).stdout)
            self.assertEqual(info["memory"]["kv_bytes_per_token"], 6 * 2 * 4 * row)

    def test_plan(self):
        """The blocks of llama, as its paper has them; of the last one only the rows that are wanted, and what they add
        to."""
        block = ("RMS_NORM MATMUL MATMUL MATMUL ROPE ROPE KV_STORE ATTENTION MATMUL ADD "
                 "RMS_NORM MATMUL MATMUL GATE MATMUL ADD").split()
        lines = self.good("info", MODEL, "--plan").stdout.decode().splitlines()
        ops = [re.sub(r".* = ", "", line).split()[0].rstrip(",") for line in lines[1:]]
        self.assertEqual(lines[0], f"plan of llama: 6 blocks, {len(ops)} ops, embedding 256, vocabulary 2048")
        self.assertEqual(sorted(ops), sorted(["EMBED", *6 * block, "SELECT", "SELECT", "RMS_NORM", "TAP", "MATMUL"]))
        self.assertEqual([op for op in ops if op in ("KV_STORE", "ATTENTION", "GATE")],
                         6 * ["KV_STORE", "ATTENTION", "GATE"])
        named = {name for line in lines[1:] for name in re.findall(r", ([a-z0-9_.]+\.weight) ", line)}
        tensors = json.loads(self.good("info", MODEL, "--json").stdout)["tensors"]
        self.assertEqual(named, {t["name"] for t in tensors})
        attention = next(line for line in lines if " ATTENTION " in line)
        self.assertRegex(attention,
                         r"^x\d+ \[256\] = ATTENTION x\d+, layer 0, 8 heads of 32 on 4 of 32, scale 0\.17677")
        told = json.loads(self.good("info", MODEL, "--plan", "--json").stdout)["plan"]
        self.assertEqual(told.splitlines(), lines)

    def test_architectures(self):
        lines = self.good("info", "--architectures").stdout.decode().splitlines()
        told = json.loads(self.good("info", "--architectures", "--json").stdout)["architectures"]
        self.assertEqual([line.split(None, 1) for line in lines], [[a["name"], a["features"]] for a in told])
        page = (ROOT / "docs" / "ARCHITECTURES.md").read_text()
        self.assertEqual(re.findall(r"^\| ([a-z0-9_.-]+) \| (.*) \| .* \| .* \|$", page, re.M)[1:],
                         [(a["name"], a["features"]) for a in told])

    def test_whole_texts(self):
        """Of models that see both ways logits and embeddings are computed, of a whole text at once; nothing is
        generated."""
        text = ",".join(map(str, range(3, 33)))
        other = text.replace(",32", ",90")  # the last token
        with tempfile.TemporaryDirectory() as folder:
            for name in ("llama", "dream", "llada"):
                model, out = os.path.join(folder, name), os.path.join(folder, name + ".logits")
                pathlib.Path(model).write_bytes(pathlib.Path(MODEL).read_bytes().replace(b"llama", name.encode()))
                rows, first = [], []
                for words in ("The river", "The river runs"):
                    first.append(self.good("embed", model, words, "--pooling", "first").stdout)
                self.assertEqual(first[0] == first[1], name == "llama")
                for args in ([text], [other],
                             [text, "--reference"]):  # 8 rows of logits a step: each text comes four times
                    self.good("logits", model, "-o", out, "--tokens", *args)
                    rows.append(read_logits(out)[1])
                self.assertLess(nmse(rows[0], rows[2]), 1e-4)
                self.assertEqual(rows[0][0] == rows[1][0], name == "llama")  # the first row sees the last token, or not
                if name == "llama":
                    continue
                for args in (["run", model, "-p", "The river"], ["run", model, "--tokens", "1,2"],
                             ["perplexity", model, __file__]):
                    refused = run(*args)
                    self.assertEqual((refused.returncode, refused.stdout), (1, b""), args)
                    self.assertIn(f"architecture {name} attends in both directions", refused.stderr.decode())
                refused = run("logits", model, "--tokens", text, "-o", out, "--batch", "16")
                self.assertEqual(refused.returncode, 1)
                self.assertIn("the prompt has 30 tokens, 16 fit", refused.stderr.decode())
                refused = run("embed", model, "The river " * 20, "--batch", "16")
                self.assertEqual((refused.returncode, refused.stdout), (1, b""))
                self.assertIn("tokens, 16 fit", refused.stderr.decode())

    def test_architecture_of_ones_own(self):
        args = ["-p", "The river", "-n", "12", "-q"]
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "m.gguf")
            whole = pathlib.Path(MODEL).read_bytes()
            at = whole.index(b"llama", whole.index(b"general.architecture"))  # a name of the same length
            whole = whole[:at] + b"moose" + whole[at + 5:]
            pathlib.Path(model).write_bytes(whole.replace(b"llama.", b"moose."))
            wanted = self.good("run", MODEL, *args)
            mine = self.good("run", model, *args, "--architecture", "moose=qwen3,-neox,-head-norm")
            self.assertEqual((mine.stdout, mine.stderr), (wanted.stdout, wanted.stderr))
            warned = run("run", model, "-p", "The river", "-n", "1").stderr.decode()
            self.assertEqual(warned.count("architecture 'moose' is not known"), 1, warned)
            self.assertIn(b"plan of moose: ", self.good("info", model, "--plan").stdout)
            lines = self.good("info", model, "--plan", "--architecture", "moose=llama").stdout.splitlines()
            self.assertEqual(lines[1:], self.good("info", MODEL, "--plan").stdout.splitlines()[1:])
            for bad, word in (("moose", "NAME=LIKE"), ("moose=", "NAME=LIKE"), ("moose=llama,,", "NAME=LIKE"),
                              ("llama=qwen3", "the library knows"), ("moose=deer", "no architecture 'deer'"),
                              ("moose=llama,wings", "no feature 'wings'"),
                              ("moose=llama,activation=x", "no activation 'x'")):
                for command in (["run", model, *args], ["info", model]):
                    with self.subTest(bad=bad, command=command[0]):
                        refused = run(*command, "--architecture", bad)
                        self.assertNotEqual(refused.returncode, 0)
                        self.assertIn(word, refused.stderr.decode())

    def test_info_of_chats(self):
        info = json.loads(self.good("info", MODEL, "--json").stdout)
        self.assertEqual(info["sampling"], {})
        self.assertEqual([t["name"] for t in info["templates"]], [""])
        self.assertEqual((info["templates"][0]["system"], info["templates"][0]["error"]), (True, None))
        self.assertIn(b"recommended sampling: none\nchat templates\n  (unnamed): ", self.good("info", MODEL).stdout)
        self.assertIn(b"chat templates: none\n", self.good("info", STORIES).stdout)
        with tempfile.TemporaryDirectory() as folder:
            model = common.with_metadata(os.path.join(folder, "m.gguf"), {
                "general.sampling.temp": 0.5, "general.sampling.top_k": 20, "general.sampling.top_p": 2.0,
                "general.sampling.mirostat": 2, "general.sampling.mirostat_tau": 3.0,
                "general.sampling.xtc_threshold": 7.0,
                "tokenizer.chat_template.tools": "{{ messages[0].content }}{{ tools }}",
                "tokenizer.chat_template.bad": "{{ messages[0]"})
            info = json.loads(self.good("info", model, "--json").stdout)
            self.assertEqual(info["sampling"], {"temperature": 0.5, "top_k": 20, "mirostat": 2, "mirostat_tau": 3})
            knows = {t["name"]: t for t in info["templates"]}
            self.assertEqual((knows["tools"]["tools"], knows[""]["tools"]), (True, False))
            self.assertIn("line 1", knows["bad"]["error"])
            text = self.good("info", model).stdout.decode()
            self.assertIn("recommended sampling: temperature 0.5, top-k 20, mirostat 2, mirostat-ent 3\n", text)
            self.assertRegex(text, r"  tools: 36 bytes; system role, tools; answers: plain\n")
            self.assertRegex(text, r"  bad: 14 bytes; malformed: line 1")
            self.assertEqual(json.loads(self.good("template", model, "--show", "--json").stdout), info["templates"])
            self.assertIn(self.good("template", model, "--show").stdout.decode(), text)

    def test_info_of_many(self):
        for model in sorted((ORACLES / "arch").glob("*.gguf"))[::4] + sorted((ORACLES / "tokenizers").glob("*.gguf")):
            with self.subTest(model=model.name):
                json.loads(self.good("info", model, "--json").stdout)
                self.good("info", model)


class Chat(unittest.TestCase):
    def test_lines(self):
        text = b"Hello\n\nWhat is 2+2?\n/nonsense\n/clear\nHello\n/exit\nnever\n"
        result = run("chat", MODEL, "-n", "60", stdin=text)
        self.assertEqual(result.returncode, 2, result.stderr)  # of /nonsense, which stops nothing
        answers = result.stdout.decode().splitlines()
        self.assertEqual(len(answers), 3, answers)
        self.assertEqual(answers[0], answers[2])  # /clear forgets
        self.assertEqual(result.stderr.decode().count("runnel:"), 1)
        self.assertIn("'/nonsense' is not a command", result.stderr.decode())

    def test_a_session_equals_one_prompt(self):
        first, second = run("chat", MODEL, "-n", "60", "--temperature", "0",
                            stdin=b"Hello\nWhat is 2 plus 3?\n").stdout.decode().splitlines()
        prompt = f"<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n{first}<|im_end|>\n" \
                 "<|im_start|>user\nWhat is 2 plus 3?<|im_end|>\n<|im_start|>assistant\n"
        whole = run("run", MODEL, "--special", "-q", "-n", "60", "--stop", "<|im_end|>", "-p", prompt)
        self.assertEqual(whole.stdout.decode(), second)

    def test_typed_marks_stay_text(self):
        typed = run("chat", MODEL, "-n", "30", stdin=b"Hello<|im_end|>\n")
        plain = run("chat", MODEL, "-n", "30", stdin=b"Hello\n")
        self.assertEqual((typed.returncode, plain.returncode), (0, 0))
        prompt = "<|im_start|>user\nHello<|im_end|><|im_end|>\n<|im_start|>assistant\n"
        forged = run("run", MODEL, "--special", "-q", "-n", "30", "-p", prompt)
        self.assertNotEqual(typed.stdout.rstrip(b"\n"), forged.stdout)

    def test_plain_turns(self):
        result = run("chat", STORIES, "-n", "20", "--system", "A talk.", stdin=b"Hello\nAgain\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("plain User:/Assistant:", result.stderr.decode())
        self.assertGreater(len(result.stdout), 10)

    def test_context_full(self):
        text = b"Hello\n" + b"And again. " * 30 + b"\nHello\n"
        result = run("chat", MODEL, "--ctx", "64", "-n", "20", stdin=text)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr.decode(),
                         r"^runnel: the prompt has \d+ tokens, 63 fit\. Nothing is lost: /drop .*\n$")
        self.assertEqual(len(result.stdout.splitlines()), 2)  # the turn that was too long has done nothing

    def test_json(self):
        result = run("chat", MODEL, "-n", "20", "--json", "-q", stdin=b"Hello\n")
        events = [json.loads(line) for line in result.stdout.splitlines()]
        plain = run("chat", MODEL, "-n", "20", "-q", stdin=b"Hello\n").stdout.decode()
        self.assertEqual("".join(e["text"] for e in events if e["type"] == "token") + "\n", plain)
        self.assertEqual(events[-1]["type"], "done")

    def test_a_turn_that_failed_leaves_no_trace(self):
        template = "{% if messages|length > 1 and 'bad' in messages[-1].content %}" \
                   "{{ raise_exception('Not so.') }}{% endif %}" \
                   "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write(template)
            f.flush()
            bad = run("chat", MODEL, "-n", "20", "--template", f.name, "-q", stdin=b"Hello\nbad\nAgain\n")
            good = run("chat", MODEL, "-n", "20", "--template", f.name, "-q", stdin=b"Hello\nAgain\n")
        self.assertEqual((bad.returncode, good.returncode), (1, 0), bad.stderr)
        self.assertEqual(bad.stdout, good.stdout)
        self.assertEqual(bad.stderr, b"runnel: Not so.\n")

    def test_bad_files(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write("{not json")
            f.flush()
            result = run("chat", MODEL, "--tools", f.name, "-q", stdin=b"Hello\n")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr.decode(), r"^runnel: tools: ")
            result = run("chat", MODEL, "--template", f.name, "-q", "--variables", "[]", stdin=b"Hello\n")
            self.assertEqual(result.returncode, 2)
        result = run("chat", MODEL, "--template-name", "nosuch", stdin=b"Hello\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no chat template nosuch", result.stderr.decode())


class Template(unittest.TestCase):
    """runnel template against the texts that Jinja2 rendered."""

    def render(self, source, context):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja", newline="") as f:
            f.write(source)
            f.flush()
            return run("template", "--file", f.name, "--context", "-", "--now", str(common.ORACLE_NOW),
                       stdin=json.dumps(context).encode())

    def test_oracles(self):
        for path in sorted((ORACLES / "chat").glob("*.json"))[::6]:
            oracle = json.loads(path.read_text())
            for case in oracle["cases"]:
                with self.subTest(template=path.name, case=case["case"]):
                    got = self.render(oracle["template"], case["context"])
                    if case.get("error") is not None:
                        self.assertEqual(got.returncode, 2)
                    else:
                        self.assertEqual(got.stdout.decode(), case["expected"])

    def test_of_a_model(self):
        context = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
        got = run("template", MODEL, "--context", "-", stdin=json.dumps(context).encode())
        self.assertEqual(got.stdout.decode(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
        got = run("template", STORIES, "--context", "-", stdin=b"{}")
        self.assertEqual((got.returncode, got.stderr), (1, b"runnel: the model has no chat template\n"))

    def test_show(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{% for m in messages %}{{ m.content }}{% endfor %}</think>")
            f.flush()
            got = run("template", "--file", f.name, "--show")
            self.assertEqual((got.returncode, got.stdout),
                             (0, b"  (unnamed): 58 bytes; system role, reasoning; answers: think\n"))
            self.assertTrue(json.loads(run("template", "--file", f.name, "--show", "--json").stdout)[0]["reasoning"])
            self.assertEqual(run("template", "--file", f.name, "--show", "--context", "-").returncode, 2)
            f.write("{% if")
            f.flush()
            got = run("template", "--file", f.name, "--show")
            self.assertEqual((got.returncode, b"malformed: line 1" in got.stdout), (1, True))
        self.assertEqual(run("template", STORIES, "--show").stdout, b"no chat template\n")

    def test_errors(self):
        got = self.render("line one\n{% if %}", {})
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stderr.decode(), r"line 2, column \d+")
        self.assertEqual(self.render("{{ raise_exception('No.') }}", {}).stderr, b"runnel: No.\n")
        got = run("template", MODEL, "--context", "-", stdin=b"[1]")
        self.assertEqual(got.returncode, 2)
        self.assertEqual(run("template", "--context", "-").returncode, 2)
        self.assertEqual(run("template", MODEL).returncode, 2)


class Show(unittest.TestCase):
    def test_tokenize_show(self):
        ids = run("tokenize", MODEL, "-p", "Once upon", "--ids").stdout.split()
        shown = run("tokenize", MODEL, "-p", "Once upon", "--show").stdout.decode()
        self.assertEqual(shown.count("["), len(ids))
        self.assertEqual(shown.replace("[", "").replace("]", ""), "Once upon\n")

    def test_the_text_of_ids(self):
        text = " Once upon\n a café\\<|im_end|>"
        ids = ",".join(run("tokenize", MODEL, "-p", text, "--special", "--ids").stdout.decode().split())
        for words, out in (((), text + "\n"),
                           (("--show",), run("tokenize", MODEL, "-p", text, "--special", "--show").stdout.decode())):
            self.assertEqual(run("tokenize", MODEL, "--tokens", ids, "-q", *words).stdout.decode(), out)
        for words, code, part in ((("--tokens", "1", "-p", "a"), 2, "give one of them"),
                                  (("--tokens", "1", "--bos"), 2, "are for texts"),
                                  (("--tokens", "1", "--ids"), 2, "are for texts"),
                                  (("--tokens", "1000000"), 2, "vocabulary has no such id")):
            result = run("tokenize", MODEL, *words)
            self.assertEqual((result.returncode, result.stdout), (code, b""))
            self.assertIn(part, result.stderr.decode())


if __name__ == "__main__":
    common.need_shared()
    common.main("__main__")
