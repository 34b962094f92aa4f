#!/usr/bin/env python3
"""runnel serve in the words of llama.cpp's server: /completion against /v1/completions, in whole and in pieces; /props
and /slots."""
import json
import math
import socket
import tempfile

import common
from batch_job import TEXT
from common import MODEL, run
from server import NAME, Served, Server

STORY, FOX = "Once upon a time", "The fox"
GREEDY = {"max_tokens": 24, "temperature": 0}
ASK = {"prompt": STORY, "n_predict": 24, "temperature": 0}
LONG = {"prompt": STORY, "max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0}  # never ends by itself


class Llama(Served):
    def test_errors_name_the_field_that_was_sent(self):
        for body, param in (({"n_probs": 101}, "n_probs"), ({"logprobs": 101}, "logprobs"), ({"n_cmpl": 500}, "n_cmpl"),
                            ({"n": 500}, "n"), ({"repeat_penalty": -1}, "repeat_penalty"),
                            ({"repetition_penalty": -1}, "repetition_penalty"),
                            ({"repeat_last_n": -5}, "repeat_last_n"),
                            ({"repeat_penalty": -1, "repetition_penalty": -1}, "repetition_penalty"),
                            ({"max_tokens": -5}, "max_tokens"), ({"n_cmpl": 128, "prompt": [STORY] * 20}, "n_cmpl"),
                            ({"n": 128, "prompt": [STORY] * 20}, "n"), ({"stop": ["a" * 1025]}, "stop[0]"),
                            ({"stop": ["a"] * 257}, "stop"),
                            ({"response_fields": ["content"] * 257}, "response_fields"),
                            ({"response_fields": ["content", 1]}, "response_fields[1]")):
            with self.subTest(body=body):
                status, got = self.server.post("/completion", {"prompt": STORY, **body})
                self.assertEqual((status, got["error"]["param"]), (400, param), got)
                self.assertEqual(got["error"]["message"][:len(param)], param)
        for name in ("content", "input"):
            for ids in ([1 << 30], [1, -1]):
                status, got = self.server.post("/embedding", {name: ids})
                self.assertEqual((status, got["error"]["param"].split("[")[0]), (400, name), got)

    def ask(self, **more):
        status, got = self.server.post("/completion", {**ASK, **more})
        self.assertEqual(status, 200, got)
        return got

    def text(self, **more):
        status, got = self.server.post(TEXT, {"prompt": STORY, **GREEDY, **more})
        self.assertEqual(status, 200, got)
        return got

    def pieces(self, **more):
        """The answers that the pieces of a stream join to, by their index; each ends once."""
        joined = {}
        for _, event in self.server.events("/completion", {**ASK, **more}):
            answer = joined.setdefault(event["index"], {"content": "", "completion_probabilities": [], "stop": False})
            self.assertFalse(answer["stop"])
            content = answer["content"] + event["content"]
            probabilities = answer["completion_probabilities"] + event.get("completion_probabilities", [])
            answer.update(event, content=content, completion_probabilities=probabilities)
        self.assertTrue(all(answer["stop"] for answer in joined.values()))
        return [joined[i] for i in range(len(joined))]

    def same(self, pieces, whole):
        """But for times, and for what an answer in pieces says of itself."""
        for one, other in zip(pieces, whole, strict=True):
            for key in ("index", "content", "stop_type", "stopping_word", "tokens_predicted", "tokens_evaluated",
                        "truncated", "model"):
                self.assertEqual(one[key], other[key], key)
            self.assertEqual(one["completion_probabilities"], other.get("completion_probabilities", []))
            self.assertEqual({**one["generation_settings"], "stream": False}, other["generation_settings"])

    def test_completion(self):
        want, got = self.text(), self.ask()
        self.assertEqual((got["content"], got["stop"], got["index"]), (want["choices"][0]["text"], True, 0))
        self.assertEqual((got["tokens_predicted"], got["tokens_evaluated"]),
                         (want["usage"]["completion_tokens"], want["usage"]["prompt_tokens"]))
        self.same(self.pieces(), [got])
        self.assertEqual({event["tokens_evaluated"] for _, event in self.server.events("/completion", ASK)},
                         {got["tokens_evaluated"]})
        self.assertEqual(self.server.post("/completion", {"prompt": STORY, "n_predict": "x"})[0], 400)

    def test_how_it_ended(self):
        text = self.ask()["content"]
        stop = text[7:10]
        cases = [({}, "limit", ""), ({"stop": ["no such text", stop]}, "word", stop), ({"stop": " "}, "word", " "),
                 ({"stop": ""}, "limit", ""), ({"stop": ["", stop, ""]}, "word", stop),
                 ({"stop": [""] * 40}, "limit", ""),
                 ({"prompt": "<s>", "n_predict": 8, "logit_bias": {str(self.eos()): 100}}, "eos", "")]
        for more, kind, word in cases:
            with self.subTest(more=more):
                got = self.ask(**more)
                self.assertEqual((got["stop_type"], got["stopping_word"]), (kind, word))
                if word:
                    self.assertEqual(got["content"], text[:text.index(word)])
                self.same(self.pieces(**more), [got])

    def eos(self):
        return common.metadata()["tokenizer.ggml.eos_token_id"]

    def test_stop_reason_of_openai(self):
        whole = self.text()["choices"][0]["text"]
        stop, tokens = whole[7:10], self.server.post("/tokenize", {"content": whole})[1]["tokens"]
        for more, reason in (({}, None), ({"stop": ["no such text", stop]}, stop), ({"stop_token_ids": [3, tokens[9]]},
                                                                                    tokens[9])):
            with self.subTest(more=more):
                choice = self.text(**more)["choices"][0]
                self.assertEqual(choice["stop_reason"], reason)
                self.assertEqual(choice["finish_reason"], "length" if reason is None else "stop")
                last = [chunk["choices"][0] for _, chunk in
                        self.server.events(TEXT, {"prompt": STORY, **GREEDY, **more})[:-1]]
                self.assertEqual([one["stop_reason"] for one in last if one["finish_reason"]], [reason])

    def test_several(self):
        """Each prompt has an answer of its own, and so has each of n."""
        wants = [self.text(prompt=prompt)["choices"][0]["text"] for prompt in (STORY, FOX)]
        got = self.ask(prompt=[STORY, FOX])
        self.assertEqual([a["content"] for a in got], wants)
        self.assertEqual([a["index"] for a in got], [0, 1])
        self.same(self.pieces(prompt=[STORY, FOX]), got)
        ids = self.server.post("/tokenize", {"content": FOX, "add_special": True})[1]["tokens"]
        self.assertEqual([a["content"] for a in self.ask(prompt=[STORY, ids])], wants)
        drawn = {"prompt": [STORY, FOX], "n_predict": 8, "temperature": 1, "seed": 3, "top_k": 0, "top_p": 1}
        want = self.text(prompt=[STORY, FOX], max_tokens=8, temperature=1, seed=3, n=2)
        for name in ("n", "n_cmpl"):
            got = self.ask(**drawn, **{name: 2}, min_p=0)
            self.assertEqual([a["content"] for a in got], [c["text"] for c in want["choices"]])
            self.same(self.pieces(**drawn, **{name: 2}, min_p=0), got)
        self.assertEqual(len({a["content"] for a in got}), 4)

    def test_probabilities(self):
        want = self.text(max_tokens=6, logprobs=3)["choices"][0]["logprobs"]
        got = self.ask(n_predict=6, n_probs=3)
        entries = got["completion_probabilities"]
        self.assertEqual([e["token"] for e in entries], want["tokens"])
        self.assertEqual([e["logprob"] for e in entries], want["token_logprobs"])
        self.assertEqual([[t["logprob"] for t in e["top_logprobs"]] for e in entries],
                         [list(tops.values()) for tops in want["top_logprobs"]])
        for entry in entries:
            for token in (entry, *entry["top_logprobs"]):
                text = self.server.post("/detokenize", {"tokens": [token["id"], token["id"]]})[1]["content"]
                self.assertTrue(text.endswith(token["token"]), (text, token))
                self.assertEqual(bytes(token["bytes"]).decode(), token["token"])
        self.same(self.pieces(n_predict=6, n_probs=3), [got])
        self.same(self.pieces(prompt=[STORY, FOX], n_predict=6, n_probs=2),
                  self.ask(prompt=[STORY, FOX], n_predict=6, n_probs=2))
        self.assertNotIn("completion_probabilities", self.ask(n_probs=0))
        after = self.ask(n_predict=6, n_probs=3, temperature=1, seed=1, post_sampling_probs=True)
        for entry in after["completion_probabilities"]:
            self.assertTrue(0 < entry["prob"] <= 1 and 0 < sum(t["prob"] for t in entry["top_probs"]) <= 1.0001, entry)

    def test_schemas_are_closed(self):
        """As with llama.cpp, unless a body says which it wants."""
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
        hot = {"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0, "n_predict": 100, "json_schema": schema}
        want = {'{"a":true}', '{"a":false}'}
        for more in (None, {"closed": True}, {"closed": None, "free_white": False}):
            for seed in range(6):
                self.assertIn(self.ask(**hot, grammar_options=more, seed=seed)["content"], want)
        self.assertTrue({self.ask(**hot, grammar_options={"closed": False}, seed=i)["content"] for i in range(6)} -
                        want)
        self.assertEqual(self.server.post("/completion", {**ASK, **hot, "grammar_options": 5})[1]["error"]["param"],
                         "grammar_options")

    def test_tokens(self):
        """Against those that stand beside the probabilities, and the text that they make."""
        want = [entry["id"] for entry in self.ask(n_probs=1)["completion_probabilities"]]
        got = self.ask(return_tokens=True)
        self.assertEqual(got["tokens"], want)
        ended = self.ask(return_tokens=True, n_predict=-1, ignore_eos=False)  # what ended it is among them
        self.assertEqual((ended["stop_type"], ended["tokens"][-1], len(ended["tokens"])),
                         ("eos", self.eos(), ended["tokens_predicted"]))
        pieces = [event
                  for _, event in self.server.events("/completion", {**ASK, "n_predict": -1, "ignore_eos": False})]
        self.assertEqual([token for piece in pieces for token in piece["tokens"]], ended["tokens"])
        self.assertEqual(self.server.post("/detokenize", {"tokens": [*self.ids(STORY), *want]})[1]["content"],
                         STORY + got["content"])
        self.assertEqual(self.ask()["tokens"], [])
        self.assertFalse(got["has_new_line"])
        self.assertTrue(self.ask(grammar='root ::= "a\\nb"', ignore_eos=False)["has_new_line"])
        for more in ({}, {"n_probs": 1}, {"stop": got["content"][7:10]}):
            pieces = [event for _, event in self.server.events("/completion", {**ASK, **more})]
            self.assertEqual([token for piece in pieces for token in piece["tokens"]],
                             self.ask(return_tokens=True, **more)["tokens"])

    def ids(self, text):
        return self.server.post("/tokenize", {"content": text})[1]["tokens"]

    def test_tells_more_in_pieces(self):
        prompt = "The river goes on and on. " * 30
        self.ask(prompt=prompt)
        pieces = [event for _, event in self.server.events("/completion", {
            **ASK, "prompt": prompt, "timings_per_token": True, "return_progress": True})]
        told = [piece.pop("prompt_progress") for piece in pieces if "prompt_progress" in piece]
        last = pieces[-1]
        self.assertGreater(last["tokens_cached"], 0)
        for progress in told:
            self.assertEqual((progress["total"], progress["cache"]), (last["tokens_evaluated"], last["tokens_cached"]))
            self.assertLessEqual(progress["cache"], progress["processed"])
        self.assertEqual(told[-1]["processed"], last["tokens_evaluated"])
        count = 0
        for piece in pieces[len(told):]:
            count += len(piece["tokens"])
            times = piece["timings"]
            self.assertEqual((times["predicted_n"], times["cache_n"], times["prompt_n"]),
                             (count, last["tokens_cached"], last["tokens_evaluated"] - last["tokens_cached"]))
        for piece in [event for _, event in self.server.events("/completion", ASK)][:-1]:
            self.assertFalse({"timings", "prompt_progress"} & set(piece))

    def test_response_fields(self):
        asked = {"grammar": 'root ::= "a" [\\x00] "b"', "response_fields": ["content", "content\0"]}
        self.assertEqual(self.ask(**asked), {"content": "a\0b"})
        names = ["content", "generation_settings/n_predict", "stop_type", "no/such", "content/x", "tokens_predicted"]
        whole = self.ask()
        want = {"content": whole["content"], "generation_settings/n_predict": 24, "stop_type": "limit",
                "tokens_predicted": 24}
        self.assertEqual(self.ask(response_fields=names), want)
        self.assertEqual(self.ask(response_fields=names, n=2, prompt=[STORY, STORY]), [want] * 4)
        pieces = [event for _, event in self.server.events("/completion", {**ASK, "response_fields": names})]
        self.assertEqual(pieces[-1], {**want, "content": ""})
        self.assertEqual("".join(piece["content"] for piece in pieces), whole["content"])
        for prompt in (STORY, self.ids(STORY)):
            self.assertEqual(self.ask(prompt=prompt, response_fields=["prompt"]), {"prompt": STORY})
        self.assertEqual(self.ask(response_fields=[]).keys(), whole.keys())
        self.assertEqual(self.ask(response_fields=["content"] * 256), {"content": whole["content"]})

    def test_values(self):
        """What that server means by a value, in the words of /v1/completions."""
        story = ("Once upon a time, a lamb named Hugo lived near the harbour. One morning, when the wind was cold, "
                 "Hugo painted a yellow shell near the old mill. ")
        before = "A turtle named Nora and Max the hare came along. At first they could not agree, so they came home. "
        prompt, hot = before + story * 5, {"seed": 3, "temperature": 1.5}
        usual = {"top_k": 40, "top_p": 0.95, "min_p": 0.05}
        wide = {"seed": 2, "temperature": 1.5, "top_k": 200, "top_p": 1, "min_p": 0, "presence_penalty": 2}
        free = {**wide, "presence_penalty": 0}
        first = self.ids(self.text(prompt=prompt, max_tokens=1)["choices"][0]["text"])[0]
        rows = [(hot, {**hot, **usual}), ({"temperature": -1}, {}), ({"grammar": ""}, {}), ({"lora": []}, {}),
                (wide, {**wide, "penalty_tokens": 64}), ({**wide, "repeat_last_n": -1}, {**wide, "penalty_tokens": 0}),
                ({**wide, "repeat_penalty": 2, "repeat_last_n": 0}, free), (free, free),
                ({"dry_multiplier": 5, "dry_penalty_last_n": 0}, {}),
                ({**hot, "samplers": ["top_k", "infill"]}, {**hot, **usual, "samplers": ["top_k"]}),
                ({"logit_bias": [[first, -9], [first + 1, 2]]}, {"logit_bias": {str(first): -9, str(first + 1): 2}}),
                ({"logit_bias": [[first, False]]}, {"logit_bias": {str(first): -100}}),
                ({"logit_bias": [[first, -1000]]}, {"logit_bias": {str(first): -100}})]
        texts = []
        for given, same in rows:
            with self.subTest(given=given):
                texts.append(self.ask(prompt=prompt, **given)["content"])
                self.assertEqual(texts[-1], self.text(prompt=prompt, **same)["choices"][0]["text"])
        plain = self.text(prompt=prompt)["choices"][0]["text"]
        self.assertEqual([text == plain for text in texts[1:4] + texts[8:]], [True] * 4 + [False] * 4)
        self.assertEqual(len({plain, texts[0], *texts[4:8]}), 5)
        for body, name in (({"lora": [{"id": 0, "scale": 1}]}, "lora"), ({"logit_bias": [[[], 1]]}, "logit_bias[0]"),
                           ({"logit_bias": [5]}, "logit_bias[0]"), ({"logit_bias": [[1, True]]}, "logit_bias[0]"),
                           ({"logit_bias": [["a", "b"]]}, "logit_bias[0]"),
                           ({"logit_bias": {"a": None}}, "logit_bias.a"),
                           ({"samplers": "kq"}, "samplers"), ({"samplers": ["top_k", "top-k"]}, "samplers")):
            status, got = self.server.post("/completion", {**ASK, **body})
            self.assertEqual((status, got["error"]["param"]), (400, name), body)

    def test_biases_of_texts(self):
        """Each token of the text gets the bias; a number in quotes is a text in a list, and an id as a name."""
        plain = self.ask()["content"]
        for text in (plain[:9], " the", plain.split()[1], "5", "caf\u00e9"):
            ids = self.ids(text)
            for bias in (-7.5, False, 3):
                with self.subTest(text=text, bias=bias):
                    want = self.ask(logit_bias=[[token, bias] for token in ids])["content"]
                    self.assertEqual(self.ask(logit_bias=[[text, bias]])["content"], want)
                    if not text.isdigit():
                        self.assertEqual(self.ask(logit_bias={text: bias})["content"], want)
                    long = self.ask(logit_bias=[["", bias], [text, bias]], note="x" * (70 << 10))  # apart from the loop
                    self.assertEqual(long["content"], want)
        first = self.ids(plain)[0]
        self.assertEqual(self.ask(logit_bias={str(first): False})["content"],
                         self.ask(logit_bias=[[first, False]])["content"])
        self.assertNotEqual(self.ask(logit_bias=[[plain[:9], False]])["content"], plain)

    def test_samplers_as_letters(self):
        hot = {"seed": 3, "temperature": 6, "typical_p": 0.9, "repeat_penalty": 1.3, "xtc_probability": 0.5}
        usual = ["penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"]
        texts = []
        for letters, names in (("edskypmxt", usual), ("kpt", ["top_k", "top_p", "temperature"]), ("ki", ["top_k"]),
                               ("tk", ["temp", "top-k"]), ("tpy", ["temperature", "nucleus", "typ"]), ("i", []),
                               ("em", ["penalties", "minp"]), ("temp", ["temperature", "penalties", "min_p", "top_p"])):
            with self.subTest(letters=letters):
                texts.append(self.ask(**hot, samplers=letters)["content"])
                self.assertEqual(texts[-1], self.ask(**hot, samplers=names)["content"])
        self.assertGreater(len(set(texts)), 4)
        self.assertEqual(self.ask(**hot, samplers="top_k;temperature")["content"],
                         self.ask(**hot, samplers=["top_k", "temperature"])["content"])

    def test_ranges_are_wide(self):
        """More candidates and higher temperatures than OpenAI's: the probabilities are those of the closed form."""
        raw = self.ask(n_predict=1, n_probs=100)["completion_probabilities"][0]["top_logprobs"]
        self.assertEqual(len(raw), 100)
        self.assertEqual(sorted(raw, key=lambda one: -one["logprob"]), raw)
        for heat in (0.5, 3, 40):
            hot = self.ask(n_predict=1, n_probs=100, temperature=heat, seed=1, samplers=["temperature"],
                           post_sampling_probs=True)["completion_probabilities"][0]["top_probs"]
            self.assertEqual([one["id"] for one in hot], [one["id"] for one in raw])
            for one, other in zip(hot, raw):
                self.assertAlmostEqual(one["prob"] / hot[0]["prob"],
                                       math.exp((other["logprob"] - raw[0]["logprob"]) / heat), delta=1e-3)
        for beyond, nearest in (({"temperature": 1e300, "samplers": ["top_k", "temperature"]},
                                 {"temperature": 3.4e38, "samplers": ["top_k", "temperature"]}),
                                ({"top_p": 7}, {"top_p": 1}), ({"top_p": -1}, {"top_p": 0}),
                                ({"min_p": -3}, {"min_p": 0}),
                                ({"top_k": -7}, {"top_k": 0}), ({"typical_p": 9}, {"typical_p": 1}),
                                ({"top_n_sigma": -1}, {"top_n_sigma": 0}),
                                ({"xtc_threshold": -1}, {"xtc_threshold": 0})):
            hot = {"seed": 5, "temperature": 1.2}
            self.assertEqual(self.ask(**{**hot, **beyond})["content"], self.ask(**{**hot, **nearest})["content"],
                             beyond)
        self.assertNotEqual(self.ask(frequency_penalty=30)["content"], self.ask()["content"])
        for body, param in (({"temperature": 9}, "temperature"), ({"frequency_penalty": 9}, "frequency_penalty"),
                            ({"logprobs": 21}, "logprobs"), ({"logit_bias": {"a": 1}}, "logit_bias.a"),
                            ({"logit_bias": [[5, 1]]}, "logit_bias")):
            status, got = self.server.post(TEXT, {"prompt": STORY, **body})
            self.assertEqual((status, got["error"]["param"]), (400, param))

    def test_many_long_stops(self):
        text = self.ask()["content"]
        others = [f"{i:03} " + "no such text " * 70 for i in range(255)]
        for at in (0, 100, 255):
            got = self.ask(stop=others[:at] + [text[7:10]] + others[at:])
            self.assertEqual((got["content"], got["stopping_word"]), (text[:text.index(text[7:10])], text[7:10]))
        long = text[4:] + "a" * (1024 - len(text[4:].encode()))
        self.assertEqual(self.ask(stop=[long])["content"], text)  # held back to the end, and then told

    def test_timings(self):
        for got in (self.ask(), self.pieces()[0], self.ask(prompt=[STORY, FOX])[1]):
            times = got["timings"]
            self.assertEqual(times["cache_n"] + times["prompt_n"], got["tokens_evaluated"])
            self.assertEqual(times["predicted_n"], got["tokens_predicted"])
            self.assertGreater(times["prompt_ms"], 0)
            self.assertGreater(times["predicted_ms"], 0)
            self.assertAlmostEqual(times["predicted_per_second"] * times["predicted_per_token_ms"], 1000, delta=20)
        self.assertEqual(self.ask(n_predict=0)["timings"]["predicted_n"], 0)

    def test_settings(self):
        usual = json.loads(self.server.get("/props")[1])["default_generation_settings"]["params"]
        _, got = self.server.post("/completion", {"prompt": STORY, "n_predict": 2})
        self.assertEqual({**got["generation_settings"], "n_predict": -1, "max_tokens": -1}, usual)
        self.assertAlmostEqual(usual["temperature"], 0.8, 6)
        got = self.ask(seed=5, top_k=7, min_p=0.25, repeat_penalty=1.5, repeat_last_n=9, dry_multiplier=0.5,
                       n_predict=2)
        for name, value in (("seed", 5), ("top_k", 7), ("min_p", 0.25), ("repeat_penalty", 1.5), ("repeat_last_n", 9),
                            ("dry_multiplier", 0.5), ("n_predict", 2), ("temperature", 0)):
            self.assertEqual(got["generation_settings"][name], value, name)

    def test_vectors(self):
        for more, options in (({}, ()), ({"embd_normalize": 2}, ()), ({"embd_normalize": -1}, ("--raw",))):
            told = run("embed", MODEL, STORY, FOX, *options, "--json", "-q").stdout
            want = [{"index": i, "embedding": [item["embedding"]]} for i, item in enumerate(json.loads(told)["data"])]
            for path in ("/embedding", "/embeddings"):
                self.assertEqual(self.server.post(path, {"content": STORY, **more}), (200, want[:1]))
                self.assertEqual(self.server.post(path, {"input": [STORY, FOX], **more}), (200, want))
        for body, name in (({}, "content"), ({"content": STORY, "embd_normalize": 1}, "embd_normalize"),
                           ({"content": STORY, "input": FOX}, "content")):
            status, got = self.server.post("/embedding", body)
            self.assertEqual((status, got["error"]["param"]), (400, name))

    def test_pieces_of_texts(self):
        for text in (STORY, "a\u00e1\U0001f600 x", "  two"):
            tokens = self.server.post("/tokenize", {"content": text, "with_pieces": True})[1]["tokens"]
            self.assertEqual([token["id"] for token in tokens], self.ids(text))
            pieces = [token["piece"] for token in tokens]
            joined = b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces)
            self.assertIn(joined.decode(), (text, " " + text))  # a vocabulary may begin words with their space
            for piece in pieces:
                if not isinstance(piece, str):
                    self.assertRaises(UnicodeDecodeError, bytes(piece).decode)

    def test_health(self):
        self.assertEqual(self.server.get("/v1/health"), self.server.get("/health"))

    # ---- /props and /slots

    def test_props(self):
        props = json.loads(self.server.get("/props")[1])
        keys = common.metadata()
        self.assertEqual(props["default_generation_settings"]["n_ctx"],
                         self.server.post("/tokenize", {"content": ""})[1]["max_model_len"])
        self.assertEqual((props["total_slots"], props["modalities"], props["model_alias"], props["is_sleeping"]),
                         (1024, {"vision": False, "audio": False}, NAME, False))
        self.assertEqual(props["chat_template"], keys["tokenizer.chat_template"])
        for name in ("bos", "eos"):
            self.assertEqual(props[f"{name}_token"],
                             self.server.post("/detokenize",
                                              {"tokens": [keys[f"tokenizer.ggml.{name}_token_id"]]})[1]["content"])

    def slots(self, server, path="/slots"):
        status, body = server.get(path)
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def test_slots(self):
        """Live streams alone, and no text of them."""
        server = Server("--max-streams", 2)
        self.assertEqual(self.slots(server), [])
        body = {**LONG, "prompt": "secret prompt", "stop": "secret stop", "seed": 7, "stream": True}
        clients = [server.begin(TEXT, body), server.begin(TEXT, body)]
        while sum(slot["next_token"][0]["n_decoded"] > 3 for slot in self.slots(server)) < 2:
            pass
        slots = self.slots(server)
        self.assertEqual([slot["id"] for slot in slots], [0, 1])
        self.assertEqual(len({slot["id_task"] for slot in slots}), 2)
        for slot in slots:
            self.assertTrue(slot["is_processing"] and not slot["speculative"])
            self.assertEqual((slot["params"]["seed"], slot["params"]["n_keep"], slot["model"]), (7, 0, NAME))
            self.assertGreater(slot["next_token"][0]["n_remain"], 0)
        self.assertNotIn("secret", json.dumps(slots))
        status, got = server.get("/slots?fail_on_no_slot=1")
        self.assertEqual((status, json.loads(got)["error"]["code"]), (503, "no_slot"))
        for client in clients:
            client.shutdown(socket.SHUT_RDWR)
            client.close()
        while self.slots(server):
            pass
        self.assertEqual(self.slots(server, "/slots?fail_on_no_slot=1"), [])
        self.assertEqual(server.stop()[0], 0)

    def test_slots_need_a_scope(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("talks scopes=chat,models\nlooks scopes=metrics\n")
            keys.flush()
            server = Server("--api-key-file", keys.name)
        for key, path, status in (("talks", "/slots", 403), ("looks", "/slots", 200), ("talks", "/props", 200),
                                  ("looks", "/props", 403)):
            self.assertEqual(server.get(path, Authorization=f"Bearer {key}")[0], status, (key, path))
        self.assertEqual(server.get("/slots")[0], 401)
        server.stop()


if __name__ == "__main__":
    common.main("__main__")
