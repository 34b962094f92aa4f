#!/usr/bin/env python3
"""runnel serve: fields that other servers know. Token ids of prompts and answers, by /tokenize, /apply-template and by
what the same ids give as a prompt; prompts of two kinds in one body; what is refused by name, and what is left
alone."""
import json
import unittest
import urllib.parse

import common
from batch_job import CHAT, RESPONSES, TEXT, TOOL, USER
from server import Server, template
from test_serve import STORY, join_chat

ONLY = {  # what is taken of fields that have one value here; each other value of their type is refused
    TEXT: {False: ("use_beam_search", "grammar_lazy"), True: ("skip_special_tokens", "add_special_tokens")},
    CHAT: {False: ("use_beam_search", "grammar_lazy", "echo", "add_special_tokens"),
           True: ("skip_special_tokens", "parse_tool_calls")}}
EMPTY = ("allowed_token_ids", "bad_words", "image_data", "kv_transfer_params", "logits_processors", "multimodal_data",
         "vllm_xargs")
NEVER = {"guided_whitespace_pattern": "x", "prompt_logprobs": 0, "thinking_token_budget": 9,
         "truncate_prompt_tokens": 9}
ALONE = {"request_id": "a", "length_penalty": 2.5, "spaces_between_special_tokens": False, "cache_prompt": False,
         "n_keep": 5, "id_slot": 3, "t_max_predict_ms": 1, "reasoning_format": "none", "guided_decoding_backend": "x"}


def body_of(path, **more):
    return {**({"messages": USER} if path == CHAT else {"prompt": STORY}), "max_tokens": 6, "temperature": 0, **more}


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--quiet", *cls.enterClassContext(template()))

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def post(self, path, body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def chunks(self, path, body):
        return [chunk for _, chunk in self.server.events(path, body)[:-1]]

    def text_of(self, ids):
        return self.post("/detokenize", {"tokens": ids})["content"]

    def ids_of(self, text, **more):
        return self.post("/tokenize", {"content": text, **more})["tokens"]

    def test_ids_of_completions(self):
        body = {"prompt": [STORY, [300, 301, 302], "The fox <|im_end|>"], "n": 2, "max_tokens": 24, "seed": 3,
                "temperature": 0.7}
        plain = self.post(TEXT, body)
        told = self.post(TEXT, {**body, "return_token_ids": True})
        self.assertNotIn("prompt_token_ids", told)
        prompts = [self.ids_of(STORY, add_special=True), [300, 301, 302],
                   self.ids_of("The fox <|im_end|>", add_special=True, parse_special=False)]
        total = 0
        for before, choice in zip(plain["choices"], told["choices"], strict=True):
            self.assertNotIn("token_ids", before)
            self.assertEqual(choice["text"], before["text"])
            self.assertEqual(choice["prompt_token_ids"], prompts[choice["index"] // 2])
            total += len(choice["token_ids"])
        self.assertEqual(total, told["usage"]["completion_tokens"])
        special = self.post(TEXT, {"prompt": "The fox <|im_end|>", "max_tokens": 1, "parse_special": True,
                                   "return_token_ids": True})["choices"][0]["prompt_token_ids"]
        self.assertEqual(special, self.ids_of("The fox <|im_end|>", add_special=True, parse_special=True))
        self.assertNotEqual(special, prompts[2])
        # in pieces the same, those of a prompt once
        pieces = {}
        for chunk in self.chunks(TEXT, {**body, "return_token_ids": True}):
            for part in chunk["choices"]:
                piece = pieces.setdefault(part["index"], {"ids": [], "prompts": []})
                piece["ids"] += part["token_ids"]
                piece["prompts"] += [part["prompt_token_ids"]] if "prompt_token_ids" in part else []
        self.assertEqual([pieces[i] for i in sorted(pieces)],
                         [{"ids": c["token_ids"], "prompts": [c["prompt_token_ids"]]} for c in told["choices"]])

    def test_ids_are_what_the_model_read_and_wrote(self):
        """The text is theirs, and with half of the answer behind the prompt the model writes the other half."""
        choice = self.post(TEXT, {"prompt": STORY, "max_tokens": 24, "temperature": 0, "ignore_eos": True,
                                  "return_token_ids": True})["choices"][0]
        prompt, ids = choice["prompt_token_ids"], choice["token_ids"]
        self.assertEqual(len(ids), 24)
        self.assertEqual(self.text_of(prompt + ids), self.text_of(prompt) + choice["text"])
        rest = self.post(TEXT, {"prompt": prompt + ids[:12], "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                                "return_token_ids": True})["choices"][0]
        self.assertEqual((rest["prompt_token_ids"], rest["token_ids"]), (prompt + ids[:12], ids[12:]))

    def test_the_token_that_ends_an_answer(self):
        choice = self.post(TEXT, body_of(TEXT, max_tokens=24, return_token_ids=True))["choices"][0]
        token = choice["token_ids"][4]
        n = choice["token_ids"].index(token) + 1
        for more in ({"stop_token_ids": [token]}, {"stop": self.text_of([token, token])[-3:]}):
            with self.subTest(**more):
                answer = self.post(TEXT, body_of(TEXT, max_tokens=24, return_token_ids=True, **more))
                ended = answer["choices"][0]
                self.assertEqual(ended["finish_reason"], "stop")
                self.assertEqual(len(ended["token_ids"]), answer["usage"]["completion_tokens"])
                self.assertEqual(ended["token_ids"], choice["token_ids"][:len(ended["token_ids"])])
                if "stop_token_ids" in more:
                    self.assertEqual(len(ended["token_ids"]), n)
                pieces = self.chunks(TEXT, body_of(TEXT, max_tokens=24, return_token_ids=True, **more))
                self.assertEqual(sum((c["choices"][0]["token_ids"] for c in pieces), []), ended["token_ids"])

    def test_ids_of_gaps_and_echoes(self):
        """An echoed prompt is no part of the answer's."""
        answer = self.post(TEXT, body_of(TEXT, echo=True, logprobs=1, return_token_ids=True))
        choice = answer["choices"][0]
        self.assertEqual(choice["prompt_token_ids"], self.ids_of(STORY, add_special=True))
        self.assertEqual(len(choice["token_ids"]), answer["usage"]["completion_tokens"])
        pieces = self.chunks(TEXT, body_of(TEXT, echo=True, logprobs=1, return_token_ids=True))
        self.assertEqual(pieces[0]["choices"][0]["prompt_token_ids"], choice["prompt_token_ids"])
        self.assertEqual(sum((c["choices"][0]["token_ids"] for c in pieces), []), choice["token_ids"])

    def test_ids_of_chats(self):
        """Also those of reasoning and of calls, which are no part of the text."""
        for more in ({}, {"n": 2, "seed": 5, "temperature": 1}, {"add_generation_prompt": False}, {"logprobs": True},
                     {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60}):
            with self.subTest(**more):
                body = body_of(CHAT, **{"max_tokens": 24, **more})
                plain, told = self.post(CHAT, body), self.post(CHAT, {**body, "return_token_ids": True})
                told_template = ("messages", "tools", "add_generation_prompt")
                text = self.post("/apply-template", {key: body[key] for key in told_template if key in body})["prompt"]
                prompt = self.ids_of(text, add_special=True, parse_special=True)
                self.assertEqual(told["prompt_token_ids"], prompt)
                self.assertEqual(told["usage"]["prompt_tokens"], len(prompt))
                ids = [choice["token_ids"] for choice in told["choices"]]
                self.assertEqual(sum(map(len, ids)), told["usage"]["completion_tokens"])
                for before, choice in zip(plain["choices"], told["choices"], strict=True):
                    self.assertEqual(choice["message"]["content"], before["message"]["content"])
                    if "tools" not in more:
                        whole = (choice["message"].get("reasoning_content") or "") + choice["message"]["content"]
                        self.assertIn(whole.strip()[:8], self.text_of(choice["token_ids"]))
                pieces = self.chunks(CHAT, {**body, "return_token_ids": True})
                self.assertEqual([c["prompt_token_ids"] for c in pieces if "prompt_token_ids" in c], [prompt])
                self.assertIn("prompt_token_ids", pieces[0])
                joined = [[] for _ in ids]
                for chunk in pieces:
                    for part in chunk["choices"]:
                        joined[part["index"]] += part["token_ids"]
                self.assertEqual(joined, ids)
                if "n" not in more:
                    self.assertEqual(join_chat([(None, c) for c in pieces])[0]["content"],
                                     told["choices"][0]["message"]["content"] or "")

    def test_long_prompts_have_ids(self):
        """Beyond what is read on the loop."""
        text = "word " * 20000
        status, answer = self.server.post(TEXT, {"prompt": text, "max_tokens": 1, "return_token_ids": True})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        status, answer = self.server.post(CHAT, {"messages": [{"role": "user", "content": text}], "max_tokens": 1,
                                                 "return_token_ids": True})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))

    def test_chunks_are_alike(self):
        """Those of one answer that tell a text say the same of all else, in the same order."""
        for path, more in ((TEXT, {}), (TEXT, {"stream_options": {"include_usage": True}}), (CHAT, {"n": 3}),
                           (TEXT, {"prompt": [STORY, "The \"fox\""], "n": 2, "echo": True})):
            body = body_of(path, **{"max_tokens": 24, "temperature": 1, "seed": 4, **more})
            choices, forms = {}, {}
            for chunk in self.chunks(path, body):
                for part in chunk["choices"]:
                    message = part["delta"] if path == CHAT else part
                    text = message.get("content" if path == CHAT else "text", "")
                    choices[part["index"]] = choices.get(part["index"], "") + text
                    if text:
                        message["content" if path == CHAT else "text"] = ""
                        forms.setdefault(part["index"], set()).add(json.dumps(chunk))
            self.assertEqual([len(forms[i]) for i in sorted(forms)], [1] * len(choices))
            whole = self.post(path, {**body, "stream_options": None})["choices"]
            self.assertEqual([choices[i] for i in range(len(whole))],
                             [c["message"]["content"] if path == CHAT else c["text"] for c in whole])

    def test_who_has_no_ids(self):
        status, answer = self.server.post(RESPONSES, {"input": STORY, "return_token_ids": True})
        self.assertEqual((status, answer["error"]["param"]), (400, "return_token_ids"))
        self.assertEqual(self.server.post(RESPONSES, {"input": STORY, "max_output_tokens": 1,
                                                      "return_token_ids": False})[0], 200)
        answer = self.post("/completion", {"prompt": STORY, "n_predict": 3, "return_token_ids": True})
        self.assertNotIn("token_ids", answer)
        status, answer = self.server.post(TEXT, {"prompt": STORY, "return_token_ids": 1})
        self.assertEqual((status, answer["error"]["param"]), (400, "return_token_ids"))

    def test_prompts_of_two_kinds(self):
        """Each is a prompt of its own, as alone."""
        ids = self.ids_of("The fox", add_special=True)
        for prompts in ([STORY, ids], [ids, STORY], [ids, STORY, ids]):
            answer = self.post(TEXT, body_of(TEXT, prompt=prompts))
            alone = [self.post(TEXT, body_of(TEXT, prompt=prompt)) for prompt in prompts]
            self.assertEqual([c["text"] for c in answer["choices"]], [a["choices"][0]["text"] for a in alone])
            self.assertEqual(answer["usage"]["prompt_tokens"], sum(a["usage"]["prompt_tokens"] for a in alone))
        for prompt, param in (([300, "The fox"], "prompt[1]"), (["The fox", 300], "prompt[1]"),
                              ([STORY, [300, "fox"]], "prompt[1][1]"), ([STORY, []], "prompt[1]"),
                              ([STORY, None], "prompt[1]"), ([STORY, [[300]]], "prompt[1][0]")):
            status, answer = self.server.post(TEXT, body_of(TEXT, prompt=prompt))
            self.assertEqual((status, answer["error"]["param"]), (400, param), prompt)

    def told(self, path, body):
        """The text, reasoning and end of the first choice, which are the same in pieces."""
        choice = self.post(path, body)["choices"][0]
        pieces = [c["choices"][0] for c in self.chunks(path, body)]
        self.assertEqual([p["finish_reason"] for p in pieces if p["finish_reason"]], [choice["finish_reason"]])
        if path == TEXT:
            self.assertEqual("".join(p["text"] for p in pieces), choice["text"])
            return choice["text"], None, choice["stop_reason"]
        message = choice["message"]
        for name in ("content", "reasoning_content"):
            self.assertEqual("".join(p["delta"].get(name) or "" for p in pieces), message.get(name) or "")
        return message["content"], message.get("reasoning_content"), choice["stop_reason"]

    def test_stops_that_are_kept(self):
        for path in (TEXT, CHAT):
            whole = self.told(path, body_of(path, max_tokens=24, ignore_eos=True))[0]
            stop = whole[9:12]
            self.assertEqual(self.told(path, body_of(path, max_tokens=24, stop=["zzz", stop]))[::2],
                             (whole[:whole.index(stop)], stop))
            self.assertEqual(self.told(path, body_of(path, max_tokens=24, stop=["zzz", stop],
                                                     include_stop_str_in_output=True))[::2],
                             (whole[:whole.index(stop) + len(stop)], stop))
            ids = self.post(path, body_of(path, max_tokens=24, ignore_eos=True, return_token_ids=True))
            ids = ids["choices"][0]["token_ids"]
            n = ids.index(ids[5])
            for keeps in (False, True):
                text, _, reason = self.told(path, body_of(path, max_tokens=24, stop_token_ids=[ids[n]],
                                                          include_stop_str_in_output=keeps))
                self.assertEqual((text, reason), (self.text_of(ids[:n + keeps]), ids[n]))

    def test_tokens_by_their_ids(self):
        def named(entries):
            return [e["token"] for e in entries] + [t["token"] for e in entries for t in e["top_logprobs"]]

        plain = self.post(TEXT, body_of(TEXT, logprobs=2, return_token_ids=True))["choices"][0]
        told = self.post(TEXT, body_of(TEXT, logprobs=2, return_tokens_as_token_ids=True))["choices"][0]["logprobs"]
        self.assertEqual(told["tokens"], [f"token_id:{id}" for id in plain["token_ids"]])
        self.assertEqual([sorted(top.values()) for top in told["top_logprobs"]],
                         [sorted(top.values()) for top in plain["logprobs"]["top_logprobs"]])
        for top, token in zip(told["top_logprobs"], told["tokens"]):
            self.assertTrue(token in top and all(name.startswith("token_id:") for name in top))
        for same in ("token_logprobs", "text_offset"):
            self.assertEqual(told[same], plain["logprobs"][same])
        body = body_of(CHAT, logprobs=True, top_logprobs=2)
        plain = self.post(CHAT, {**body, "return_token_ids": True})["choices"][0]
        told = self.post(CHAT, {**body, "return_tokens_as_token_ids": True})["choices"][0]["logprobs"]["content"]
        self.assertEqual([e["token"] for e in told], [f"token_id:{id}" for id in plain["token_ids"]])
        self.assertEqual([e["bytes"] for e in told], [e["bytes"] for e in plain["logprobs"]["content"]])
        self.assertTrue(all(name.startswith("token_id:") for name in named(told)))
        pieces = self.chunks(CHAT, {**body, "return_tokens_as_token_ids": True})
        self.assertEqual(sum(((c["choices"][0]["logprobs"] or {}).get("content", []) for c in pieces), []), told)

    def test_messages_that_go_on(self):
        """The prompt ends with the message; the answer is what a completion of that prompt is."""
        begun = [*USER, {"role": "assistant", "content": "The answer is:"}]
        body = body_of(CHAT, messages=begun, add_generation_prompt=False, continue_final_message=True, max_tokens=24)
        prompt = self.post("/apply-template", {"messages": begun, "continue_final_message": True})["prompt"]
        self.assertTrue(prompt.endswith("assistant\nThe answer is:"), prompt)
        want = self.post(TEXT, body_of(TEXT, prompt=prompt, parse_special=True, max_tokens=24, return_token_ids=True))
        told = self.post(CHAT, {**body, "return_token_ids": True})
        self.assertEqual(told["prompt_token_ids"], want["choices"][0]["prompt_token_ids"])
        self.assertEqual(told["choices"][0]["token_ids"], want["choices"][0]["token_ids"])
        self.assertEqual(self.told(CHAT, body)[0], want["choices"][0]["text"])
        del body["add_generation_prompt"]
        self.assertEqual(self.told(CHAT, body)[0], want["choices"][0]["text"])
        for more, code in (({"add_generation_prompt": True}, "invalid_value"), ({"messages": begun[:1] + [
                {"role": "assistant", "content": ""}]}, "invalid_value"),
                ({"continue_final_message": 1}, "invalid_type")):
            status, answer = self.server.post(CHAT, {**body, **more})
            self.assertEqual((status, answer["error"]["code"] or "invalid_value"), (400, code), answer)

    def test_reasoning_that_is_not_told(self):
        with template("{{ messages[0].content }}</think><think>\n") as options:
            server = Server("--quiet", *options)
            body = body_of(CHAT, max_tokens=12)
            plain = server.post(CHAT, body)[1]
            self.assertTrue(plain["choices"][0]["message"].pop("reasoning_content"))
            status, told = server.post(CHAT, {**body, "include_reasoning": False})
            self.assertEqual((status, told["choices"], told["usage"]["completion_tokens"]),
                             (200, plain["choices"], plain["usage"]["completion_tokens"]))
            chunks = [c["choices"][0]["delta"]
                      for _, c in server.events(CHAT, {**body, "include_reasoning": False})[:-1]]
            self.assertEqual(chunks, [{"role": "assistant", "content": ""}, {}])
            status, answer = server.post(CHAT, {**body, "include_reasoning": "no"})
            self.assertEqual((status, answer["error"]["param"]), (400, "include_reasoning"))
            self.assertEqual(server.stop()[0], 0)

    def test_reasoning_is_counted(self):
        """As /v1/responses counts it, and in pieces; by itself: without the answer's end, which is no part of it."""
        with template("{{ messages[0].content }}</think><think>\n") as options:
            server = Server("--quiet", *options)
            for n in (1, 2):
                body = body_of(CHAT, max_tokens=12, n=n, ignore_eos=True)
                answer = server.post(CHAT, body)[1]
                text = answer["choices"][0]["message"]["reasoning_content"]
                alone = len(server.post("/tokenize", {"content": text})[1]["tokens"])
                counts = [answer["usage"]["completion_tokens_details"]["reasoning_tokens"]]
                for more in ({}, {"include_reasoning": False}):
                    events = server.events(CHAT, {**body, "stream_options": {"include_usage": True}, **more})
                    counts.append(events[-2][1]["usage"]["completion_tokens_details"]["reasoning_tokens"])
                self.assertEqual(counts, [n * min(alone, 12)] * 3)
            told = server.post(RESPONSES,
                               {"input": USER, "temperature": 0, "max_output_tokens": 12, "ignore_eos": True})
            self.assertEqual(told[1]["usage"]["output_tokens_details"]["reasoning_tokens"], min(alone, 12), told)
            self.assertEqual(server.stop()[0], 0)
        details = self.post(CHAT, body_of(CHAT))["usage"]["completion_tokens_details"]
        self.assertEqual(details["reasoning_tokens"], 0)

    def test_schemas_of_other_servers_are_closed(self):
        """vLLM's and llama.cpp's, unless a body says which it wants; OpenAI's are what they say."""
        schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
        form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}
        closed = {'{"a":true}', '{"a":false}'}

        def texts(path, *parts):
            for seed in range(6):
                body = {**body_of(path, max_tokens=100), "temperature": 2, "seed": seed}
                for part in parts:
                    body.update(part)
                choice = self.post(path, body)["choices"][0]
                yield choice["text"] if path == TEXT else choice["message"]["content"]

        for path in (TEXT, CHAT):
            for own in ({"guided_json": schema}, {"structured_outputs": {"json": schema}}, {"json_schema": schema},
                        {"structured_outputs": {"json": json.dumps(schema), "disable_additional_properties": False}}):
                with self.subTest(path=path, own=own):
                    self.assertEqual(set(texts(path, own)) - closed, set())
                    self.assertEqual(set(texts(path, {"grammar_options": {"closed": None}}, own)) - closed, set())
                    self.assertNotEqual(set(texts(path, own, {"grammar_options": {"closed": False}})) - closed, set())
                    self.assertNotEqual(set(texts(path, {"grammar_options": {"closed": False}}, own)) - closed, set())
        self.assertNotEqual(set(texts(CHAT, {"response_format": form})) - closed, set())

    def test_both_names_of_a_grammar(self):
        """Of clients that speak to older and newer vLLM: the same text twice is one, and errors have the newer name."""
        schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}
        for older, newer, text in (("guided_grammar", {"grammar": 'root ::= "yes"'}, "yes"),
                                   ("guided_regex", {"regex": "a{3}b"}, "aaab"),
                                   ("guided_json", {"json": schema}, '{"a":1}')):
            value, = newer.values()
            for body in ({older: value, "structured_outputs": newer}, {"structured_outputs": newer, older: value}):
                with self.subTest(body=body):
                    answer = self.post(TEXT, body_of(TEXT, max_tokens=40, **body))
                    self.assertEqual(answer["choices"][0]["text"], text)
        for body, param in (({"guided_grammar": 'root ::= "a"', "structured_outputs": {"grammar": 'root ::= "b"'}},
                             "structured_outputs.grammar"),
                            ({"structured_outputs": {"grammar": 'root ::= "a"'}, "guided_regex": 'root ::= "a"'},
                             "guided_regex"),
                            ({"guided_grammar": 'root ::= "a"', "grammar": 'root ::= "a"'}, "grammar"),
                            ({"guided_json": {"type": "x"}, "structured_outputs": {"json": {"type": "x"}}},
                             "structured_outputs.json"),
                            ({"structured_outputs": {"json": {"type": "x"}}, "guided_json": {"type": "x"}},
                             "structured_outputs.json")):
            status, answer = self.server.post(TEXT, body_of(TEXT, **body))
            self.assertEqual((status, answer["error"]["param"]), (400, param), answer)

    def test_digits_of_schemas(self):
        """In each dialect, of short bodies and of long ones; and the names of integers that are too long."""
        digits = "18446744073709551617"
        schema = {"const": "HERE"}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        cases = [(TEXT, {"prompt": "x", "guided_json": schema, "max_tokens": 40}, lambda a: a["choices"][0]["text"]),
                 (CHAT, {"messages": USER, "response_format": form}, lambda a: a["choices"][0]["message"]["content"]),
                 (RESPONSES, {"input": "x", "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}},
                  lambda a: a["output"][0]["content"][0]["text"]),
                 ("/v1/messages", {"messages": USER, "max_tokens": 40, "output_config": {"format": {
                     "type": "json_schema", "schema": schema}}}, lambda a: a["content"][0]["text"]),
                 ("/api/chat", {"messages": USER, "format": schema, "stream": False},
                  lambda a: a["message"]["content"]),
                 ("/completion", {"prompt": "x", "json_schema": schema, "n_predict": 40}, lambda a: a["content"])]
        for path, body, text_of in cases:
            for pad in ("", " " * 70000):
                with self.subTest(path=path, pad=len(pad)):
                    answer = self.post(path, json.dumps(body).replace('"HERE"', digits) + pad)
                    self.assertEqual(text_of(answer), digits)
        for path, body in ((TEXT, {"prompt": "x"}), (CHAT, {"messages": USER})):
            for name in ("seed", "max_tokens", "priority", "top_k", "deadline_ms"):
                status, answer = self.server.post(path, {**body, name: 1 << 64})
                self.assertEqual((status, answer["error"]["param"], answer["error"]["code"]),
                                 (400, name, "invalid_value"), answer)
            self.post(path, {**body, "max_tokens": 2, "not_known": 1 << 70, "user": None})

    def test_deadline(self):
        """Of answers that never end by themselves."""
        endless = {"max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0, "deadline_ms": 20}
        for path, body in ((TEXT, {"prompt": "x"}), (CHAT, {"messages": USER})):
            status, answer = self.server.post(path, {**body, **endless})
            self.assertEqual((status, answer["error"]["code"]), (504, "timeout"), answer)
            self.assertEqual(self.server.post(path, {**body, "max_tokens": 2, "deadline_ms": 0})[0], 200)

    def test_one_value(self):
        for path, kinds in ONLY.items():
            want = self.post(path, body_of(path))["choices"]
            for taken, names in kinds.items():
                for name in names:
                    with self.subTest(path=path, name=name):
                        self.assertEqual(self.post(path, body_of(path, **{name: taken}))["choices"], want)
                        self.assertEqual(self.post(path, body_of(path, **{name: None}))["choices"], want)
                        for value, code in ((not taken, "unsupported_value"), ("yes", "invalid_type")):
                            status, answer = self.server.post(path, body_of(path, **{name: value}))
                            error = answer["error"]
                            self.assertEqual((status, error["param"], error["code"]), (400, name, code))

    def test_what_is_refused(self):
        for path in (TEXT, CHAT):
            want = self.post(path, body_of(path))["choices"]
            for name in EMPTY:
                self.assertEqual(self.post(path, body_of(path, **{name: []}))["choices"], want)
            never = {**NEVER, **({"chat_template": "{{ messages }}"} if path == CHAT else {})}
            for name, value in {**{name: [5] for name in EMPTY}, **never}.items():
                with self.subTest(path=path, name=name):
                    self.assertEqual(self.post(path, body_of(path, **{name: None}))["choices"], want)
                    status, answer = self.server.post(path, body_of(path, **{name: value}))
                    error = answer["error"]
                    self.assertEqual((status, error["param"], error["code"]), (400, name, "unsupported_parameter"))
            self.assertEqual(self.post(path, body_of(path, **ALONE))["choices"], want)

    def test_long_names(self):
        """Wherever a sentence has room for a part of a name, it is a part of whole letters."""
        for before in ("", "a"):
            name = before + "\u00e9" * 300
            path = urllib.parse.quote(name)
            tool = {"type": "function", "function": {"name": name}}
            refused = [(TEXT, {"prompt": STORY, "model": name}), (CHAT, {"messages": [{"role": name, "content": ""}]}),
                       (CHAT, {"messages": USER, "response_format": {"type": name}}),
                       (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": tool}),
                       (TEXT, {"prompt": STORY, "logit_bias": {name: 1}}),
                       (TEXT, {"prompt": STORY, "grammar_options": {name: 1}}),
                       (RESPONSES, {"input": [{"type": name}]}), (RESPONSES, {"input": "x", "include": [name]}),
                       ("/v1/messages", {"max_tokens": 1, "messages": [{"role": name, "content": ""}]}),
                       ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": name}]}]}),
                       ("/api/chat", {"model": name, "messages": USER}), ("/completion", {"prompt": "", "model": name})]
            answers = [(where, self.server.ask("POST", where, json.dumps(body))) for where, body in refused]
            answers += [(where, self.server.ask("GET", where)) for where in ("/" + path, "/v1/models/" + path)]
            for where, (status, data, _) in answers:
                told = json.dumps(json.loads(data), ensure_ascii=False)
                self.assertIn(status, (400, 404), told)
                self.assertIn(name[:8], told, where)
                self.assertNotIn("\ufffd", told, where)
        self.assertNotIn("\ufffd", self.server.said())

    def test_what_stands_for_numbers(self):
        """A schema has the numbers that are written as such, and no object of a body stands for one."""
        schema = '{"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": %s}}}'
        body = '{"messages": [{"role": "user", "content": "x"}], "max_tokens": 99, "response_format": ' + schema + "}"
        status, answer = self.server.post(CHAT, body % "18446744073709551616")
        self.assertEqual((status, answer["choices"][0]["message"]["content"]), (200, "18446744073709551616"))
        for word in (r'{"\u0001number": "5"}', r'{"\u0001numbe\u0072": "18446744073709551616"}'):
            status, answer = self.server.post(CHAT, body % word)
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer["choices"][0]["message"]["content"]), json.loads(word))

    def test_what_the_template_is_told(self):
        """vLLM's names for it."""
        text = "{% for d in documents %}[{{ d.title }}]{% endfor %}{% if add_generation_prompt %}!{% endif %}"
        with template(text) as options:
            server = Server("--quiet", *options)
            for more, words in (({}, "!"), ({"documents": [{"title": "A"}, {"title": "B"}]}, "[A][B]!"),
                                ({"documents": [{"title": "A"}], "add_generation_prompt": False}, "[A]"),
                                ({"documents": [{"title": "A"}], "chat_template_kwargs": {"documents": []}}, "!")):
                status, answer = server.post(CHAT, body_of(CHAT, return_token_ids=True, **more))
                self.assertEqual(status, 200, answer)
                want = server.post("/tokenize", {"content": words, "add_special": True})[1]["tokens"]
                self.assertEqual(answer["prompt_token_ids"], want)
            for name, value in (("documents", "A"), ("add_generation_prompt", "no")):
                status, answer = server.post(CHAT, body_of(CHAT, **{name: value}))
                self.assertEqual((status, answer["error"]["param"]), (400, name))
            self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    common.main("__main__")
