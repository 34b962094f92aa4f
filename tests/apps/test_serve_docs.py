#!/usr/bin/env python3
"""docs/SERVER.md in the hands of a newcomer: its commands are typed as they stand there, but for the port and for what
stands for a name of one's own; its files of models and keys are taken."""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import common
from common import MODEL
from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/SERVER.md").read_text()
BLOCKS = re.findall(r"(?:^    .*\n)+", PAGE, re.MULTILINE)


def block(part):
    """The page's one block that has this, without its indent."""
    found = [text for text in BLOCKS if part in text]
    if len(found) != 1:
        raise AssertionError((part, len(found)))
    return re.sub("^    ", "", found[0], flags=re.MULTILINE)


def lines(text, beginning):
    return [line[2:].split("  #")[0] for line in text.splitlines() if line.startswith("$ " + beginning)]


class Docs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        if shutil.which("curl") is None:
            self.skipTest("there is no curl")

    def serve(self, command, **more):
        """runnel serve with the options of a line of the page."""
        words = command.split()
        self.assertEqual(words[:2], ["runnel", "serve"], command)
        server = Server(*words[2:], model=None, **more)
        self.addCleanup(server.stop)
        return server

    def type(self, server, command):
        self.assertIn("localhost:8080", command)
        done = subprocess.run(["bash", "-c", command.replace("localhost:8080", f"127.0.0.1:{server.port}")],
                              cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=common.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, (command, done))
        return done.stdout.decode()

    def test_first_steps(self):
        text = block("Once upon a time")
        (start,), (chat, stream) = lines(text, "runnel"), lines(text, "curl")
        self.assertEqual((ROOT / start.split()[-1]).resolve(), pathlib.Path(MODEL).resolve())
        server = self.serve(start)
        self.assertEqual(json.loads(self.type(server, chat))["choices"][0]["message"]["role"], "assistant")
        self.assertTrue(self.type(server, stream).endswith("data: [DONE]\n\n"))

    def test_batch(self):
        text = block("--files-dir ~/batches")
        (start,), (upload, begin) = lines(text, "runnel"), lines(text, "curl")
        server = self.serve(start.replace("~/batches", str(self.folder / "batches")).replace("MODEL", str(MODEL)))
        line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
                "body": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}}
        (self.folder / "in.jsonl").write_text(json.dumps(line) + "\n")
        file = json.loads(self.type(server, upload))["id"]
        self.assertIn('"file-.."', begin)
        batch = json.loads(self.type(server, begin.replace("file-..", file)))
        while batch["status"] not in ("completed", "failed"):
            batch = json.loads(server.get("/v1/batches/" + batch["id"])[1])
        self.assertEqual(batch["status"], "completed")
        answer = json.loads(server.get(f"/v1/files/{batch['output_file_id']}/content")[1])
        self.assertEqual((answer["custom_id"], answer["response"]["status_code"]), ("1", 200))

    def test_models(self):
        table = block('{"models": [').replace("/srv/", str(self.folder) + "/")
        (self.folder / "models.json").write_text(table)
        models = json.loads(table)["models"]
        for model in models:
            shutil.copy(MODEL, self.folder / pathlib.Path(model["path"]).name)
        for name in ("a", "b"):
            shutil.copy(MODEL, self.folder / f"{name}.gguf")
        (two, alias, folder, file) = [line.split("  #")[0] for line in block("small=a.gguf").splitlines()]
        for command, names in (
                (two.replace("=", f"={self.folder}/"), ("small", "large")),
                (alias.replace("a.gguf", f"{self.folder}/a.gguf"), ("a", "gpt-4o", "default")),
                (folder.replace("~/models", str(self.folder)), ("a", "b", "bge")),
                (file.replace("models.json", f"{self.folder}/models.json"), ("qwen3-4b", "gpt-4o-mini", "default",
                                                                             "embed", "llama-70b"))):
            with self.subTest(command=command):
                server = self.serve(command)
                for name in names:
                    self.assertEqual(server.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 2})[0],
                                     200, (name, server.said()))
                self.assertEqual(server.post("/v1/completions", {"model": "other", "prompt": "a"})[0], 404)

    def test_keys(self):
        text = block("s3cret-key")
        (self.folder / "keys").write_text(text)
        server = self.serve(f"runnel serve {MODEL} --api-key-file {self.folder / 'keys'}", ready=False)

        def ask(headers):
            return server.ask("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}), headers)[0]

        while ask({"Authorization": "Bearer s3cret-key"}) == 503:
            pass
        self.assertEqual([ask({"Authorization": "Bearer s3cret-key"}), ask({"X-Api-Key": "s3cret-key"}), ask({}),
                          ask({"X-Api-Key": "alice"})], [200, 200, 401, 401])
        (command,) = re.findall(r"printf %s KEY \| sha256sum", text)
        said = subprocess.run(["bash", "-c", command.replace("KEY", "mine")], stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(said.split()[0].decode(), hashlib.sha256(b"mine").hexdigest())
        server.stop()
        (self.folder / "keys").write_text(f"sha256:{said.split()[0].decode()} me\n")
        server = self.serve(f"runnel serve {MODEL} --api-key-file {self.folder / 'keys'}", ready=False)
        while ask({"X-Api-Key": "mine"}) == 503:
            pass
        self.assertEqual([ask({"X-Api-Key": "mine"}), ask({"X-Api-Key": "me"})], [200, 401])


if __name__ == "__main__":
    common.main("__main__")
