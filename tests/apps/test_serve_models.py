#!/usr/bin/env python3
"""runnel serve with several models: loaded when they are asked for, unloaded for others' sake, read again on SIGHUP.
Nothing here is judged by a clock: what must happen is waited for, what must not is looked at where it would have."""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import tempfile
import threading
import unittest

import common
from batch_job import CHAT, TEXT, USER, line
from common import MODEL, run
from server import NAME, Server
from test_serve_batches import Client

SHORT = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
LONG = {"prompt": "Once", "max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0, "stream": True}
SMALL = ("--ctx", 256)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def put(self, *names):
        for name in names:
            shutil.copy(MODEL, self.folder / f"{name}.gguf")

    def serve(self, *options, model=None, **more):
        server = Server("--models-dir", self.folder, *SMALL, *options, model=model, **more)
        self.addCleanup(server.stop)
        return server

    def loaded(self, server):
        return {model["name"] for model in json.loads(server.get("/api/ps")[1])["models"]}

    def wait_for(self, server, names):
        while self.loaded(server) != set(names):
            pass

    def wait_leaving(self, server, model):
        """Until the model is to make room for one that waits: a request of it that waits, too."""
        waiting = server.metric("runnel_http_waiting")
        while True:
            client = server.begin(TEXT, {**SHORT, "model": model})
            while not select.select([client], [], [], 0)[0]:
                if server.metric("runnel_http_waiting") > waiting:
                    return client
            client.close()

    def wait_waiting(self, server, n):
        while server.metric("runnel_http_waiting") != n:
            pass

    def size(self):
        """What one of them takes in memory."""
        server = self.serve()
        self.ask(server, next(self.folder.glob("*.gguf")).stem)
        size = json.loads(server.get("/api/ps")[1])["models"][0]["size"]
        server.stop()
        return size

    def ask(self, server, model, **more):
        return server.post(TEXT, {**SHORT, "model": model, **more})

    def begin(self, server, model):
        """A stream that does not end, with its first bytes read."""
        client = server.begin(TEXT, {**LONG, "model": model})
        self.assertIn(b"200 OK", client.recv(1000))
        return client

    def is_silent(self, client):
        client.setblocking(False)
        try:
            client.recv(1)
        except BlockingIOError:
            return True
        finally:
            client.settimeout(common.PATIENCE)
        return False


class OnDemand(Folder):
    def test_lists_and_loads(self):
        self.put("b", "a")
        shutil.copy(MODEL, self.folder / "split-00001-of-00002.gguf")
        for name in ("split-00002-of-00002.gguf", ".hidden.gguf", "other.bin"):
            (self.folder / name).write_bytes(b"x")
        server = self.serve()
        names = ["a", "b", "split"]
        self.assertEqual([m["id"] for m in json.loads(server.get("/v1/models")[1])["data"]], names)
        tags = json.loads(server.get("/api/tags")[1])["models"]
        self.assertEqual([(m["name"], m["size"]) for m in tags], [(n, os.path.getsize(MODEL)) for n in names])
        self.assertEqual(self.loaded(server), set())
        alone = Server(*SMALL)
        want = alone.post(TEXT, SHORT)[1]["choices"]
        alone.stop()
        status, answer = self.ask(server, "b")
        self.assertEqual((status, answer["model"], answer["choices"]), (200, "b", want))
        self.assertEqual(self.loaded(server), {"b"})
        for path, body in ((TEXT, SHORT), (CHAT, {"messages": USER}), ("/tokenize", {"content": "a"})):
            status, answer = server.post(path, {**body, "model": "c"})
            self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
        self.assertEqual(server.post("/api/chat", {"model": "c", "messages": USER})[0], 404)
        self.assertEqual(server.post("/tokenize", {"content": "a", "model": "a"})[0], 200)
        self.assertEqual(self.loaded(server), {"a", "b"})

    def test_the_longest_unused_goes(self):
        self.put("a", "b", "c")
        server = self.serve("--models-memory", self.size() * 5 // 2)
        for name, there in (("a", "a"), ("b", "ab"), ("a", "ab"), ("c", "ac"), ("b", "bc")):
            self.assertEqual(self.ask(server, name)[0], 200)
            self.assertEqual(self.loaded(server), set(there))

    def test_who_has_requests_stays(self):
        self.put("a", "b")
        server = self.serve("--models-memory", self.size() * 3 // 2)
        held = self.begin(server, "a")
        other = server.begin(TEXT, {**SHORT, "model": "b"})
        self.wait_waiting(server, 1)
        waiting, again = 1, None
        while waiting != 2:  # until it is known what b needs, a takes more; then they wait behind b
            again = server.begin(TEXT, {**SHORT, "model": "a"})
            while (waiting := server.metric("runnel_http_waiting")) != 2 and self.is_silent(again):
                pass
        for _ in range(100):
            self.assertGreater(len(held.recv(4096)), 0)
        self.assertEqual(server.get("/health")[0], 200)
        self.assertEqual(self.loaded(server), {"a"})
        self.assertTrue(self.is_silent(other) and self.is_silent(again))
        held.close()
        self.assertIn(b"200 OK", other.recv(100))
        self.assertIn(b"200 OK", again.recv(100))
        self.wait_for(server, "a")

    def test_many_clients_of_three_models(self):
        self.put("a", "b", "c")
        server = self.serve("--models-memory", self.size() * 3 // 2)
        got = {}

        def client(i):
            got[i] = self.ask(server, "abc"[i % 3])

        threads = [threading.Thread(target=client, args=(i,)) for i in range(36)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({status for status, _ in got.values()}, {200})
        self.assertEqual(len({json.dumps(answer["choices"]) for _, answer in got.values()}), 1)
        self.assertEqual(len(self.loaded(server)), 1)

    def test_who_leaves_while_waiting(self):
        self.put("a", "b")
        server = self.serve("--models-memory", self.size() * 3 // 2, "--log-json")
        held = self.begin(server, "a")
        other = server.begin(TEXT, {**SHORT, "model": "b"})
        self.wait_waiting(server, 1)
        other.close()
        self.wait_waiting(server, 0)
        while not any(json.loads(line).get("cancelled") for line in server.lines()):
            pass
        held.close()
        self.assertEqual(self.ask(server, "a")[0], 200)
        self.assertNotIn("b is ready", server.stop()[1])

    def test_long_bodies_that_wait(self):
        """They take much more memory once they are read: what waits is bounded by that."""
        self.put("a", "b")
        server = self.serve("--models-memory", self.size() * 3 // 2, "--max-queue", 40 << 20)
        held = self.begin(server, "a")
        long = {**SHORT, "model": "b", "metadata": {"x": [{}] * 100000}}  # 400 kB, which are more than 25 MB
        waiting = [server.begin(TEXT, long)]
        self.wait_waiting(server, 1)
        status, answer = server.post(TEXT, long)
        self.assertEqual((status, answer["error"]["code"]), (503, "server_busy"))
        waiting += [server.begin(TEXT, {**SHORT, "model": "b", "user": "x" * 70000}) for _ in range(3)]
        waiting.append(server.begin(TEXT, {**SHORT, "model": "b"}))
        self.wait_waiting(server, 5)
        waiting.pop(0).close()  # it leaves room for the next
        self.wait_waiting(server, 4)
        waiting.append(server.begin(TEXT, long))
        self.wait_waiting(server, 5)
        held.close()
        for client in waiting:
            self.assertIn(b"200 OK", client.recv(100))

    def test_long_bodies_wait_up_to_the_longest_that_is_allowed(self):
        """--max-queue is at least --max-body, for those that were read as for those that come in."""
        self.put("a", "b")
        server = self.serve("--models-memory", self.size() * 3 // 2, "--max-queue", 1 << 20, "--max-body", 60 << 20)
        held = self.begin(server, "a")
        long = {**SHORT, "model": "b", "metadata": {"x": [{}] * 100000}}  # more than 25 MB, less than 30
        waiting = [server.begin(TEXT, long), server.begin(TEXT, long)]
        self.wait_waiting(server, 2)
        self.assertEqual(server.post(TEXT, long)[0], 503)
        held.close()
        for client in waiting:
            self.assertIn(b"200 OK", client.recv(100))

    def test_a_load_that_fails(self):
        self.put("good")
        bad = self.folder / "bad.gguf"
        bad.write_bytes(pathlib.Path(MODEL).read_bytes()[:100000])
        (self.folder / "short.gguf").write_bytes(b"GGUF\0")
        server = self.serve()
        held = self.begin(server, "good")
        for body in ({"model": "bad"}, {"model": "bad", "stream": True}):
            status, answer = server.post(TEXT, {**SHORT, **body})
            self.assertEqual((status, answer["error"]["code"]), (500, "model_load_failed"))
            self.assertRegex(answer["error"]["message"], "'bad' could not be loaded: .*the file's end")
        self.assertRegex(self.ask(server, "short")[1]["error"]["message"],
                         "'short' could not be loaded: .*the file ends")
        while not re.search(r"short: .*the file ends", server.said()):
            pass  # the log comes behind the answer
        self.assertGreater(len(held.recv(4096)), 0)
        held.close()
        self.put("bad")
        self.assertEqual(self.ask(server, "bad")[0], 200)
        bad.unlink()
        (self.folder / "good.gguf").unlink()
        server.post("/models/unload", {"model": "good"})
        while "good" in self.loaded(server):
            pass
        self.assertEqual(self.ask(server, "good")[0], 500)
        self.assertEqual(self.ask(server, "bad")[0], 200)

    def test_a_batch_of_one_that_is_broken_now(self):
        """It fails, and its model is not read again until somebody else asks for it."""
        self.put("a")
        options = ("--files-dir", self.enterContext(tempfile.TemporaryDirectory()))
        server = self.serve(*options)
        _, batch = Client(server).begin([line("x", TEXT, {**LONG, "stream": False, "model": "a"})])
        self.assertEqual(server.stop()[0], 0)
        (self.folder / "a.gguf").write_bytes(b"broken")
        server = self.serve(*options)
        batch = Client(server).wait(batch)
        self.assertEqual((batch["status"], batch["errors"]["data"][0]["code"]), ("failed", "model_not_found"))
        self.assertEqual(self.ask(server, "a")[0], 500)
        code, said = server.stop()
        self.assertEqual((code, len(re.findall(r"(?m)^runnel: a: ", said))), (0, 2))

    def test_a_batch_that_is_cancelled_while_its_model_has_no_room(self):
        """Nobody wants the model any more."""
        self.put("a", "b")
        server = self.serve("--models-memory", self.size() * 3 // 2,
                            "--files-dir", self.enterContext(tempfile.TemporaryDirectory()))
        client = Client(server)
        first, second = (client.begin([line("x", TEXT, {**LONG, "stream": False, "model": "a"})])[1] for _ in "12")
        client.wait(first, ("in_progress",))
        held = server.begin(TEXT, {**LONG, "model": "b"})
        self.wait_leaving(server, "a").close()
        client.json("POST", f"/v1/batches/{first['id']}/cancel")
        self.assertIn(b"200 OK", held.recv(1000))  # b has taken the place of a
        client.json("POST", f"/v1/batches/{second['id']}/cancel")
        self.assertEqual([client.wait(batch)["status"] for batch in (first, second)], ["cancelled", "cancelled"])
        held.close()
        while server.metric("runnel_streams") != 0:
            pass
        self.assertEqual((self.loaded(server), self.loaded(server)), ({"b"}, {"b"}))

    def test_too_large(self):
        self.put("a")
        server = self.serve("--models-memory", "1M")
        status, answer = self.ask(server, "a")
        self.assertEqual((status, answer["error"]["code"]), (503, "model_too_large"))
        self.assertIn("--models-memory", answer["error"]["message"])
        self.assertEqual(server.get("/health")[0], 200)

    def test_beside_one_that_stays(self):
        self.put("a", "b")
        size = self.size()
        server = self.serve("--models-memory", size * 5 // 2, "--keep-alive", 0, model=f"main={MODEL}")
        self.assertEqual(self.ask(server, "a")[0], 200)
        self.wait_for(server, {"main"})
        self.assertEqual(server.post(TEXT, SHORT)[1]["model"], "main")
        self.assertEqual(server.post("/models/unload", {"model": "main"})[0], 400)
        self.assertEqual(self.loaded(server), {"main"})


class Names(Folder):
    def test_a_slash_in_a_name(self):
        """As clients encode it. Nothing but the name of a model can be reached so."""
        file = self.folder / "models.json"
        file.write_text(json.dumps({"models": [{"name": "org/tiny", "path": MODEL}]}))
        server = Server("--models-file", file, model=None, ready=False)
        self.addCleanup(server.stop)
        for path in ("org/tiny", "org%2Ftiny", "org%2ftiny"):
            status, answer = server.get(f"/v1/models/{path}")
            self.assertEqual((status, json.loads(answer)["id"]), (200, "org/tiny"), path)
        for path, want in (("/v1/models/org%5Ctiny", 404), ("/v1/models/org%252Ftiny", 404),
                           ("/v1/models/a%2F..%2Fb", 400), ("/v1/models/%2F", 400), ("/v1/models/org\\tiny", 400),
                           ("/v1%2Fmodels/org/tiny", 400),
                           ("/page/..%2Froutes.c", 400), ("/v1/files/a%2Fcontent", 400)):
            self.assertEqual(server.get(path)[0], want, path)


class KeepAlive(Folder):
    def test_keep_alive(self):
        self.put("a")
        server = self.serve()
        generate = {"model": "a", "prompt": "Once", "stream": False, "options": {"num_predict": 2}}

        def expires():
            return json.loads(server.get("/api/ps")[1])["models"][0]["expires_at"]

        self.assertEqual(server.post("/api/generate", {**generate, "keep_alive": -1})[0], 200)
        self.assertTrue(expires().startswith("9999-"))
        self.assertEqual(server.post("/api/generate", {**generate, "keep_alive": "87600h"})[0], 200)
        self.assertRegex(expires(), r"^20[3-9]\d-")
        self.assertEqual(server.post("/api/generate", {**generate, "keep_alive": "80000000h"})[0], 200)
        self.assertRegex(expires(), r"^9999-12-31T23:59:59")
        self.assertEqual(server.post("/api/generate", {**generate, "keep_alive": "0s"})[0], 200)
        self.wait_for(server, set())
        status, answer = server.post("/api/generate", {"model": "a", "keep_alive": "1h30m"})
        self.assertEqual((status, answer["response"], answer["done_reason"]), (200, "", "load"))
        self.assertEqual(self.loaded(server), {"a"})
        status, answer = server.post("/api/chat", {"model": "a", "messages": [], "keep_alive": 0})
        self.assertEqual((status, answer["message"]["content"], answer["done_reason"]), (200, "", "unload"))
        self.wait_for(server, set())
        self.assertEqual(server.post("/models/load", {"model": "a"}), (200, {"success": True}))
        self.assertEqual(self.loaded(server), {"a"})
        self.assertEqual(server.post("/models/unload", {"model": "a"}), (200, {"success": True}))
        self.wait_for(server, set())
        for path, name, want in (("/api/embed", "input", {"model": "a", "embeddings": []}),
                                 ("/api/embeddings", "prompt", {"embedding": []})):  # as Ollama answers
            self.assertEqual(server.post(path, {"model": "a", name: ""}), (200, want))
            self.assertEqual(self.loaded(server), {"a"})
            self.assertEqual(server.post(path, {"model": "a", name: "", "keep_alive": 0}), (200, want))
            self.wait_for(server, set())
            self.assertEqual(server.post(path, {"model": "b", name: ""})[0], 404)
        for path in ("/models/load", "/models/unload"):
            self.assertEqual(server.post(path, {"model": "b"})[0], 404)
        for bad in ("soon", "5", "5mm", "", "1h-2m", [], True, "1e999", "nan"):
            if bad == "5":
                continue  # seconds
            with self.subTest(bad=bad):
                self.assertEqual(server.post("/api/generate", {**generate, "keep_alive": bad})[0], 400)

    def test_idle(self):
        self.put("a")
        server = self.serve(env={**os.environ, "RUNNEL_KEEP_ALIVE": "0.5"})
        held = self.begin(server, "a")
        self.assertEqual(self.ask(server, "a")[0], 200)
        for _ in range(50):
            self.assertGreater(len(held.recv(4096)), 0)
        self.assertEqual(self.loaded(server), {"a"})
        held.close()
        self.wait_for(server, set())
        self.assertEqual(self.ask(server, "a")[0], 200)


class Configuration(Folder):
    def config(self, text):
        path = self.folder / "models.json"
        path.write_text(text if isinstance(text, str) else json.dumps({"models": text}))
        return path

    def models(self, server):
        return {m["id"]: m for m in json.loads(server.get("/v1/models")[1])["data"]}

    def test_file(self):
        self.put("one")
        file = self.config([{"path": "one.gguf", "aliases": ["gpt-4o", "default"], "options": {"ctx": 128}},
                            {"name": "two", "path": MODEL, "load": "start", "keep_alive": 5,
                             "options": {"ctx": 64, "kv-type": "q8", "no-prefix-cache": True}}])
        server = Server("--models-file", file, model=None)
        self.addCleanup(server.stop)
        self.assertEqual(self.loaded(server), {"two"})
        self.assertEqual(self.models(server)["two"]["max_model_len"], 64)
        status, answer = self.ask(server, "gpt-4o")
        self.assertEqual((status, answer["model"]), (200, "gpt-4o"))
        self.assertEqual(self.models(server)["one"]["max_model_len"], 128)
        one = json.loads(server.get("/v1/models/default")[1])
        self.assertEqual((one["id"], one["display_name"], one["root"]), ("default", "default", "one.gguf"))

    def test_bad_files(self):
        ok = {"path": MODEL}
        for text, part in (("{", "not JSON"), ("[]", "one member"), ('{"models": {}}', "one member"),
                           ('{"models": [], "x": 1}', "one member"), ([5], "a path"), ([{}], "a path"),
                           ([{"path": 5}], "a path"), ([{**ok, "nmae": "x"}], "'nmae'"),
                           ([{**ok, "name": ""}], "a name has"), ([{**ok, "name": "a\nb"}], "a name has"),
                           ([{**ok, "name": "x" * 128}], "a name has"), ([{**ok, "name": 5}], "a name has"),
                           ([ok, ok], "two models"),
                           ([{**ok, "aliases": ["a", "a"]}, {**ok, "name": "a"}], "two models"),
                           ([{**ok, "aliases": [NAME]}], "two models"), ([{**ok, "aliases": "a"}], "aliases are"),
                           ([{**ok, "aliases": [""]}], "an alias has"), ([{**ok, "load": "later"}], '"start" or'),
                           ([{**ok, "keep_alive": "5m"}], "keep_alive"), ([{**ok, "options": []}], "options are"),
                           ([{**ok, "options": {"port": 1}}], "'port' is no option"),
                           ([{**ok, "options": {"ctx": 0}}], "option ctx"),
                           ([{**ok, "options": {"ctx": "many"}}], "option ctx"),
                           ([{**ok, "options": {"ctx": True}}], "option ctx"),
                           ([{**ok, "options": {"kv-type": 5}}], "kv-type"),
                           ([{"path": "x" * 5000}], "too long"), ([], "no model"), ("[" * 100000, "not JSON")):
            with self.subTest(text=str(text)[:80]):
                result = run("serve", "--models-file", self.config(text), "--port", "0")
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(part, result.stderr.decode())
        result = run("serve", "--models-file", "/nosuch", "--port", "0")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"/nosuch", result.stderr)

    def test_aliases_of_the_command_line(self):
        server = Server("--alias", "gpt-4o,main", *SMALL)
        self.addCleanup(server.stop)
        want = self.ask(server, NAME)[1]
        for name in ("gpt-4o", "main"):
            status, got = self.ask(server, name)
            self.assertEqual((status, got["model"], got["choices"]), (200, name, want["choices"]))
        self.assertEqual(self.ask(server, "gpt-4")[0], 404)
        # lists have each name, with what is behind it; what is loaded is so once
        names = [NAME, "gpt-4o", "main"]
        listed = json.loads(server.get("/v1/models")[1])
        self.assertEqual([m["id"] for m in listed["data"]], names)
        self.assertEqual({(m["root"], m["parent"], m["max_model_len"]) for m in listed["data"]},
                         {(NAME + ".gguf", None, listed["data"][0]["max_model_len"])})
        self.assertEqual((listed["first_id"], listed["last_id"]), (NAME, "main"))
        tags = json.loads(server.get("/api/tags")[1])["models"]
        self.assertEqual([m["name"] for m in tags], names)
        self.assertEqual(len({m["digest"] for m in tags}), 1)
        self.assertEqual([m["name"] for m in json.loads(server.get("/api/ps")[1])["models"]], [NAME])
        for name in (*names, "main:latest"):
            self.assertEqual(json.loads(server.get("/v1/models/" + name)[1])["id"], name)
            self.assertEqual(server.post("/api/show", {"model": name + ":latest" * (":" not in name)})[0], 200)
        self.hang_up(server, "read again: 1 model")
        self.assertEqual(self.ask(server, "main")[0], 200)
        self.assertNotIn("unloaded", server.said())
        for args, part in (((MODEL, "--alias", ""), "a name has"), ((MODEL, "--alias", "a,,b"), "a name has"),
                           ((MODEL, "--alias", NAME), "two models"),
                           ((MODEL, f"x={MODEL}", "--alias", "x"), "two models"),
                           (("--alias", "a", "--models-dir", self.folder), "there is none")):
            result = run("serve", *args, "--port", "0")
            self.assertIn(result.returncode, (1, 2))
            self.assertIn(part, result.stderr.decode(), args)

    def test_an_option_without_a_value_can_be_taken_back(self):
        file = self.config([{"name": "with", "path": MODEL, "options": {"no-prefix-cache": False}},
                            {"name": "without", "path": MODEL}])
        server = Server("--models-file", file, "--no-prefix-cache", model=None)
        self.addCleanup(server.stop)
        for model, caches in (("with", True), ("without", False)):
            for _ in "12":
                _, answer = self.ask(server, model, prompt="Once upon a time " * 40)
            self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, caches)

    def test_further_options(self):
        """An architecture of one's own is known from the start on; windows are bounded where the file says so."""
        moose = self.folder / "moose.gguf"
        whole = pathlib.Path(MODEL).read_bytes()
        at = whole.index(b"llama", whole.index(b"general.architecture"))  # a name of the same length
        moose.write_bytes((whole[:at] + b"moose" + whole[at + 5:]).replace(b"llama.", b"moose."))
        row = {"path": str(moose), "options": {"architecture": "moose=qwen3,-neox,-head-norm", "bound-windows": True}}
        server = Server("--models-file", self.config([row, {"path": MODEL}]), *SMALL, model=None)
        self.addCleanup(server.stop)
        status, got = self.ask(server, "moose")
        self.assertEqual((status, got["choices"]), (200, self.ask(server, NAME)[1]["choices"]))
        self.assertNotIn("not known", server.said())
        self.config([row, {"path": MODEL}, {"name": "elk", "path": MODEL, "options": {"architecture": "elk=llama"}}])
        self.hang_up(server, "the models stay as they were")
        self.assertIn("known from the next start on", server.said())
        self.assertEqual(self.ask(server, "elk")[0], 404)
        for options, part in (({"architecture": "moose"}, "NAME=LIKE"), ({"architecture": 5}, "NAME=LIKE"),
                              ({"architecture": "moose=nothing"}, "nothing"),
                              ({"bound-windows": "yes"}, "option bound-windows")):
            result = run("serve", "--models-file", self.config([{**row, "options": options}]), "--port", "0")
            self.assertIn(result.returncode, (1, 2))
            self.assertIn(part, result.stderr.decode())

    def hang_up(self, server, part):
        """SIGHUP, and what is said of it."""
        before = server.said().count(part)
        server.process.send_signal(signal.SIGHUP)
        while server.said().count(part) == before:
            pass

    def test_bad_reloads(self):
        """Files that cannot be read again leave what there was, stop nobody, and each line of the log is an object."""
        self.put("one")
        keys, entry = self.folder / "keys", {"path": "one.gguf"}
        keys.write_text("first\n")
        file = self.config([entry])
        server = Server("--models-file", file, "--api-key-file", keys, "--log-json", model=None, ready=False)
        self.addCleanup(server.stop)
        first = {"Authorization": "Bearer first"}

        def check(part):
            self.hang_up(server, part)
            self.assertEqual(server.ask("POST", TEXT, json.dumps(SHORT), first)[0], 200, part)

        for text in (b"", b"# none\n", b"first\0\n", b"first\nfirst\n", b"first scopes=all\n", b"x" * 100000):
            keys.write_bytes(text)
            check("the keys stay as they were")
        keys.unlink()
        check("No such file or directory")
        os.mkfifo(keys)  # to which nobody writes
        check("it is no regular file")
        keys.unlink()
        keys.write_bytes(b"\xef\xbb\xbffirst\r\nsecond\r\n")
        check("read again: 2 keys")
        for text in (b"", b"[]", b'{"models": []}', b'{"models": [{"path": "caf\xe9"}]}',
                     b'{"models": [{"name": "one"}]}'):
            file.write_bytes(text)
            check("the models stay as they were")
        file.unlink()
        check("No such file or directory")
        os.mkfifo(file)
        check("it is no regular file")
        file.unlink()
        file.write_bytes(b"\xef\xbb\xbf" + json.dumps({"models": [entry]}).encode())
        check("read again: 1 model")
        self.assertEqual(server.stop()[0], 0)
        for line in server.lines():
            self.assertIsInstance(json.loads(line), dict)

    def test_reload(self):
        self.put("one", "two")
        keys = self.folder / "keys"
        keys.write_text("first\nstays name=x\n")
        file = self.config([{"path": "one.gguf"}, {"path": "two.gguf", "options": {"ctx": 64}}])
        server = Server("--models-file", file, "--api-key-file", keys, model=None, ready=False)
        self.addCleanup(server.stop)

        def ask(key, model, **more):
            return server.ask("POST", TEXT, json.dumps({**SHORT, "model": model, **more}),
                              {"Authorization": f"Bearer {key}"})

        self.assertEqual(ask("first", "one")[0], 200)
        self.assertEqual(ask("first", "two")[0], 200)
        client = server.connect()
        client.request("POST", TEXT, json.dumps({**LONG, "model": "two"}), {"Authorization": "Bearer first"})
        stream = client.getresponse()
        self.assertEqual(stream.status, 200)

        keys.write_text("other scopes=nothing\n")
        file.write_text("{")
        self.hang_up(server, "models stay")
        self.assertIn("keys stay as they were", server.said())
        self.assertIn("line 1", server.said())
        self.assertEqual(ask("first", "one")[0], 200)
        self.assertEqual(ask("other", "one")[0], 401)

        keys.write_text("second\nstays name=x\n")
        self.config([{"path": "one.gguf", "aliases": ["uno"]}, {"name": "new", "path": "two.gguf"}])
        self.hang_up(server, "read again: 2 models")
        self.assertEqual(ask("first", "one")[0], 401)
        self.assertEqual([ask("second", name)[0] for name in ("one", "uno", "new")], [200, 200, 200])
        self.assertEqual(ask("stays", "two")[0], 404)
        for _ in range(50):  # its key and its model are gone, and it goes on
            self.assertGreater(len(stream.read(500)), 0)
        client.close()
        self.assertNotIn("two is unloaded", server.said().split("read again: 2 models")[0])
        while "two is unloaded" not in server.said():
            pass
        self.assertEqual(server.stop()[0], 0)

    def test_reload_with_a_file_that_cannot_be_read(self):
        """It does not take the place of a model that is served; what replaces it later does."""
        self.put("good")
        whole = pathlib.Path(MODEL).read_bytes()
        for name, data in (("half", whole[:len(whole) // 2]), ("short", b"GGUF\0"), ("other", b"x" * 1000)):
            (self.folder / f"{name}.gguf").write_bytes(data)
        self.config([{"name": "one", "path": "good.gguf"}, {"name": "two", "path": "good.gguf", "load": "start"}])
        server = Server("--models-file", self.folder / "models.json", model=None)
        self.addCleanup(server.stop)
        want = [self.ask(server, name)[1]["choices"] for name in ("one", "two")]
        for name in ("half", "short", "other", "nosuch"):
            self.config([{"name": "one", "path": f"{name}.gguf"},
                         {"name": "two", "path": f"{name}.gguf", "load": "start"},
                         {"name": "bad", "path": "half.gguf"}])
            self.hang_up(server, "read again: 3 models")
            for kept in ("one", "two"):
                self.wait_said(server, rf"{kept}: the one before goes on: \S*{name}.gguf")
            self.assertEqual([self.ask(server, name)[1].get("choices") for name in ("one", "two")], want, name)
        self.assertEqual(self.ask(server, "bad")[1]["error"]["code"], "model_load_failed")
        self.assertNotIn("is unloaded", server.said())
        self.config([{"name": "one", "path": "good.gguf", "options": {"ctx": 64}}])
        self.hang_up(server, "read again: 1 model")
        self.assertEqual(self.ask(server, "one")[1]["choices"], want[0])
        self.assertEqual(self.ask(server, "two")[0], 404)

    def wait_said(self, server, pattern):
        while re.search(pattern, server.said()) is None:
            self.assertIsNone(server.process.poll(), server.said())

    def wait_short(self, server, model):
        """Until it is the one whose context has 64 tokens that answers."""
        while self.ask(server, model, prompt="Once upon a time " * 40)[0] != 400:
            pass

    def broken(self):
        """A file of which only a load finds that it is none of a model."""
        data, name = pathlib.Path(MODEL).read_bytes(), b"blk.0.attn_q.weight"
        self.assertIn(name, data)
        (self.folder / "broken.gguf").write_bytes(data.replace(name, b"blk.0.attn_X.weight", 1))

    def test_reload_with_a_fault_that_a_load_finds(self):
        self.put("good")
        self.broken()
        rows = [{"name": "one", "path": "good.gguf"}, {"name": "two", "path": "good.gguf", "load": "start"},
                {"name": "idle", "path": "good.gguf"}]
        self.config(rows)
        server = Server("--models-file", self.folder / "models.json", model=None)
        self.addCleanup(server.stop)
        want = [self.ask(server, name)[1]["choices"] for name in ("one", "two")]
        held = self.begin(server, "one")
        self.config([{**row, "path": "broken.gguf"} for row in rows])
        self.hang_up(server, "read again: 3 models")
        for kept in ("one", "two"):
            self.wait_said(server, rf"{kept}: the one before goes on: .*attn_q")
        self.assertEqual([self.ask(server, name)[1]["choices"] for name in ("one", "two")], want)
        self.assertEqual(server.get("/ready")[0], 200)
        self.assertNotIn("is unloaded", server.said())
        self.assertEqual(self.ask(server, "idle")[1]["error"]["code"], "model_load_failed")  # nothing worked there
        # One that can be loaded takes the place of the one that is in use; what runs comes to its end.
        self.config([{**row, "options": {"ctx": 64}} for row in rows])
        self.hang_up(server, "read again: 3 models")
        for name in ("one", "two", "idle"):
            self.wait_short(server, name)
            self.assertEqual(self.ask(server, name)[1]["choices"], want[0])
        for _ in range(50):
            self.assertGreater(len(held.recv(500)), 0)
        held.close()
        self.wait_said(server, "one is unloaded")
        self.assertEqual(server.stop()[0], 0)

    def test_names_alone_need_no_load(self):
        self.put("good")
        self.config([{"name": "one", "path": "good.gguf"}])
        server = Server("--models-file", self.folder / "models.json", model=None)
        self.addCleanup(server.stop)
        self.assertEqual(self.ask(server, "one")[0], 200)
        self.config([{"name": "one", "path": "good.gguf", "aliases": ["uno"], "keep_alive": -1, "load": "start"}])
        self.hang_up(server, "read again: 1 model")
        self.assertEqual(self.ask(server, "uno")[0], 200)
        self.assertEqual(server.said().count("one is ready"), 1)
        self.config([{"name": "one", "path": "good.gguf", "keep_alive": 0}])
        self.hang_up(server, "read again: 1 model")
        self.assertEqual(self.ask(server, "uno")[0], 404)
        self.ask(server, "one")
        self.wait_said(server, "one is unloaded")

    def test_reloads_behind_one_another(self):
        """The last list counts, whatever of the ones before is still being read or loaded."""
        self.put("good")
        self.broken()
        row = {"name": "one", "path": "good.gguf"}
        lists = ([row], [{**row, "path": "broken.gguf"}], [{**row, "options": {"ctx": 128}}],
                 [{**row, "options": {"ctx": 64}}], [{"name": "other", "path": "good.gguf"}])
        self.config(lists[0])
        server = Server("--models-file", self.folder / "models.json", model=None)
        self.addCleanup(server.stop)
        want = self.ask(server, "one")[1]["choices"]
        for _ in range(5):
            for rows in lists:
                self.config(rows)
                server.process.send_signal(signal.SIGHUP)
                self.assertIn(self.ask(server, "one")[0], (200, 404, 500))
            while self.ask(server, "other")[0] != 200:
                pass
            self.assertEqual(self.ask(server, "other")[1]["choices"], want)
            self.config(lists[3])
            self.hang_up(server, "read again: 1 model")
            self.wait_short(server, "one")
        self.assertEqual(server.stop()[0], 0)

    def test_reload_without_room_for_both(self):
        self.put("a")
        server = self.serve("--models-memory", self.size() * 3 // 2)
        want = self.ask(server, "a")[1]["choices"]
        self.put("a")
        os.utime(self.folder / "a.gguf", (1, 1))
        self.hang_up(server, "read again: 1 model")
        self.wait_said(server, "a: there is no room for the one before and the new one at once .*--models-memory.*: the one "
                               "before goes, whether or not the new one can be loaded")
        self.assertEqual(self.ask(server, "a")[1]["choices"], want)
        self.assertIn("a is unloaded", server.said())
        self.assertEqual(self.loaded(server), {"a"})

    def test_reload_of_one_that_is_too_large(self):
        self.put("a")
        size = self.size()
        self.config([{"path": "a.gguf"}])
        server = Server("--models-file", self.folder / "models.json", *SMALL, "--models-memory", size * 3 // 2, model=None,
                        ready=False)
        self.addCleanup(server.stop)
        want = self.ask(server, "a")[1]["choices"]
        self.config([{"path": "a.gguf", "options": {"kv-size": size * 2}}])
        self.hang_up(server, "read again: 1 model")
        self.wait_said(server, "a: the one before goes on: it needs .*--models-memory")
        self.assertEqual(self.ask(server, "a")[1]["choices"], want)
        self.assertNotIn("is unloaded", server.said())

    def test_reload_reads_apart_from_the_loop(self):
        """Its thread asks for none of the files of models, for no list of them, and not for the keys."""
        if "RUNNEL_LOOP_OPENS" not in os.environ:
            self.skipTest("RUNNEL_LOOP_OPENS is not set")
        self.put("a", "b")
        keys, opens = self.folder / "keys", self.folder / "opens"
        keys.write_text("first\n")
        file = self.config([{"path": "a.gguf"}, {"path": "b.gguf"}])
        env = {**os.environ, "RUNNEL_NICE": "0", "LD_PRELOAD": os.environ["RUNNEL_LOOP_OPENS"], "LOOP_OPENS": str(opens),
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        server = Server("--models-file", file, "--models-dir", self.folder, "--api-key-file", keys, model=None, env=env,
                        ready=False)
        self.addCleanup(server.stop)
        ask = lambda: server.ask("POST", TEXT, json.dumps({**SHORT, "model": "a"}), {"Authorization": "Bearer first"})
        self.assertEqual(ask()[0], 200)
        if str(keys) not in opens.read_text().split("\n"):
            self.skipTest("a sanitizer's functions stand in front of the library's")
        opens.write_text("")
        self.config([{"path": "a.gguf", "options": {"ctx": 64}}, {"path": "b.gguf", "options": {"ctx": 64}}])
        self.hang_up(server, "read again: 2 models")
        while "read again: 1 key" not in server.said() or server.said().count("a is ready") < 2:
            pass
        self.assertEqual(ask()[0], 200)
        seen = opens.read_text().split("\n")
        self.assertEqual([path for path in seen if path.endswith((".gguf", ".json", "/keys")) or
                          path == str(self.folder)], [])

    def test_reload_of_a_folder(self):
        self.put("a", "b")
        server = self.serve()
        self.assertEqual(self.ask(server, "a")[0], 200)
        self.put("c")
        (self.folder / "a.gguf").unlink()
        self.hang_up(server, "read again: 2 models")
        self.assertEqual(sorted(self.models(server)), ["b", "c"])
        self.assertEqual([self.ask(server, name)[0] for name in "abc"], [404, 200, 200])

    def test_reload_while_one_waits(self):
        self.put("a", "b")
        server = self.serve("--models-memory", self.size() * 3 // 2)
        held = self.begin(server, "a")
        waits = server.begin(TEXT, {**SHORT, "model": "b"})
        self.wait_waiting(server, 1)
        behind = self.wait_leaving(server, "a")  # so b has been read
        (self.folder / "b.gguf").unlink()
        self.hang_up(server, "read again: 1 model")
        self.assertIn(b"404", waits.recv(100))
        self.assertGreater(len(held.recv(4096)), 0)
        held.close()
        self.assertIn(b"200 OK", behind.recv(1000))


if __name__ == "__main__":
    common.main("__main__")
