#!/usr/bin/env python3
"""runnel serve --lora: each adapter is a model of its own name beside its base, in every form that the server speaks.
Answers are greedy: one text each."""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import common
from batch_job import CHAT, EMBED, RESPONSES, TEXT, USER, line
from common import MODEL, make_adapter, run
from server import NAME, Server
from test_serve_batches import ENDLESS, Client

sys.path.insert(0, str(common.ROOT / "tests/oracle"))
from make_adapter import Reader

STORY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
ASK = "What is 2+2?"


def make(case):
    case.folder = pathlib.Path(case.enterClassContext(tempfile.TemporaryDirectory()))
    case.a = make_adapter(case.folder / "a.gguf", "--seed", 1, "--strength", 1)
    case.b = make_adapter(case.folder / "b.gguf", "--seed", 2, "--rank", 3, "--strength", 1)


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make(cls)
        cls.server = Server("--lora", f"first={cls.a}", "--lora", f"{cls.b}:1.5", "--alias", "main")

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)

    def post(self, path, body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def text(self, model, **more):
        answer = self.post(TEXT, {**STORY, **({"model": model} if model else {}), **more})
        self.assertEqual(answer["model"], model or more.get("adapter") or NAME)
        return answer["choices"][0]["text"]

    def texts(self):
        return [self.text(name) for name in (NAME, "first", "b")]

    def test_as_the_program(self):
        words = ("run", MODEL, "-p", STORY["prompt"], "-n", STORY["max_tokens"], "--ignore-eos", "-q")
        want = [run(*words, *options).stdout.decode() for options in ((), ("--lora", self.a),
                                                                      ("--lora", self.b + ":1.5"))]
        self.assertEqual(len(set(want)), 3)
        self.assertEqual(self.texts(), want)
        self.assertEqual([self.text(name) for name in (None, "main", "first:latest")], [want[0], want[0], want[1]])

    def test_each_form(self):
        """One question in each: as told whole and in pieces; the same text where the prompt is the same."""
        usual = {"temperature": 0, "seed": 1}
        options = {"options": {"num_predict": 12, **usual}, "stream": False}
        forms = (
            (CHAT, {"messages": USER, "max_tokens": 12, **usual}, lambda a: a["choices"][0]["message"]["content"]),
            (TEXT, STORY, lambda a: a["choices"][0]["text"]),
            (RESPONSES, {"input": ASK, "max_output_tokens": 12, **usual},
             lambda a: a["output"][0]["content"][0]["text"]),
            ("/v1/messages", {"messages": USER, "max_tokens": 12, "temperature": 0}, lambda a: a["content"][0]["text"]),
            ("/api/chat", {"messages": USER, **options}, lambda a: a["message"]["content"]),
            ("/api/generate", {"prompt": ASK, **options}, lambda a: a["response"]),
            ("/completion", {"prompt": "Once", "n_predict": 12, **usual}, lambda a: a["content"]),
            (EMBED, {"input": ASK}, lambda a: tuple(a["data"][0]["embedding"])),
            ("/api/embed", {"input": ASK}, lambda a: tuple(a["embeddings"][0])),
            ("/api/embeddings", {"prompt": ASK}, lambda a: tuple(a["embedding"])),
            ("/embedding", {"content": ASK}, lambda a: tuple(a[0]["embedding"][0])))
        got = {}
        for path, body, take in forms:
            with self.subTest(path=path):
                got[path] = [take(self.post(path, {**body, "model": name})) for name in (NAME, "first", "b")]
                self.assertEqual(len(set(got[path])), 3)
        for path, body, take in forms:
            for named in ({"adapter": "first"}, {"lora": [{"id": 0, "scale": 1}]},
                          {"model": "b", "lora": [{"id": 0, "scale": 1}]}):
                self.assertEqual(take(self.post(path, {**body, **named})), got[path][1], (path, named))
            self.assertEqual(take(self.post(path, {**body, "model": "first", "adapter": ""})), got[path][0], path)
            for named, status in (({"adapter": "x"}, 404), ({"adapter": 5}, 400), ({"lora": {}}, 400),
                                  ({"lora": [{"id": 7, "scale": 1}]}, 400), ({"lora": [{"id": 0}]}, 400),
                                  ({"adapter": "b", "lora": []}, 400)):
                self.assertEqual(self.server.post(path, {**body, **named})[0], status, (path, named))
        for path in ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings"):  # which load here
            for named, status in (({"lora": [{"id": 0, "scale": 1}]}, 200), ({"lora": [5]}, 400), ({"adapter": 5}, 400)):
                self.assertEqual(self.server.post(path, {"model": NAME, **named})[0], status, (path, named))
        for paths in ((CHAT, RESPONSES, "/v1/messages", "/api/chat", "/api/generate"), (EMBED, "/embedding")):
            for path in paths[1:]:
                self.assertEqual(got[path], got[paths[0]], path)
        for i, name in enumerate((NAME, "first", "b")):
            events = self.server.events(CHAT, {**forms[0][1], "model": name})
            told = [chunk["choices"][0]["delta"].get("content") or "" for _, chunk in events[:-1]]
            self.assertEqual("".join(told), got[CHAT][i])
            self.assertEqual({chunk["model"] for _, chunk in events[:-1]}, {name})

    def test_lists(self):
        answer = json.loads(self.server.get("/v1/models")[1])
        rows = answer["data"]
        self.assertEqual([(row["id"], row["root"], row["parent"]) for row in rows],
                         [(NAME, NAME + ".gguf", None), ("main", NAME + ".gguf", None), ("first", "a.gguf", NAME),
                          ("b", "b.gguf", NAME)])
        self.assertEqual((answer["first_id"], answer["last_id"]), (NAME, "b"))
        self.assertEqual({row["max_model_len"] for row in rows}, {rows[0]["max_model_len"]})
        for row in rows:
            self.assertEqual(json.loads(self.server.get("/v1/models/" + row["id"])[1]), row)
        for path, names in (("/api/tags", (NAME, "main")), ("/api/ps", (NAME,))):
            rows = json.loads(self.server.get(path)[1])["models"]
            self.assertEqual(len({row["digest"] for row in rows}), 3)
            for row in rows:
                self.assertRegex(row["digest"], "^[0-9a-f]{64}$")
            self.assertEqual([(row["name"], row["model"], row["details"]["parent_model"]) for row in rows],
                             [(name, name, "") for name in names] + [("first", "first", NAME), ("b", "b", NAME)])
        self.assertEqual(self.post("/api/show", {"model": "b"})["details"]["parent_model"], NAME)
        self.assertEqual(json.loads(self.server.get("/lora-adapters")[1]),
                         [{"id": 0, "name": "first", "path": "a.gguf", "scale": 1},
                          {"id": 1, "name": "b", "path": "b.gguf", "scale": 1.5}])
        status, answer = self.server.post("/lora-adapters", [{"id": 0, "scale": 0.5}])
        self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"))
        self.assertIn("scales are set at the start", answer["error"]["message"])

    def test_unknown_names(self):
        for path, body in ((TEXT, STORY), (CHAT, {"messages": USER}), (EMBED, {"input": "a"}),
                           ("/completion", {"prompt": "a"}), ("/tokenize", {"content": "a"})):
            for name in ("a", "a.gguf", "FIRST", "first:b"):
                status, answer = self.server.post(path, {**body, "model": name})
                self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
        self.assertEqual(self.server.post("/api/chat", {"model": "a", "messages": USER})[0], 404)
        self.assertEqual(self.server.get("/v1/models/a")[0], 404)
        self.assertEqual(self.post("/tokenize", {"content": "a", "model": "first"}),
                         self.post("/tokenize", {"content": "a"}))

    def test_by_a_field(self):
        base, first, b = self.texts()
        for model, name, want in ((NAME, "b", b), (None, "first", first), ("first", "b", b), ("first", "", base),
                                  ("first", None, first), (NAME, "", base)):
            self.assertEqual(self.text(model, adapter=name), want)
        status, answer = self.server.post(TEXT, {**STORY, "adapter": "x"})
        error = answer["error"]
        self.assertEqual((status, error["code"], error["param"]), (404, "model_not_found", "adapter"))
        self.assertIn(f"the model '{NAME}' has no adapter 'x'", error["message"])
        self.assertEqual(self.server.post(TEXT, {**STORY, "adapter": 5})[0], 400)
        vectors = [tuple(self.post(EMBED, {"input": ASK, "adapter": name})["data"][0]["embedding"])
                   for name in ("", "first", "b")]
        self.assertEqual(len(set(vectors)), 3)

    def test_as_llama(self):
        base, first, b = self.texts()
        on, off = {"id": 0, "scale": 1}, {"id": 1, "scale": 0}
        for lora, want in (([on], first), ([on, off], first), ([off, on], first), ([{"id": 1, "scale": 1.5}], b),
                           ([], base), ([off], base), ([on, on], first), ([{"id": 0, "scale": 0}, on], first),
                           ([on, {"id": 0, "scale": 0}], base), ([{"id": 0, "scale": 7}, on], first),
                           ([{"id": 0, "scale": 0.0}, off], base), ([{"id": 0.0, "scale": 1.0}], first)):
            self.assertEqual(self.text(NAME, lora=lora), want)
        long = json.dumps({**STORY, "lora": [on]}).replace('"scale": 1', '"scale": 1.00000000000000000001')
        self.assertEqual(self.post(TEXT, long)["choices"][0]["text"], first)
        self.assertEqual(self.text("first", lora=[]), base)
        self.assertEqual(self.text("first", lora=None), first)
        hot = {"prompt": "Once", "n_predict": 12, "temperature": 0}
        self.assertEqual(self.post("/completion", {**hot, "lora": [on]})["content"],
                         self.post("/completion", {**hot, "model": "first"})["content"])
        for lora, param, part in (
                ([{"id": 2, "scale": 1}], "lora", "no adapter 2"), ([{"id": 2, "scale": 0}], "lora", "no adapter 2"),
                ([{"id": 0, "scale": 0.5}], "lora", "loaded with the scale 1"),
                ([{"id": 1, "scale": 1}], "lora", "loaded with the scale 1.5"),
                ([on, {"id": 1, "scale": 1.5}], "lora", "one adapter at most"),
                ([{"id": -1, "scale": 1}], "lora[0].id", "allowed is"), ([{"scale": 1}], "lora[0].id", "missing"),
                ([on, {"id": 1}], "lora[1].scale", "missing"), ([{"id": 0, "scale": "1"}], "lora[0].scale", "must be"),
                ([5], "lora[0]", "must be"), ({}, "lora", "must be")):
            for path, body in ((TEXT, STORY), ("/completion", hot), (CHAT, {"messages": USER})):
                with self.subTest(lora=lora, path=path):
                    status, answer = self.server.post(path, {**body, "lora": lora})
                    self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
                    self.assertIn(part, answer["error"]["message"])
        status, answer = self.server.post(TEXT, {**STORY, "lora": [on], "adapter": "b"})
        self.assertEqual((status, answer["error"]["param"]), (400, "lora"))

    def test_many_at_once(self):
        """In the same steps: each gets what it gets alone."""
        want = dict(zip((NAME, "first", "b"), self.texts()))
        names = list(want) * 8
        clients = [self.server.begin(TEXT, {**STORY, "model": name}) for name in names]
        for name, client in zip(names, clients):
            data = b""
            while b"\r\n\r\n" not in data or len(data.split(b"\r\n\r\n", 1)[1]) < int(
                    data.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]):
                data += client.recv(65536)
            client.close()
            answer = json.loads(data.split(b"\r\n\r\n", 1)[1])
            self.assertEqual(answer["choices"][0]["text"], want[name])


class Alone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make(cls)

    def start(self, *options, **more):
        server = Server(*options, **more)
        self.addCleanup(server.stop)
        return server

    def text(self, server, model, **headers):
        status, answer = server.post(TEXT, {**STORY, "model": model}, headers)
        self.assertEqual((status, answer.get("model")), (200, model), answer)
        return answer["choices"][0]["text"]

    def test_the_base_stays_as_it_is(self):
        plain, with_two = self.start(), self.start("--lora", self.a, "--lora", self.b)
        self.assertEqual(self.text(plain, NAME), self.text(with_two, NAME))
        self.assertEqual(json.loads(plain.get("/lora-adapters")[1]), [])
        status, answer = plain.post(TEXT, {**STORY, "lora": [{"id": 0, "scale": 1}]})
        self.assertEqual((status, answer["error"]["param"]), (400, "lora"))

    def test_refused_at_the_start(self):
        for words, part in (((MODEL, "--lora", f"{NAME}={self.a}"), f"adapter {NAME} has the name of a model"),
                            ((MODEL, "--lora", f"x={self.a}", "--alias", "x"), "adapter x has the name of a model"),
                            ((MODEL, f"a={MODEL}", "--lora", self.a), "two models are named a"),
                            ((MODEL, "--lora", self.a, "--lora", f"a={self.b}"), "two adapters are called 'a'"),
                            ((MODEL, "--lora", f"{self.a}:0"), "a scale but 0"),
                            ((MODEL, "--lora", "/nosuch.gguf"), "/nosuch.gguf: cannot be opened"),
                            ((MODEL, "--lora", MODEL.replace("Q8_0", "none")), "cannot be opened"),
                            ((MODEL, "--lora", f"m={MODEL}"), "key general.type"),
                            (("--models-dir", self.folder, "--lora", self.a), "there is none")):
            with self.subTest(words=words):
                got = run("serve", *words, "--port", 0)
                self.assertIn(got.returncode, (1, 2))
                self.assertIn(part, got.stderr.decode())

    def config(self, models):
        path = self.folder / "models.json"
        path.write_text(json.dumps({"models": models}))
        return path

    def test_each_model_has_its_own(self):
        words = ("run", MODEL, "-p", STORY["prompt"], "-n", STORY["max_tokens"], "--ignore-eos", "-q")
        want = {name: run(*words, *options).stdout.decode()
                for name, options in (("base", ()), ("a", ("--lora", self.a)), ("b", ("--lora", self.b)),
                                      ("a2", ("--lora", self.a + ":2")))}
        self.assertEqual(len(set(want.values())), 4)
        file = self.config([{"name": "one", "path": MODEL, "options": {"lora": [self.b, f"a2={self.a}:2"]}},
                            {"name": "two", "path": MODEL, "options": {"lora": f"only={self.b}"}},
                            {"name": "three", "path": MODEL}])
        server = self.start("--models-file", file, "--lora", self.a)
        rows = json.loads(server.get("/v1/models")[1])["data"]
        self.assertEqual([(row["id"], row["parent"]) for row in rows],
                         [(NAME, None), ("a", NAME), ("one", None), ("b", "one"), ("a2", "one"), ("two", None),
                          ("only", "two"), ("three", None)])
        for name, key in ((NAME, "base"), ("a", "a"), ("a2", "a2"), ("b", "b"), ("one", "base"), ("only", "b"),
                          ("two", "base"), ("three", "base")):
            self.assertEqual(self.text(server, name), want[key], name)
        status, answer = server.post(TEXT, {**STORY, "model": "two", "adapter": "a"})  # another model's
        self.assertEqual(status, 404)
        for models, part in (([{"path": MODEL, "options": {"lora": True}}], "option lora"),
                             ([{"path": MODEL, "options": {"lora": [self.a + ":0"]}}], "option lora"),
                             ([{"path": MODEL, "options": {"lora": self.a}}, {"name": "a", "path": MODEL}],
                              "two models are named a"),
                             ([{"path": MODEL, "options": {"lora": self.a}},
                               {"name": "x", "path": MODEL, "options": {"lora": self.a}}],
                              "another model's adapter")):
            got = run("serve", "--models-file", self.config(models), "--port", 0)
            self.assertEqual(got.returncode, 1)
            self.assertIn(part, got.stderr.decode())

    def test_files_of_a_folder_give_way(self):
        folder = self.folder / "models"
        folder.mkdir()
        for name in ("a", "other"):
            shutil.copy(MODEL, folder / f"{name}.gguf")
        server = self.start("--lora", self.a, "--models-dir", folder)
        rows = json.loads(server.get("/v1/models")[1])["data"]
        self.assertEqual([(row["id"], row["parent"]) for row in rows], [(NAME, None), ("a", NAME), ("other", None)])
        self.assertNotEqual(self.text(server, "a"), self.text(server, "other"))

    def test_an_adapter_that_was_changed_is_read_again(self):
        path = shutil.copy(self.a, self.folder / "c.gguf")
        server = self.start("--lora", path)
        first = self.text(server, "c")
        os.replace(shutil.copy(self.b, self.folder / "new"), path)
        server.process.send_signal(signal.SIGHUP)
        while self.text(server, "c") == first:
            pass
        self.assertEqual(self.text(server, "c"), self.text(self.start("--lora", self.b), "b"))

    def test_a_switched_link_is_read_again(self):
        """Files of one length and one date, as in folders of nix or ostree: an adapter, and a model."""
        def change(path):
            data = bytearray(path.read_bytes())
            for i in range(len(data) * 3 // 4, len(data)):
                data[i] ^= 0x80
            path.write_bytes(data)

        for kind, source in (("adapter", self.a), ("model", MODEL)):
            with self.subTest(kind=kind):
                link = self.folder / f"current_{kind}"
                for version in ("one", "two"):
                    folder = self.folder / f"{kind}_{version}"
                    folder.mkdir()
                    shutil.copy(source, folder / "m.gguf")
                    if version == "two":
                        change(folder / "m.gguf")
                    os.utime(folder / "m.gguf", (1, 1))
                link.symlink_to(f"{kind}_one")
                path = link / "m.gguf"
                server = self.start("--lora", path) if kind == "adapter" else self.start(model=path)
                first = self.text(server, "m")
                (self.folder / "link").symlink_to(f"{kind}_two")
                os.replace(self.folder / "link", link)
                server.process.send_signal(signal.SIGHUP)
                while self.text(server, "m") == first:
                    pass

    def test_digests_of_what_is_not_loaded(self):
        """Ollama's client takes 12 digits of each."""
        server = self.start("--models-file", self.config([{"path": MODEL, "options": {"lora": [self.a, self.b]}},
                                                          {"name": "two", "path": MODEL}]), model=None)
        rows = json.loads(server.get("/api/tags")[1])["models"]
        self.assertEqual([row["name"] for row in rows], [NAME, "a", "b", "two"])
        for row in rows:
            self.assertRegex(row["digest"], "^[0-9a-f]{64}$")
        self.assertEqual(len({row["digest"] for row in rows}), 3)

    def test_files_of_a_list_are_not_written_over(self):
        """By what the program writes: those that an entry names, too."""
        draft = str(shutil.copy(MODEL, self.folder / "draft.gguf"))
        one = str(shutil.copy(self.a, self.folder / "one.gguf"))
        base, *parts = [str(shutil.copy(MODEL, self.folder / f"p{part}.gguf"))
                        for part in ("", "-00001-of-00002", "-00002-of-00002")]
        file = self.config([{"name": "base", "path": base,
                             "options": {"lora": [self.b, f"x={one}:0.5"], "draft": draft}}, {"path": parts[0]}])
        for name, path in (("--lora", one), ("--lora", self.b), ("--draft", draft), ("the model", base),
                           ("the model", parts[1])):
            before = pathlib.Path(path).read_bytes()
            for option in ("--metrics", "--trace", "--experts"):
                got = run("serve", "--models-file", file, option, path, "--port", 0)
                self.assertEqual(got.returncode, 2, (name, option))
                self.assertRegex(got.stderr.decode(),
                                 rf"^runnel: \S+ is ({name} and {option}|{option} and {name}) at once")
                self.assertEqual(pathlib.Path(path).read_bytes(), before)

    def test_room(self):
        """What adapters take, by the shapes of their tensors: for each matrix the largest rank, of each and of none."""
        large = make_adapter(self.folder / "large.gguf", "--rank", 40, "--only", "attn_q|ffn_up", "--type", "f32")
        files, ranks, shapes, types = [self.a, self.b, large, self.a], {}, {}, {}
        for path in files:
            tensors = Reader(path).tensors
            for name in {name.rsplit(".lora_", 1)[0] for name in tensors}:
                (columns, rank), (_, rows) = tensors[name + ".lora_a"], tensors[name + ".lora_b"]
                ranks[name] = max(ranks.get(name, 0), rank)
                shapes[name] = columns, rows
                types[name] = 4 if path == large else types.get(name, 2)
        want = sum(5 * ranks[name] * (columns * 4 + rows * types[name]) for name, (columns, rows) in shapes.items())
        options = {"ctx": 256, "kv-size": "4M"}
        file = self.config([{"name": "bare", "path": MODEL, "options": options},
                            {"name": "full", "path": MODEL,
                             "options": {**options, "lora": [f"n{i}={path}" for i, path in enumerate(files)]}}])
        server = self.start("--models-file", file, model=None)
        for name in ("bare", "full"):
            self.text(server, name)
        sizes = {row["name"]: row["size"] for row in json.loads(server.get("/api/ps")[1])["models"]}
        self.assertEqual(sizes["full"] - sizes["bare"], want)
        few = sizes["full"] - want // 2  # and more than the files have
        self.assertLess(sizes["bare"] + sum(map(os.path.getsize, files)), few)
        for room, status in ((sizes["full"] + (1 << 20), 200), (few, 503)):  # asked before it is loaded
            server = self.start("--models-file", file, "--models-memory", room, model=None)
            got, answer = server.post(TEXT, {**STORY, "model": "full"})
            self.assertEqual(got, status, answer)
        self.assertEqual(answer["error"]["code"], "model_too_large")

    def test_a_batch_is_of_what_was_loaded(self):
        """The file of its adapter, or of its model, is replaced before it begins, and the server killed within it."""
        for kind, source in (("adapter", self.a), ("model", MODEL)):
            with self.subTest(kind=kind):
                live = self.folder / f"live_{kind}.gguf"
                shutil.copy(source, live)
                files = ("--files-dir", self.folder / f"files_{kind}")
                words = (("--lora", f"live={live}", *files), {}) if kind == "adapter" else (files, {"model": live})
                name = "live" if kind == "adapter" else live.stem
                server = self.start(*words[0], **words[1])
                want = self.text(server, name)
                data = bytearray(live.read_bytes())
                for i in range(len(data) * 3 // 4, len(data)):
                    data[i] ^= 0x80
                new = self.folder / "new"
                new.write_bytes(data)
                os.replace(new, live)
                bodies = [STORY] * 3 + [ENDLESS] * 100  # it does not come to its end
                status, batch = Client(server).begin([line(str(i), TEXT, {**body, "model": name})
                                                      for i, body in enumerate(bodies)])
                self.assertEqual(status, 200, batch)
                written = self.folder / f"files_{kind}" / (batch["id"] + ".out")
                while not written.exists() or written.stat().st_size == 0:
                    pass
                server.process.kill()
                server.stop()
                server = self.start(*words[0], **words[1])
                self.assertNotEqual(self.text(server, name), want)
                batch = Client(server).wait(batch)
                self.assertEqual(batch["status"], "failed")
                texts = {json.loads(text)["response"]["body"]["choices"][0]["text"]
                         for text in Client(server).content(batch["output_file_id"]).splitlines()}
                self.assertEqual(texts, {want})
                self.assertIn(f"belongs to another job: its {kind}", server.said())

    def test_batches(self):
        server = self.start("--lora", self.a, "--lora", self.b, "--files-dir", self.folder / "files")
        client = Client(server)
        for name, mode in (("a", {"model": "a"}), (NAME, {})):
            status, batch = client.begin([line("1", TEXT, {**STORY, **mode}), line("2", TEXT, STORY),
                                          line("3", TEXT, {**STORY, "model": "b"}),
                                          line("4", TEXT, {**STORY, "adapter": "b"})])
            self.assertEqual(status, 200, batch)
            batch = client.wait(batch)
            self.assertEqual((batch["status"], batch["request_counts"]),
                             ("completed", {"total": 4, "completed": 2, "failed": 2}))
            answers = [json.loads(text)["response"]["body"]
                       for text in client.content(batch["output_file_id"]).splitlines()]
            self.assertEqual([(answer["model"], answer["choices"][0]["text"]) for answer in answers],
                             [(name, self.text(server, name))] * 2)
            errors = [json.loads(text)["response"]["body"]["error"]["message"]
                      for text in client.content(batch["error_file_id"]).splitlines()]
            self.assertEqual(errors, [f"model: the batch is one of '{name}'",
                                      f"adapter: the batch is one of '{name}', which says it"])
        status, answer = client.begin([line("1", TEXT, {**STORY, "model": "c"})])
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_keys(self):
        """A key that may use a model may use its adapters; scopes are what they are without any."""
        keys = self.folder / "keys"
        keys.write_text("".join(f"sha256:{hashlib.sha256(key.encode()).hexdigest()} {key} scopes={key}\n"
                                for key in ("chat", "embeddings", "models", "admin")))
        server = Server("--lora", self.a, "--api-key-file", keys, ready=False)
        self.addCleanup(server.stop)
        while server.get("/ready")[0] != 200:
            pass

        def ask(key, method, path, body=None):
            return server.ask(method, path, body and json.dumps(body), {"Authorization": f"Bearer {key}"})[0]

        for key, path, body, want in (("chat", TEXT, {**STORY, "model": "a"}, 200),
                                      ("chat", EMBED, {"input": "a", "model": "a"}, 403),
                                      ("embeddings", EMBED, {"input": "a", "model": "a"}, 200),
                                      ("embeddings", TEXT, {**STORY, "model": "a"}, 403),
                                      ("models", TEXT, {**STORY, "model": "a"}, 403),
                                      ("none", TEXT, {**STORY, "model": "a"}, 401),
                                      ("models", "/lora-adapters", {}, 403), ("admin", "/lora-adapters", {}, 400)):
            self.assertEqual(ask(key, "POST", path, body), want, (key, path))
        self.assertEqual([ask(key, "GET", "/lora-adapters") for key in ("models", "chat")], [200, 403])

    def test_scores(self):
        ranker = self.folder / "ranker.gguf"
        subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], MODEL, ranker, "bare"], check=True)
        a = make_adapter(self.folder / "ra.gguf", "--seed", 1, "--strength", 1, model=ranker)
        b = make_adapter(self.folder / "rb.gguf", "--seed", 2, "--strength", 1, model=ranker)
        server = self.start("--lora", f"a={a}", "--lora", f"b={b}", model=ranker)
        for path, body, take in (("/v1/rerank", {"query": "Who?", "documents": ["One."]},
                                  lambda answer: answer["results"][0]["relevance_score"]),
                                 ("/v1/classify", {"input": "One."}, lambda answer: str(answer["data"][0]["probs"]))):
            got = []
            for name in ("ranker", "a", "b"):
                status, answer = server.post(path, {**body, "model": name})
                self.assertEqual(status, 200, answer)
                got.append(take(answer))
            self.assertEqual(len(set(got)), 3, path)
        want = json.loads(run("score", ranker, "--query", "Who?", "One.", "-q", "--json", "--lora", a).stdout)
        status, answer = server.post("/v1/rerank", {"query": "Who?", "documents": ["One."], "model": "a"})
        self.assertEqual(answer["results"], want["results"])


if __name__ == "__main__":
    common.main(__name__)
