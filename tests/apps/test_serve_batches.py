#!/usr/bin/env python3
"""/v1/files and /v1/batches of runnel serve: what a batch writes is what `runnel batch` writes, byte for byte."""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import tempfile
import unittest

import common
from batch_job import EMBED, TEXT, Job, line
from server import Server

STORY = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
LINES = [line("a", TEXT, STORY), line("b", TEXT, {"prompt": "The fox", "temperature": "hot"}),
         line("c", TEXT, {"prompt": "The fox", "max_tokens": 8}), "", line("d", TEXT, {**STORY, "n": 2}), "no JSON"]
ENDLESS = {**STORY, "max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0}
DONE = ("completed", "failed", "cancelled")


def form(fields, boundary="x-y-z"):
    """Fields of a form: name, filename or None, bytes."""
    body = b""
    for name, filename, data in fields:
        what = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
        body += f"--{boundary}\r\nContent-Disposition: {what}\r\n\r\n".encode() + data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


class Client:
    """What a client of the two routes does; key: its own."""

    def __init__(self, server, key=None):
        self.server, self.headers = server, {"Authorization": f"Bearer {key}"} if key else {}

    def ask(self, method, path, body=None, headers=None):
        status, data, _ = self.server.ask(method, path, body, {**self.headers, **(headers or {})})
        return status, data

    def json(self, method, path, body=None):
        status, data = self.ask(method, path, json.dumps(body) if body is not None else None)
        return status, json.loads(data)

    def upload(self, data, filename="in.jsonl", purpose=b"batch"):
        status, answer = self.ask("POST", "/v1/files", *form([("purpose", None, purpose), ("file", filename, data)]))
        return status, json.loads(answer)

    def begin(self, lines, url=TEXT, **more):
        status, file = self.upload("\n".join(lines).encode())
        assert status == 200, file
        return self.json("POST", "/v1/batches", {"input_file_id": file["id"], "endpoint": url,
                                                 "completion_window": "24h", **more})

    def wait(self, batch, until=DONE):
        while batch["status"] not in until:
            status, batch = self.json("GET", f"/v1/batches/{batch['id']}")
            assert status == 200, batch
        return batch

    def content(self, file):
        status, data = self.ask("GET", f"/v1/files/{file}/content")
        assert status == 200, data
        return data


def plain(data):
    """Lines without what follows from the file's name and date."""
    lines = [json.loads(text) for text in data.splitlines()]
    for item in lines:
        if item["response"]:
            for key in ("created", "model"):
                item["response"]["body"].pop(key, None)
    return lines


class Batches(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.server = self.start()

    def tearDown(self):
        self.assertEqual(self.server.stop()[0], 0)

    def start(self, *options):
        return Server("--files-dir", os.path.join(self.folder, "files"), *options)

    def test_files(self):
        client = Client(self.server)
        for data, name in ((b"{}\n", "a.jsonl"), (b"", "empty"), (b"\r\n--x-y-\r\n\0\xff", 'a\\"b;c'),
                           (b"x" * 100000, "")):
            with self.subTest(name=name):
                status, file = client.upload(data, name)
                self.assertEqual(status, 200, file)
                self.assertEqual((file["object"], file["bytes"], file["purpose"], file["filename"]),
                                 ("file", len(data), "batch", name.replace('\\"', '"') or "upload.jsonl"))
                self.assertEqual(client.content(file["id"]), data)
                self.assertEqual(client.json("GET", f"/v1/files/{file['id']}"), (200, file))
        _, all_files = client.json("GET", "/v1/files")
        self.assertEqual((len(all_files["data"]), all_files["has_more"]), (4, False))
        _, two = client.json("GET", "/v1/files?limit=3&order=asc&purpose=batch")
        _, rest = client.json("GET", f"/v1/files?order=asc&after={two['last_id']}")
        self.assertEqual((two["has_more"], two["data"] + rest["data"]), (True, all_files["data"][::-1]))
        self.assertEqual(client.json("GET", "/v1/files?purpose=vision")[1]["data"], [])
        for file in all_files["data"]:
            self.assertEqual(client.json("DELETE", f"/v1/files/{file['id']}"),
                             (200, {"id": file["id"], "object": "file", "deleted": True}))
            self.assertEqual(client.json("GET", f"/v1/files/{file['id']}")[0], 404)
        self.assertEqual(os.listdir(os.path.join(self.folder, "files")), ["lock"])

    def test_slow_readers_of_files(self):
        """What waits for them is bounded together; who takes it all makes room."""
        self.server.stop()
        self.server = self.start("--max-body", "32M", "--max-queue", "32M")
        data = b"x" * (24 << 20)
        _, file = Client(self.server).upload(data)
        ask = f"GET /v1/files/{file['id']}/content HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        with socket.socket() as slow:
            slow.settimeout(common.PATIENCE)
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            slow.connect(("127.0.0.1", self.server.port))
            slow.sendall(ask)
            taken = [slow.recv(1)]
            status, body = self.server.get(f"/v1/files/{file['id']}/content")
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "server_busy"))
            while part := slow.recv(1 << 20):
                taken.append(part)
        self.assertEqual(b"".join(taken).partition(b"\r\n\r\n")[2], data)
        self.assertEqual(self.server.get(f"/v1/files/{file['id']}/content"), (200, data))

    def test_forms_that_the_standard_allows(self):
        """RFC 2046, 5.1.1: a preamble, blanks behind boundaries, an epilogue; and long names, also other ones."""
        client = Client(self.server)
        body, headers = form([("purpose", None, b"batch"), ("file", "ü" * 511, b"x")])
        body = body.replace(b"--x-y-z\r\n", b"--x-y-z \t\r\n").replace(
            b"; filename=", b"; filename*=UTF-8''" + b"%C3%BC" * 400 + b"; filename=")
        for data in (body, b"\r\n" + body, b"for old readers\r\n" + body, body + b"\r\nbehind"):
            status, answer = client.ask("POST", "/v1/files", data, headers)
            self.assertEqual((status, json.loads(answer).get("filename")), (200, "ü" * 511), answer)

    def test_contents_without_a_record_go(self):
        """As a server leaves them that was killed between the one and the other; nobody knows their names. What has
        another name, or is no file, is somebody's own."""
        client = Client(self.server)
        file = client.upload(b"kept")[1]
        self.assertEqual(self.server.stop()[0], 0)
        folder = pathlib.Path(self.folder, "files")
        lost, torn, made, linked = ("file-" + "0189abcdef7" + 15 * "0" + digit for digit in "1234")
        kept = {torn, torn + ".json", "mine", "file-notes", "file-list", "file-list.out", "file-list.journal", made,
                linked, lost + "0", lost[:-1], lost.replace("a", "A"), lost + ".out", lost + ".journal"}
        for name in kept - {made, linked} | {lost, lost + ".new"}:
            (folder / name).write_bytes(b"{")
        (folder / made).mkdir()
        (folder / linked).symlink_to("mine")
        self.server = self.start()
        self.assertEqual(Client(self.server).content(file["id"]), b"kept")
        self.assertEqual({path.name for path in folder.iterdir()}, kept | {"lock", file["id"], file["id"] + ".json"})

    def test_bad_forms(self):
        whole, good = form([("purpose", None, b"batch"), ("file", "a", b"x")])
        part = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n'
        for data, headers in ((whole, {"Content-Type": "application/json"}), (whole, {}),
                              (whole, {"Content-Type": "multipart/form-data"}),
                              (whole, {"Content-Type": "multipart/form-data; boundary=" + "b" * 71}),
                              (whole, {"Content-Type": 'multipart/form-data; boundary="'}),
                              (whole, {"Content-Type": "multipart/form-data; boundary=other"}),
                              (whole[:-6], good), (whole[:40], good), (b"", good), (b"--x-y-z", good),
                              (part * 17 + b"--b--", {"Content-Type": "multipart/form-data; boundary=b"}),
                              (b"--b\r\nX: " + b"y" * 5000, {"Content-Type": "multipart/form-data; boundary=b"}),
                              (b"--b\r\n\r\nx\r\n--b--", {"Content-Type": "multipart/form-data; boundary=b"}),
                              (b"--b\r\nContent-Disposition: attachment\r\n\r\nx\r\n--b--",
                               {"Content-Type": "multipart/form-data; boundary=b"}),
                              form([("purpose", None, b"batch")]), form([("file", "a", b"x")]),
                              form([("purpose", None, b"fine-tune"), ("file", "a", b"x")]),
                              form([("purpose", None, b"batch"), ("file", "a" * 1024, b"x")])):
            with self.subTest(data=data[:60], headers=headers):
                status, answer = Client(self.server).ask("POST", "/v1/files", data, headers)
                self.assertEqual(status, 400, answer)
                self.assertIn(json.loads(answer)["error"]["param"], ("file", "purpose"))
        for path in ("/v1/files?limit=0", "/v1/files?limit=x", "/v1/batches?order=up", f"/v1/files?limit={1:020}",
                     "/v1/files?order=a%sc" % ("s" * 20)):
            self.assertEqual(self.server.get(path)[0], 400)

    def test_a_batch_writes_what_the_program_writes(self):
        client = Client(self.server)
        status, batch = client.begin(LINES, metadata={"k": "v\0w"})
        self.assertEqual((status, batch["object"], batch["request_counts"]["total"], batch["metadata"]),
                         (200, "batch", 5, {"k": "v\0w"}))
        batch = client.wait(batch)
        self.assertEqual((batch["status"], batch["request_counts"]),
                         ("completed", {"total": 5, "completed": 3, "failed": 2}))
        self.assertLessEqual(batch["in_progress_at"], batch["completed_at"])
        job = Job("\n".join(LINES), apart=True)
        self.assertEqual(job.run().returncode, 0)
        self.assertEqual(plain(client.content(batch["output_file_id"])), plain(job.output.read_bytes()))
        self.assertEqual(plain(client.content(batch["error_file_id"])), plain(job.errors.read_bytes()))
        self.assertEqual(client.json("GET", f"/v1/files/{batch['output_file_id']}")[1]["purpose"], "batch_output")
        for text in client.content(batch["output_file_id"]).splitlines():
            answer = json.loads(text)
            if answer["custom_id"] == "a":
                self.assertEqual(answer["response"]["body"]["choices"], self.server.post(TEXT, STORY)[1]["choices"])
        self.assertEqual(client.json("GET", "/v1/batches")[1]["data"], [batch])
        left = sorted(name.split(".")[-1] for name in os.listdir(os.path.join(self.folder, "files"))
                      if "batch-" in name)
        self.assertEqual(left, ["json"])
        self.assertEqual(self.server.stop()[0], 0)
        self.server = self.start()
        self.assertEqual(Client(self.server).json("GET", "/v1/batches")[1]["data"], [batch])

    def test_long_lines(self):
        """Read on another thread, in their order; also the last, and one that is cancelled meanwhile."""
        client, blanks = Client(self.server), " " * 100000
        lines = [line("a", TEXT, STORY) + blanks, LINES[1], "{" + blanks, line("a", TEXT, STORY) + blanks,
                 line("b", TEXT, {**STORY, "prompt": "word " * 50000}), line("c", TEXT, {**STORY, "n": 2}) + blanks]
        batch = client.wait(client.begin(lines)[1])
        job = Job("\n".join(lines), apart=True)
        self.assertEqual(job.run().returncode, 0)
        self.assertEqual(batch["request_counts"], {"total": 6, "completed": 2, "failed": 4})
        self.assertEqual(plain(client.content(batch["output_file_id"])), plain(job.output.read_bytes()))
        self.assertEqual(plain(client.content(batch["error_file_id"])), plain(job.errors.read_bytes()))
        batch = client.begin([line(str(i), TEXT, ENDLESS) + blanks * 10 for i in range(20)])[1]
        batch = client.json("POST", f"/v1/batches/{batch['id']}/cancel")[1]
        self.assertEqual(client.wait(batch)["status"], "cancelled")

    def test_lines_must_be_of_the_batch(self):
        client = Client(self.server)
        batch = client.wait(client.begin([line("a", EMBED, {"input": "x", "model": "runnel-tiny-Q8_0"}),
                                          line("b", TEXT, STORY), line("c", EMBED, {"input": "x", "model": "other"})],
                                         url=EMBED)[1])
        self.assertEqual(batch["request_counts"], {"total": 3, "completed": 1, "failed": 2})
        errors = [json.loads(text) for text in client.content(batch["error_file_id"]).splitlines()]
        for error, word in zip(errors, ("url", "model")):
            self.assertEqual(error["response"]["status_code"], 400)
            self.assertIn(word, error["response"]["body"]["error"]["message"])

    def test_a_byte_order_mark(self):
        """In front of the line that names the batch's model."""
        self.server.stop()
        self.server = Server("--files-dir", self.folder, "--quiet", "--ctx", "256", "two=" + common.MODEL)
        client = Client(self.server)
        file = client.upload("\ufeff".encode() + line("a", TEXT, {**STORY, "model": "two"}).encode())[1]["id"]
        status, batch = client.json("POST", "/v1/batches", {"input_file_id": file, "endpoint": TEXT,
                                                            "completion_window": "24h"})
        self.assertEqual(status, 200, batch)
        batch = client.wait(batch)
        self.assertEqual(batch["request_counts"], {"total": 1, "completed": 1, "failed": 0}, batch)

    def test_bad_batches(self):
        client = Client(self.server)
        _, file = client.upload("\n".join(LINES).encode())
        _, empty = client.upload(b"\n \n")
        _, other = client.upload(line("a", TEXT, {**STORY, "model": "gpt-5"}).encode())
        good = {"input_file_id": file["id"], "endpoint": TEXT, "completion_window": "24h"}
        for more, status, param in (({"input_file_id": 5}, 400, "input_file_id"),
                                    ({"input_file_id": "file-1"}, 404, "input_file_id"),
                                    ({"input_file_id": "../lock"}, 404, "input_file_id"),
                                    ({"input_file_id": empty["id"]}, 400, "input_file_id"),
                                    ({"input_file_id": other["id"]}, 404, "model"),
                                    ({"endpoint": "/v1/audio"}, 400, "endpoint"), ({"endpoint": None}, 400, "endpoint"),
                                    ({"completion_window": "1h"}, 400, "completion_window"),
                                    ({"metadata": []}, 400, "metadata")):
            with self.subTest(more=more):
                got, answer = client.json("POST", "/v1/batches", {**good, **more})
                self.assertEqual((got, answer["error"]["param"]), (status, param), answer)
        for path in ("/v1/batches/batch-1", "/v1/files/file-1", "/v1/files/lock", f"/v1/files/{file['id']}/contents"):
            self.assertEqual(client.json("GET", path)[0], 404)
        for path, status in (("/v1/batches/batch-1/cancel", 404), (f"/v1/batches/{file['id']}", 405),
                             ("/v1/batches/x/cancel/y", 405), ("/v1/batches/x/y/cancel", 404)):
            self.assertEqual(client.json("POST", path, {})[0], status)
        self.assertEqual(client.json("DELETE", f"/v1/files/{file['id']}/content")[0], 405)
        status, gone = client.json("GET", "/v1/files/file-1/content")
        self.assertEqual((status, "'file-1'" in gone["error"]["message"]), (404, True), gone)
        self.assertEqual(client.json("GET", "/v1/batches")[1]["data"], [])

    def long(self, n=40):
        tokens = 50 if common.sanitized() else 200
        return [line(f"l{i}", TEXT, {"prompt": f"Once {i}", "max_tokens": tokens, "ignore_eos": True})
                for i in range(n)]

    def test_cancel(self):
        client = Client(self.server)
        endless = [line(f"l{i}", TEXT, ENDLESS) for i in range(500)]
        running = client.wait(client.begin(endless)[1], until=("in_progress",))
        _, waiting = client.begin(LINES)
        self.assertEqual(client.json("DELETE", f"/v1/files/{running['input_file_id']}")[0], 409)
        _, waiting = client.json("POST", f"/v1/batches/{waiting['id']}/cancel")
        self.assertEqual((waiting["status"], waiting["output_file_id"]), ("cancelled", None))
        status, running = client.json("POST", f"/v1/batches/{running['id']}/cancel")
        self.assertEqual((status, running["status"] in ("cancelling", "cancelled")), (200, True))
        running = client.wait(running)
        self.assertEqual(running["status"], "cancelled")
        self.assertLess(running["request_counts"]["completed"], 500)
        while self.server.metric("runnel_streams") > 0:
            pass
        _, again = client.json("POST", f"/v1/batches/{running['id']}/cancel")
        self.assertEqual(again, running)
        self.assertEqual(client.wait(client.begin(LINES)[1])["status"], "completed")

    def with_keys(self, text, *options):
        self.server.stop()
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(text)
            keys.flush()
            self.server = self.start("--api-key-file", keys.name, *options)
        self.server.get("/health")

    def test_each_line_asks_its_keys_rate(self):
        """Three requests in a minute: three lines are answered, the next one waits, as another request of the key."""
        self.with_keys("one requests=3\ntwo\n")
        client, other = Client(self.server, "one"), Client(self.server, "two")
        _, batch = client.begin([line(f"r{i}", TEXT, {"prompt": f"Once {i}", "max_tokens": 4}) for i in range(5)])
        while batch["request_counts"]["completed"] < 3:
            _, batch = client.json("GET", f"/v1/batches/{batch['id']}")
        status, answer = client.json("POST", TEXT, {"prompt": "a", "max_tokens": 1})
        self.assertEqual((status, answer["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertEqual(other.json("POST", TEXT, {"prompt": "a", "max_tokens": 1})[0], 200)
        self.assertEqual(client.json("POST", f"/v1/batches/{batch['id']}/cancel")[0], 200)
        batch = client.wait(batch)
        self.assertEqual((batch["status"], batch["request_counts"]["completed"]), ("cancelled", 3))

    def test_each_line_asks_its_keys_budget(self):
        """One line at a time: what is left of a budget of 10 tokens lets one in, and those behind it are told."""
        self.with_keys("one budget=10\n", "--max-streams", 2)
        client = Client(self.server, "one")
        _, batch = client.begin([line(f"b{i}", TEXT, {"prompt": "Once upon a time", "max_tokens": 20,
                                                      "ignore_eos": True}) for i in range(3)])
        batch = client.wait(batch)
        self.assertEqual((batch["status"], batch["request_counts"]),
                         ("completed", {"total": 3, "completed": 1, "failed": 2}))
        for item in map(json.loads, client.content(batch["error_file_id"]).splitlines()):
            self.assertEqual((item["response"]["status_code"], item["response"]["body"]["error"]["code"]),
                             (429, "insufficient_quota"))

    def test_a_key_that_is_out_of_the_table_pays(self):
        """Its batch goes on meanwhile; back again, it has no budget any more."""
        path = os.path.join(self.folder, "keys")
        self.server.stop()

        def write(text):
            pathlib.Path(path).write_text(text)

        def reload(text):
            write(text)
            before = len(re.findall(r"read again: \d+ key", self.server.said()))
            self.server.process.send_signal(signal.SIGHUP)
            while len(re.findall(r"read again: \d+ key", self.server.said())) == before:
                self.server.get("/health")

        write("one budget=30\nadmin\n")
        self.server = self.start("--api-key-file", path)
        client, admin = Client(self.server, "one"), Client(self.server, "admin")
        _, first = admin.begin([line("a", TEXT, ENDLESS)])
        _, batch = client.begin([line(f"b{i}", TEXT, {**STORY, "max_tokens": 20, "ignore_eos": True})
                                 for i in range(2)])
        reload("admin\n")
        self.assertEqual(client.json("GET", "/v1/models")[0], 401)
        self.assertEqual(admin.json("POST", f"/v1/batches/{first['id']}/cancel")[0], 200)
        record = pathlib.Path(self.folder, "files", batch["id"] + ".json")
        while json.loads(record.read_bytes())["object"]["status"] not in DONE:
            admin.json("GET", "/v1/models")
        reload("one budget=30\nadmin\n")
        batch = client.json("GET", f"/v1/batches/{batch['id']}")[1]
        self.assertEqual((batch["status"], batch["request_counts"]["completed"]), ("completed", 2))
        status, answer = client.json("POST", TEXT, {"prompt": "a", "max_tokens": 1})
        self.assertEqual((status, answer["error"]["code"]), (429, "insufficient_quota"))

    def test_killed_and_started_again(self):
        """The files are those of an undisturbed batch, also where the server was killed in the middle."""
        client = Client(self.server)
        lines = self.long()
        whole = client.wait(client.begin(lines)[1])
        _, batch = client.begin(lines)
        while batch["status"] not in DONE and batch["request_counts"]["completed"] < 3:  # else it was killed too late
            _, batch = client.json("GET", f"/v1/batches/{batch['id']}")
        self.server.process.kill()
        self.server.stop()
        self.server = self.start()
        client = Client(self.server)
        batch = client.wait(client.json("GET", f"/v1/batches/{batch['id']}")[1])
        self.assertEqual((batch["status"], batch["request_counts"]), ("completed", whole["request_counts"]))
        self.assertEqual(plain(client.content(batch["output_file_id"])), plain(client.content(whole["output_file_id"])))
        self.assertIsNone(batch["error_file_id"])

    def test_the_model_is_gone(self):
        """What was answered before is there, whole lines of it."""
        client = Client(self.server)
        lines = self.long()
        whole = plain(client.content(client.wait(client.begin(lines)[1])["output_file_id"]))
        _, batch = client.begin(lines + [line(f"e{i}", TEXT, ENDLESS) for i in range(100)])
        written = os.path.join(self.folder, "files", batch["id"] + ".out")
        while not os.path.exists(written) or os.path.getsize(written) == 0 or batch["request_counts"]["completed"] < 3:
            _, batch = client.json("GET", f"/v1/batches/{batch['id']}")
        self.server.process.kill()
        self.server.stop()
        with open(written, "ab") as file:
            file.write(b'{"id": "batch_')  # a line in which it was killed
        self.server = Server("--files-dir", os.path.join(self.folder, "files"), model=f"other={common.MODEL}")
        client = Client(self.server)
        batch = client.wait(client.json("GET", f"/v1/batches/{batch['id']}")[1])
        self.assertEqual((batch["status"], batch["errors"]["data"][0]["code"]), ("failed", "model_not_found"))
        part = plain(client.content(batch["output_file_id"]))
        self.assertGreater(len(part), 0)
        self.assertEqual(part, whole[:len(part)])
        self.assertEqual((batch["request_counts"]["completed"], batch["request_counts"]["failed"]), (len(part), 0))

    def test_cancelled_before_it_goes_on(self):
        """What an earlier process has answered is kept, whether the batch was cancelled there or before it goes on."""
        client, folder = Client(self.server), os.path.join(self.folder, "files")
        lines = self.long()
        whole = plain(client.content(client.wait(client.begin(lines)[1])["output_file_id"]))
        for there in (True, False):
            _, batch = client.begin(lines + [line(f"e{i}", TEXT, ENDLESS) for i in range(100)])
            written = os.path.join(folder, batch["id"] + ".out")
            while not os.path.exists(written) or os.path.getsize(written) == 0:
                _, batch = client.json("GET", f"/v1/batches/{batch['id']}")
            self.server.process.kill()
            self.server.stop()
            if there:  # it was killed while the streams of the batch ended
                record = pathlib.Path(folder, batch["id"] + ".json")
                told = json.loads(record.read_text())
                told["object"]["status"] = "cancelling"
                record.write_text(json.dumps(told))
            self.server = Server("--files-dir", folder, ready=False)
            client = Client(self.server)
            if not there:
                self.assertEqual(client.json("POST", f"/v1/batches/{batch['id']}/cancel")[0], 200)
            batch = client.wait(client.json("GET", f"/v1/batches/{batch['id']}")[1])
            self.assertEqual((batch["status"], batch["errors"]), ("cancelled", None))
            part = plain(client.content(batch["output_file_id"]))
            self.assertGreater(len(part), 0)
            self.assertEqual((part, len(part)), (whole[:len(part)], batch["request_counts"]["completed"]))

    def test_refused_batches_forget_nothing(self):
        """Of 1,000 batches the oldest that is over makes room for one that begins, and not for one that is refused."""
        self.server.stop()
        folder = pathlib.Path(self.folder, "files")
        names = [f"batch-0189abcdef7{i:016x}" for i in range(1000)]
        for name in names:
            (folder / f"{name}.json").write_text(json.dumps({"owner": "0" * 16, "object": {
                "id": name, "object": "batch", "created_at": 1, "status": "completed", "request_counts": {}}}))
        self.server = self.start()
        client = Client(self.server)
        status, answer = client.begin([line("a", TEXT, {**STORY, "model": "gpt-5"})])
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"), answer)
        self.assertEqual(client.json("GET", f"/v1/batches/{names[0]}")[0], 200)
        self.assertEqual(client.begin([line("a", TEXT, STORY)])[0], 200)
        self.assertEqual([client.json("GET", f"/v1/batches/{name}")[0] for name in names[:2]], [404, 200])

    def test_records_that_cannot_be_written(self):
        """While the disk takes no record, a job is not over: what clients are told of it is there for good."""
        self.server.stop()
        self.server = server = self.start("--log-json")
        client = Client(server)
        lines = self.long()
        whole = client.wait(client.begin(lines)[1])
        _, batch = client.begin(lines)
        client.wait(batch, until=("in_progress",))
        folder = os.path.join(self.folder, "files")
        in_the_way = os.path.join(folder, batch["id"] + ".new")
        os.mkdir(in_the_way)
        batch = client.wait(batch, until=("finalizing", *DONE))
        seen = server.said().count("Is a directory")
        while server.said().count("Is a directory") < seen + 2:  # it is tried again
            _, batch = client.json("GET", f"/v1/batches/{batch['id']}")
            self.assertEqual(batch["status"], "finalizing")
        self.assertEqual(client.ask("DELETE", f"/v1/files/{batch['input_file_id']}")[0], 200)  # which makes room
        os.rmdir(in_the_way)
        batch = client.wait(batch)
        self.assertEqual((batch["status"], batch["request_counts"]), ("completed", whole["request_counts"]))
        written = client.content(batch["output_file_id"])
        self.assertEqual(plain(written), plain(client.content(whole["output_file_id"])))
        self.assertEqual({os.stat(os.path.join(folder, name)).st_mode & 0o077 for name in os.listdir(folder)}, {0})
        for text in server.lines():
            self.assertIsInstance(json.loads(text), dict)
        server.process.kill()
        server.stop()
        self.server = self.start()
        client = Client(self.server)
        self.assertEqual(client.json("GET", f"/v1/batches/{batch['id']}")[1], batch)
        self.assertEqual(client.content(batch["output_file_id"]), written)

    def test_going_down_and_coming_back(self):
        client = Client(self.server)
        _, batch = client.begin(self.long())
        client.wait(batch, until=("in_progress",))
        self.assertEqual(self.server.stop()[0], 0)
        self.server = self.start()
        self.assertEqual(Client(self.server).wait(batch)["status"], "completed")

    def test_others_see_nothing(self):
        self.server.stop()
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("one\ntwo\nthree scopes=chat\n")
            keys.flush()
            self.server = self.start("--api-key-file", keys.name)
        one, two, three = (Client(self.server, key) for key in ("one", "two", "three"))
        self.server.get("/health")
        _, batch = one.begin(LINES)
        batch = one.wait(batch)
        for path in (f"/v1/batches/{batch['id']}", f"/v1/files/{batch['input_file_id']}",
                     f"/v1/files/{batch['output_file_id']}/content"):
            self.assertEqual((one.ask("GET", path)[0], two.ask("GET", path)[0], three.ask("GET", path)[0]),
                             (200, 404, 403))
        self.assertEqual(two.json("DELETE", f"/v1/files/{batch['input_file_id']}")[0], 404)
        self.assertEqual(two.json("POST", f"/v1/batches/{batch['id']}/cancel")[0], 404)
        self.assertEqual(two.json("POST", "/v1/batches", {"input_file_id": batch["input_file_id"], "endpoint": TEXT,
                                                          "completion_window": "24h"})[0], 404)
        for path in ("/v1/files", "/v1/batches"):
            self.assertEqual(two.json("GET", path)[1]["data"], [])
            self.assertTrue(one.json("GET", path)[1]["data"])

    def test_limits(self):
        self.server.stop()
        self.server = self.start("--files-size", 1000)
        client = Client(self.server)
        self.assertEqual(client.upload(b"x" * 600)[0], 200)
        self.assertEqual(client.upload(b"x" * 600)[0], 507)
        self.assertEqual(client.upload(b"x" * 400)[0], 200)
        second = common.run("serve", common.MODEL, "--port", 0, "--files-dir", os.path.join(self.folder, "files"))
        self.assertEqual((second.returncode, b"another server uses it" in second.stderr), (1, True))

    def whole(self, lines):
        """What a batch over these lines writes where there is room, each with its newline."""
        client = Client(self.server)
        batch = client.wait(client.begin(lines)[1])
        self.assertEqual(batch["status"], "completed")
        return client.content(batch["output_file_id"]).splitlines(keepends=True)

    def restart(self, *options):
        self.assertEqual(self.server.stop()[0], 0)
        shutil.rmtree(os.path.join(self.folder, "files"))
        self.server = self.start(*options)
        return Client(self.server)

    def files_bytes(self):
        """Of all but records."""
        with os.scandir(os.path.join(self.folder, "files")) as entries:
            return sum(entry.stat().st_size for entry in entries if not entry.name.endswith((".json", ".new")))

    def test_answers_that_do_not_fit(self):
        """The batch fails with the answers that fit, up to the first that does not; all else is as it was."""
        lines = [line(f"s{i}", TEXT, {"prompt": f"Once {i}", "max_tokens": 8}) for i in range(20)]
        whole = self.whole(lines)
        bytes_in, kept = len("\n".join(lines)), b"kept" * 100
        room = bytes_in + len(kept) + sum(map(len, whole[:8])) + len(whole[8]) // 2
        client = self.restart("--files-size", room, "--max-streams", 2)  # one line at a time
        other = client.upload(kept)[1]["id"]
        batch = client.wait(client.begin(lines)[1])
        error = batch["errors"]["data"][0]
        self.assertEqual((batch["status"], error["code"], error["param"], error["line"]),
                         ("failed", "storage_full", None, None))
        self.assertIn(str(room), error["message"])
        self.assertEqual(batch["request_counts"], {"total": 20, "completed": 8, "failed": 0})
        self.assertEqual(plain(client.content(batch["output_file_id"])), plain(b"".join(whole[:8])))
        self.assertLessEqual(self.files_bytes(), room)
        self.assertEqual(client.content(other), kept)
        self.assertEqual(client.upload(b"x" * (room - self.files_bytes() + 1))[0], 507)
        self.assertEqual(client.json("DELETE", f"/v1/files/{batch['output_file_id']}")[0], 200)
        self.assertEqual(client.json("DELETE", f"/v1/files/{other}")[0], 200)
        again = client.wait(client.begin(lines[:2])[1])
        self.assertEqual((again["status"], again["errors"]), ("completed", None))

    def test_answers_count_while_a_batch_runs(self):
        """Those that are computed, whether or not they stand in its file; also behind a crash, and where the end of the
        batch cannot be written."""
        quick = [line(f"q{i}", TEXT, {**STORY, "prompt": f"Once {i}"}) for i in range(4)]
        endless = line("e", TEXT, ENDLESS)
        sizes = list(map(len, self.whole(quick)))
        lines = [*quick[:2], endless, *quick[2:]]  # the answers to the last two wait for the one before them
        left = 100
        room = len("\n".join(lines)) + sum(sizes) + left
        client = self.restart("--files-size", room)

        def wait_for_answers(batch):
            while batch["request_counts"]["completed"] < len(quick):
                _, batch = client.json("GET", f"/v1/batches/{batch['id']}")
            return batch

        batch = wait_for_answers(client.begin(lines)[1])
        self.assertEqual(client.upload(b"x" * (left + 1))[0], 507)
        status, small = client.upload(b"x" * left)
        self.assertEqual(status, 200)
        self.assertEqual(client.json("POST", "/v1/batches", {
            "input_file_id": batch["input_file_id"], "endpoint": TEXT, "completion_window": "24h"})[0], 507)
        self.assertEqual(client.json("DELETE", f"/v1/files/{small['id']}")[0], 200)
        written = os.path.join(self.folder, "files", batch["id"] + ".out")
        while os.path.getsize(written) < sum(sizes[:2]):
            client.json("GET", "/v1/batches")
        self.server.process.kill()
        self.server.stop()
        self.server = self.start("--files-size", room)
        client = Client(self.server)
        wait_for_answers(client.json("GET", f"/v1/batches/{batch['id']}")[1])
        self.assertEqual(client.upload(b"x" * (left + 1))[0], 507)
        in_the_way = os.path.join(self.folder, "files", batch["id"] + ".new")
        os.mkdir(in_the_way)
        client.json("POST", f"/v1/batches/{batch['id']}/cancel")
        while "Is a directory" not in self.server.said() or self.server.metric("runnel_streams") > 0:
            pass
        self.assertEqual(client.upload(b"x" * (left + sum(sizes[2:]) + 1))[0], 507)
        os.rmdir(in_the_way)
        batch = client.wait(batch)
        self.assertEqual((batch["status"], len(client.content(batch["output_file_id"]))), ("cancelled", sum(sizes[:2])))
        self.assertEqual(client.upload(b"x" * (left + sum(sizes[2:]) + 1))[0], 507)
        self.assertEqual(client.upload(b"x" * (left + sum(sizes[2:])))[0], 200)

    def test_without_a_folder(self):
        server = Server()
        for method, path in (("GET", "/v1/files"), ("GET", "/v1/files/x"), ("DELETE", "/v1/files/x"),
                             ("GET", "/v1/batches"), ("GET", "/v1/batches/x"), ("POST", "/v1/batches/x/cancel")):
            self.assertEqual(server.ask(method, path)[0], 501)
        self.assertEqual(server.ask("POST", "/v1/files", *form([]))[0], 501)
        self.assertEqual(server.stop()[0], 0)


class Apart(unittest.TestCase):
    """What is done on libuv's threads: here there is one, which waits for a file's content to come out of a pipe."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.connections = []

    def start(self):
        self.server = Server("--files-dir", self.folder, "--quiet",
                             env={**os.environ, "RUNNEL_NICE": "0", "UV_THREADPOOL_SIZE": "1"})
        self.client = Client(self.server)
        self.addCleanup(self.stop)

    def hold(self):
        held = self.client.upload(b"x")[1]["id"]
        self.pipe = self.folder / held
        self.pipe.unlink()
        os.mkfifo(self.pipe)
        return self.begin("GET", f"/v1/files/{held}/content")

    def in_flight(self):
        """Requests that were read and not answered."""
        lines = [text.rpartition(" ") for text in self.server.get("/metrics")[1].decode().splitlines()]
        return (sum(int(n) for name, _, n in lines if name == "runnel_http_requests_total") -
                sum(int(n) for name, _, n in lines if name.startswith("runnel_http_answers_total{")))

    def begin(self, method, path, body=None, headers=None):
        before, connection = self.in_flight(), self.server.connect()
        connection.request(method, path, body, headers or {})
        self.connections.append(connection)
        while self.in_flight() == before and not self.is_answered(connection):
            pass
        return connection

    def is_answered(self, connection):
        return bool(select.select([connection.sock], [], [], 0)[0])

    def release(self):
        with open(self.pipe, "wb") as pipe:
            pipe.write(b"there")

    def answer(self, connection):
        answer = connection.getresponse()
        return answer.status, answer.read()

    def stop(self):
        for connection in self.connections:
            connection.close()
        try:  # a thread that still waits, since the test has failed
            os.close(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass
        code, said = self.server.stop()
        self.assertEqual((code, said), (0, ""))

    def test_forms_are_read_there(self):
        self.start()
        held = self.hold()
        body, headers = form([("purpose", None, b"batch"), ("file", "a", b"x")])
        upload = self.begin("POST", "/v1/files", body[:-6], headers)
        self.assertFalse(self.is_answered(upload))
        self.release()
        self.assertEqual(self.answer(held), (200, b"there"))
        self.assertEqual(self.answer(upload)[0], 400)

    def test_deleted_meanwhile(self):
        """What was there when it was asked for and is not when it is read."""
        self.start()
        files = [self.client.upload(data)[1]["id"] for data in (b"a", line("a", TEXT, STORY).encode())]
        held = self.hold()
        content = self.begin("GET", f"/v1/files/{files[0]}/content")
        batch = self.begin("POST", "/v1/batches", json.dumps(
            {"input_file_id": files[1], "endpoint": TEXT, "completion_window": "24h"}))
        for file in files:
            self.assertEqual(self.client.ask("DELETE", f"/v1/files/{file}")[0], 200)
        self.release()
        self.assertEqual(self.answer(held), (200, b"there"))
        for connection, file in ((content, files[0]), (batch, files[1])):
            status, answer = self.answer(connection)
            self.assertEqual((status, json.loads(answer)["error"]["code"]), (404, "not_found"), answer)
            self.assertIn(file, answer.decode())

    def test_files_that_are_being_written_count(self):
        for i in range(998):
            name = f"file-0189abcdef7{i:016x}"
            (self.folder / name).write_bytes(b"")
            (self.folder / f"{name}.json").write_text(json.dumps({"owner": "0" * 16, "object": {
                "id": name, "object": "file", "bytes": 0, "created_at": 1, "filename": "a", "purpose": "batch",
                "status": "processed"}}))
        self.start()
        held = self.hold()
        body, headers = form([("purpose", None, b"batch"), ("file", "a", b"x")])
        uploads = [self.begin("POST", "/v1/files", body, headers) for _ in range(2)]
        self.release()
        self.assertEqual(self.answer(held)[0], 200)
        self.assertEqual(sorted(self.answer(upload)[0] for upload in uploads), [200, 507])
        files = self.client.json("GET", "/v1/files?limit=10000")[1]["data"]
        self.assertEqual(len(files), 1000)
        status, answer = self.client.json("POST", "/v1/batches", {
            "input_file_id": files[0]["id"], "endpoint": TEXT, "completion_window": "24h"})
        self.assertEqual((status, answer["error"]["code"]), (507, "storage_full"))


if __name__ == "__main__":
    common.main("__main__")
