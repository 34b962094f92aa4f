#!/usr/bin/env python3
"""runnel batch: what lines become, held against run, chat and embed."""
import base64
import json
import pathlib
import struct
import tempfile
import unittest

import common
from batch_job import CHAT, EMBED, RESPONSES, TEXT, TOOL, USER, Job, answers, bodies, line, story
from common import MODEL, run


class Same(unittest.TestCase):
    """A line gives what the other commands give for the same parameters."""

    def events(self, *args):
        result = run(*args, "--json", "-q")
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(text) for text in result.stdout.splitlines()]

    def test_completions(self):
        cases = [({}, []), ({"temperature": 0.9, "top_p": 0.9, "seed": 7},
                            ["--temperature", "0.9", "--top-p", "0.9", "--seed", "7"]),
                 ({"temperature": 1.5, "top_k": 5, "min_p": 0.05, "repetition_penalty": 1.3, "seed": 11},
                  ["--temperature", "1.5", "--top-k", "5", "--min-p", "0.05", "--repetition-penalty", "1.3",
                   "--seed", "11"]),
                 ({"temperature": 1, "frequency_penalty": 0.5, "presence_penalty": 0.25, "seed": 3},
                  ["--temperature", "1", "--frequency-penalty", "0.5", "--presence-penalty", "0.25", "--seed", "3"]),
                 ({"stop": ["harbour", ". "]}, ["--stop", "harbour", "--stop", ". "]),
                 ({"logit_bias": {"44": -100, "46": 2.5}}, ["--logit-bias", "44=-100", "--logit-bias", "46=2.5"])]
        lines = [line(str(i), TEXT, {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
                                     "logprobs": 3, **body}) for i, (body, _) in enumerate(cases)]
        for body, (_, options) in zip(bodies(lines), cases):
            events = self.events("run", MODEL, "-p", "Once upon a time", "-n", "24", "--logprobs", "3", *options)
            tokens = [e for e in events if e["type"] == "token" and e["id"] >= 0]
            choice, done = body["choices"][0], events[-1]
            with self.subTest(options=options):
                self.assertEqual(choice["text"], "".join(e["text"] for e in events if e["type"] == "token"))
                self.assertEqual(choice["finish_reason"], done["finish"])
                told = {name: values[:len(tokens)] for name, values in choice["logprobs"].items()}
                self.assertEqual({len(values) for values in choice["logprobs"].values()},  # the end is told here alone
                                 {done["usage"]["completion_tokens"]})
                self.assertEqual(told["token_logprobs"], [t["logprob"] for t in tokens])
                self.assertEqual([list(top.values()) for top in told["top_logprobs"]],
                                 [[o["logprob"] for o in t["top"]] +
                                  [t["logprob"]] * (t["id"] not in [o["id"] for o in t["top"]]) for t in tokens])
                self.assertEqual(body["usage"]["prompt_tokens"], done["usage"]["prompt_tokens"])
                self.assertEqual(body["usage"]["completion_tokens"], done["usage"]["completion_tokens"])
                self.assertEqual(body["usage"]["total_tokens"], sum(list(body["usage"].values())[:2]))
                self.assertEqual(body["object"], "text_completion")
        offsets = bodies(lines)[0]["choices"][0]
        for token, offset in zip(offsets["logprobs"]["tokens"], offsets["logprobs"]["text_offset"]):
            self.assertEqual(offsets["text"][offset:offset + len(token)], token)

    def test_chat(self):
        turns = ["Hello", "What is 2+2?", "Tell me a story"]
        plain = ["--top-p", "1", "--min-p", "0"]  # chat has filters of its own
        for options, body in ((["--temperature", "0"], {}),
                              (plain + ["--temperature", "1.2", "--seed", "5"], {"temperature": 1.2, "seed": 5})):
            lines = [line(str(i), CHAT, {"messages": [{"role": "system", "content": "Be kind."},
                                                      {"role": "user", "content": [{"type": "text", "text": turn}]}],
                                         "temperature": 0, "max_completion_tokens": 40, **body})
                     for i, turn in enumerate(turns)]
            for turn, got in zip(turns, bodies(lines)):
                want = run("chat", MODEL, "--system", "Be kind.", "-n", "40", "-q", *options,
                           stdin=f"{turn}\n".encode())
                message = got["choices"][0]["message"]
                self.assertEqual(message["content"] + "\n", want.stdout.decode())
                self.assertEqual((message["role"], message["refusal"]), ("assistant", None))
                self.assertEqual((got["object"], got["model"]), ("chat.completion", pathlib.Path(MODEL).name))
                self.assertEqual(got["created"], 1000000000)

    def test_token_prompts(self):
        ids = [int(i) for i in run("tokenize", MODEL, "-p", "Once upon a time", "--ids", "--bos").stdout.split()]
        both = bodies([line("a", TEXT, {"prompt": ids, "temperature": 0}),
                       line("b", TEXT, {"prompt": "Once upon a time", "temperature": 0}),
                       line("c", TEXT, {"prompt": [ids, ids], "temperature": 0, "echo": True})])
        self.assertEqual(both[0]["choices"], both[1]["choices"])
        self.assertEqual(both[0]["usage"]["completion_tokens"], 16)  # the default
        self.assertEqual([c["index"] for c in both[2]["choices"]], [0, 1])
        for choice in both[2]["choices"]:
            self.assertTrue(choice["text"].endswith("Once upon a time" + both[0]["choices"][0]["text"]))

    def test_seed_of_a_line(self):
        lines = [story(i, 12, n=3) for i in (1, 1, 2)]
        lines[1] = lines[1].replace('"s1"', '"other"')
        a, b, c = bodies(lines)
        self.assertEqual(len({choice["text"] for choice in a["choices"]}), 3)
        self.assertNotEqual([x["text"] for x in a["choices"]], [x["text"] for x in b["choices"]])
        self.assertEqual(bodies(lines), [a, b, c])
        self.assertEqual(a["usage"]["prompt_tokens"], 6)  # once, whatever n is

    def test_prompts_and_n(self):
        prompts = ["Once upon a time", "2 plus 2 is"]
        many = bodies([line("m", TEXT, {"prompt": prompts, "n": 2, "seed": 9, "max_tokens": 10})])[0]
        ones = bodies([line(str(i), TEXT, {"prompt": p, "n": 2, "seed": 9, "max_tokens": 10})
                       for i, p in enumerate(prompts)])
        self.assertEqual([c["text"] for c in many["choices"]],
                         [c["text"] for body in ones for c in body["choices"]])
        self.assertEqual([c["index"] for c in many["choices"]], [0, 1, 2, 3])
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(many["usage"][key], sum(body["usage"][key] for body in ones))

    def test_best_of(self):
        """The best by the log-probabilities of all, that are asked for apart."""
        for url, start, tokens in ((TEXT, {"prompt": ["Once upon a time", "A cat"], "logprobs": 0},
                                    lambda c: c["logprobs"]["token_logprobs"]),
                                   (CHAT, {"messages": USER, "logprobs": True},
                                    lambda c: [e["logprob"] for e in c["logprobs"]["content"]])):
            start = {**start, "temperature": 1.2, "seed": 9, "max_tokens": 10}
            every, *shown = bodies([line("a", url, {**start, "n": 7}), line("b", url, {**start, "n": 2, "best_of": 7}),
                                    line("c", url, {**start, "n": 7, "best_of": 7})])
            text = lambda c: c["text"] if url == TEXT else c["message"]["content"]
            for best, n in zip(shown, (2, 7)):
                want = []
                for i in range(0, len(every["choices"]), 7):
                    ranked = sorted(every["choices"][i:i + 7], key=lambda c: -sum(tokens(c)) / len(tokens(c)))
                    want += [text(c) for c in ranked[:n]]
                self.assertEqual([text(c) for c in best["choices"]], want)
                self.assertEqual([c["index"] for c in best["choices"]], list(range(len(want))))
                self.assertEqual(best["usage"], every["usage"])

    def test_answers_of_run(self):
        """--n is as many runs with the seeds that follow, and the prompt is computed once; --best-of shows the best."""
        prompt = "Once upon a time there was a small owl who lived in an old tree near the harbour. " * 3
        args = ["run", MODEL, "-p", prompt, "-n", "12", "--temperature", "1.2"]
        ones = [self.events(*args, "--seed", str(5 + i), "--logprobs", "0") for i in range(4)]
        texts = ["".join(e["text"] for e in one if e["type"] == "token") for one in ones]
        both = run(*args, "--seed", "5", "--n", "4", "-q")
        self.assertEqual((both.returncode, both.stdout.decode()), (0, "\n---\n".join(texts)))
        events = self.events(*args, "--seed", "5", "--n", "4")
        for i in range(4):
            self.assertEqual("".join(e["text"] for e in events if e["type"] == "token" and e["answer"] == i), texts[i])
        usage = [e["usage"] for e in events if e["type"] == "done"]
        prompts = usage[0]["prompt_tokens"]
        computed = sum(u["prompt_tokens"] - u["cached_tokens"] for u in usage)
        self.assertEqual(len(usage), 4)
        self.assertLess(computed, prompts + 3 * 17)  # a block and a token more for each answer at most
        logprobs = [[e["logprob"] for e in one if e["type"] == "token" and e["id"] >= 0] for one in ones]
        order = sorted(range(4), key=lambda i: -sum(logprobs[i]) / len(logprobs[i]))
        best = run(*args, "--seed", "5", "--n", "2", "--best-of", "4", "-q")
        self.assertEqual(best.stdout.decode(), "\n---\n".join(texts[i] for i in order[:2]))
        last = self.events(*args, "--seed", "5", "--n", "2", "--best-of", "4")[-1]
        self.assertEqual(last, {"type": "best", "answers": order[:2]})
        every = run(*args, "--seed", "5", "--n", "4", "--best-of", "4", "-q")  # all of them, and the best first
        self.assertEqual(every.stdout.decode(), "\n---\n".join(texts[i] for i in order))
        last = self.events(*args, "--seed", "5", "--n", "4", "--best-of", "4")[-1]
        self.assertEqual(last, {"type": "best", "answers": order})
        one = self.events(*args, "--seed", "5", "--best-of", "1")
        self.assertEqual("".join(e["text"] for e in one if e["type"] == "token"), texts[0])
        self.assertEqual(one[-1], {"type": "best", "answers": [0]})
        self.assertEqual(run(*args, "--n", "2", "--grammar", "root").returncode, 2)
        bad = run(*args, "--n", "3", "--best-of", "2")
        self.assertEqual((bad.returncode, bad.stderr.decode()), (2, "runnel: --best-of must be at least --n\n"))

    def test_echo_and_nothing(self):
        body = bodies([line("a", TEXT, {"prompt": "Grüße 🦉", "echo": True, "max_tokens": 0, "model": "my \"m\""})])[0]
        self.assertEqual((body["choices"][0]["text"], body["choices"][0]["finish_reason"]), ("Grüße 🦉", "length"))
        self.assertEqual(body["model"], "my \"m\"")

    def test_chat_logprobs(self):
        body = bodies([line("a", CHAT, {"messages": USER, "temperature": 0, "logprobs": True, "top_logprobs": 2})])[0]
        choice = body["choices"][0]
        entries = choice["logprobs"]["content"]
        self.assertEqual("".join(e["token"] for e in entries), choice["message"]["content"])
        for entry in entries:
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
            self.assertEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"])
            self.assertEqual(len(entry["top_logprobs"]), 2)

    def test_schedule(self):
        """Neither streams nor batch size nor the cache changes a byte."""
        lines = [story(i, 10, n=1 + i % 3) for i in range(20)]
        jobs = [Job(lines, *options) for options in ([], ["--streams", "1"], ["--streams", "64", "--batch", "16"],
                                                     ["--no-prefix-cache", "--threads", "1"])]
        for job in jobs:
            self.assertEqual(job.run().returncode, 0)
        self.assertEqual(len({job.output.read_bytes() for job in jobs}), 1)


class Tools(unittest.TestCase):
    # [TOOL_CALLS]f{} is a call in this template's format; the bias leaves the model little else to say.
    TEMPLATE = "{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}{% if tools %}[TOOL_CALLS]{% endif %}"
    BODY = {"messages": [{"role": "user", "content": "x"}], "n": 128, "temperature": 2, "max_tokens": 4,
            "repetition_penalty": 1000, "logit_bias": {"102": 90, "123": 95, "125": 98, "2047": 70}, "tools": [TOOL]}

    def choices(self, **more):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(self.TEMPLATE)
            file.flush()
            got = bodies([line(str(i), CHAT, {**self.BODY, "seed": i, **more}) for i in range(2)],
                         "--template", file.name)
        return [choice for body in got for choice in body["choices"]]

    def test_calls(self):
        found = [c for c in self.choices() if c["finish_reason"] == "tool_calls"]
        self.assertTrue(found)
        for choice in found:
            message = choice["message"]
            self.assertEqual([(c["type"], c["function"]["name"]) for c in message["tool_calls"]], [("function", "f")])
            json.loads(message["tool_calls"][0]["function"]["arguments"])
            self.assertIsNone(message["content"])
        ids = [c["message"]["tool_calls"][0]["id"] for c in found]
        self.assertEqual(len(ids), len(set(ids)))

    def test_none(self):
        self.assertEqual([c for c in self.choices(tool_choice="none") if "tool_calls" in c["message"]], [])

    def test_history(self):
        """Arguments come to the template as what they say, contents of parts as text."""
        template = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.city }}{% endfor %}" \
                   "{{ m.content or '' }};{% endfor %}"
        messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                    {"role": "assistant", "content": None, "tool_calls": [{
                        "id": "1", "type": "function",
                        "function": {"name": "w", "arguments": "{\"city\": \"Rome\"}"}}]},
                    {"role": "tool", "tool_call_id": "1", "content": "sun"}]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(template)
            file.flush()
            chat = bodies([line("a", CHAT, {"messages": messages, "temperature": 0, "max_tokens": 8})], "--template",
                          file.name)[0]
        text = bodies([line("a", TEXT, {"prompt": "a\nb;Rome;sun;", "temperature": 0, "max_tokens": 8})])[0]
        self.assertEqual(chat["usage"]["prompt_tokens"], text["usage"]["prompt_tokens"])
        self.assertEqual(chat["choices"][0]["message"]["content"], text["choices"][0]["text"])

    def test_documents_and_no_generation_prompt(self):
        """The prompt is that which the template makes of them, by its length and by what follows it."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("{% for d in documents %}{{ d }} {% endfor %}{% if add_generation_prompt %}the end{% endif %}")
            file.flush()
            chats = bodies([line(str(there), CHAT, {
                "messages": USER, "temperature": 0, "max_tokens": 8, "documents": ["A dog", "A cat"],
                "add_generation_prompt": there}) for there in (True, False)], "--template", file.name)
        texts = bodies([line(prompt, TEXT, {"prompt": prompt, "temperature": 0, "max_tokens": 8})
                        for prompt in ("A dog A cat the end", "A dog A cat ")])
        for chat, text in zip(chats, texts, strict=True):
            self.assertEqual(chat["usage"]["prompt_tokens"], text["usage"]["prompt_tokens"])
            self.assertEqual(chat["choices"][0]["message"]["content"], text["choices"][0]["text"])

    def test_variables_and_reasoning(self):
        template = "{% if think %}{{ reasoning_effort }}</think><think>\n{% endif %}"
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(template)
            file.flush()
            body = bodies([line("a", CHAT, {"messages": USER, "temperature": 0, "max_tokens": 6,
                                            "reasoning_effort": "low", "chat_template_kwargs": {"think": True}})],
                          "--template", file.name)[0]
        message = body["choices"][0]["message"]
        self.assertTrue(message["reasoning_content"])
        self.assertEqual(message["content"], "")


class Responses(unittest.TestCase):
    """A response is the chat of the same conversation in another form, which has what OpenAI's schema requires."""
    REQUIRED = {"id", "object", "created_at", "error", "incomplete_details", "instructions", "metadata", "model",
                "output",
                "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p"}
    CONVERSATIONS = [  # instructions, input, the chat's messages
        (None, "What is 2+2?", USER),
        ("Be kind.", "Hello", [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]),
        (None, [{"role": "developer", "content": "Rhyme."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                                {"type": "input_text", "text": "b"}]},
                {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                 "content": [{"type": "output_text", "text": "c", "annotations": []}]},
                {"role": "user", "content": "d"}],
         [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "a\nb"},
          {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}])]

    def test_same_as_chat(self):
        lines = []
        for i, (instructions, given, messages) in enumerate(self.CONVERSATIONS):
            sampling = {"temperature": 0.8, "top_p": 0.9, "seed": i}
            body = {"input": given, "max_output_tokens": 30, **sampling}
            if instructions is not None:
                body["instructions"] = instructions
            lines += [line(f"r{i}", RESPONSES, body),
                      line(f"c{i}", CHAT, {"messages": messages, "max_tokens": 30, **sampling})]
        got = bodies(lines)
        for response, chat, (instructions, _, _) in zip(got[::2], got[1::2], self.CONVERSATIONS):
            self.assertLessEqual(self.REQUIRED, set(response))
            self.assertEqual((response["object"], response["model"], response["instructions"]),
                             ("response", pathlib.Path(MODEL).name, instructions))
            self.assertEqual((response["temperature"], response["top_p"], response["max_output_tokens"]),
                             (0.8, 0.9, 30))
            item, choice = response["output"][0], chat["choices"][0]
            self.assertEqual((item["type"], item["role"], len(response["output"])), ("message", "assistant", 1))
            self.assertEqual([(part["type"], part["text"]) for part in item["content"]],
                             [("output_text", choice["message"]["content"])])
            cut = choice["finish_reason"] == "length"
            self.assertEqual((response["status"], item["status"]), ("incomplete" if cut else "completed",) * 2)
            self.assertEqual(response["incomplete_details"], {"reason": "max_output_tokens"} if cut else None)
            self.assertEqual([response["usage"][key] for key in ("input_tokens", "output_tokens", "total_tokens")],
                             list(chat["usage"].values()))
            self.assertEqual((response["usage"]["input_tokens_details"], response["usage"]["output_tokens_details"]),
                             ({"cached_tokens": 0, "cache_write_tokens": 0}, {"reasoning_tokens": 0}))
        ids = [response["id"] for response in got[::2]] + [response["output"][0]["id"] for response in got[::2]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_cut_and_echoed(self):
        body = bodies([line("a", RESPONSES, {"input": "Tell me a story", "max_output_tokens": 3, "temperature": 0,
                                             "model": "mine", "metadata": {"k": "v"}, "store": True, "tools": [],
                                             "text": {"format": {"type": "text"}, "verbosity": "low"}})])[0]
        self.assertEqual((body["status"], body["output"][0]["status"], body["usage"]["output_tokens"]),
                         ("incomplete", "incomplete", 3))
        self.assertEqual((body["model"], body["metadata"], body["temperature"], body["top_p"]),
                         ("mine", {"k": "v"}, 0, 1))

    def test_reasoning(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("{{ reasoning_effort }}</think><think>\n")
            file.flush()
            body = bodies([line("a", RESPONSES, {"input": "x", "temperature": 0, "max_output_tokens": 6,
                                                 "reasoning": {"effort": "low"}})], "--template", file.name)[0]
        thought, said = body["output"]
        self.assertEqual((thought["type"], said["type"]), ("reasoning", "message"))
        self.assertTrue(thought["content"][0]["text"])
        self.assertEqual((thought["content"][0]["type"], said["content"][0]["text"]), ("reasoning_text", ""))
        usage = body["usage"]
        self.assertTrue(0 < usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"], usage)


class Embeddings(unittest.TestCase):
    """Against runnel embed, which is judged by another program's vectors."""

    def vectors(self, *texts, options=()):
        out = common.run("embed", common.MODEL, *texts, "-q", *options).stdout.decode()
        return [[float(x) for x in row.split()] for row in out.splitlines()]

    def body(self, body):
        answer = answers([line("e", EMBED, body)])[0]
        self.assertIsNone(answer["error"])
        self.assertEqual(answer["response"]["status_code"], 200)
        return answer["response"]["body"]

    def test_texts_and_ids(self):
        texts = ["Once upon a time", "Hello", "K\u00f6ln \u00fc"]
        expected = self.vectors(*texts)
        got = self.body({"input": texts, "model": "mine", "encoding_format": "float"})
        self.assertEqual([item["embedding"] for item in got["data"]], expected)
        self.assertEqual([item["index"] for item in got["data"]], [0, 1, 2])
        self.assertEqual((got["object"], got["model"]), ("list", "mine"))
        self.assertEqual(self.body({"input": texts[1]})["data"][0]["embedding"], expected[1])
        ids = [[int(i) for i in common.run("tokenize", common.MODEL, "-p", t, "--ids", "--bos").stdout.split()]
               for t in texts]
        got = self.body({"input": ids})
        self.assertEqual([item["embedding"] for item in got["data"]], expected)
        self.assertEqual(got["usage"], {"prompt_tokens": sum(map(len, ids)), "total_tokens": sum(map(len, ids))})
        self.assertEqual(self.body({"input": ids[0]})["data"][0]["embedding"], expected[0])

    def test_base64_and_dimensions(self):
        for n in (1, 2, 3, 256):  # each kind of padding
            with self.subTest(n=n):
                expected = self.vectors("Hello", options=("--dimensions", str(n)))[0]
                got = self.body({"input": "Hello", "dimensions": n, "encoding_format": "base64"})
                data = base64.b64decode(got["data"][0]["embedding"], validate=True)
                self.assertEqual(list(struct.unpack(f"<{n}f", data)), [struct.unpack("f", struct.pack("f", x))[0]
                                                                       for x in expected])

    def test_pooling(self):
        told = [self.vectors("Hello there", options=("--pooling", how))[0] for how in ("mean", "first", "last")]
        self.assertTrue(told[0] != told[1] != told[2] != told[0])
        for how, expected in zip(("mean", "first", "last"), told):
            got = self.body({"input": "Hello there", "pooling": how})
            self.assertEqual(got["data"][0]["embedding"], expected)

    def test_at_fault(self):
        got = answers([line("empty", EMBED, {"input": ["a", ""]}),
                       line("wide", EMBED, {"input": "a", "dimensions": 257}),
                       line("ids", EMBED, {"input": [10 ** 6]}), line("good", EMBED, {"input": "a"})])
        for answer, part in zip(got, ("empty", "dimensions", "vocabulary")):
            self.assertEqual(answer["response"]["status_code"], 400)
            self.assertIn(part, answer["response"]["body"]["error"]["message"])
        self.assertEqual(got[3]["response"]["status_code"], 200)


if __name__ == "__main__":
    common.main("__main__")
