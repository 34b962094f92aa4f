#!/usr/bin/env python3
"""runnel serve: how it is reached (https, a unix socket) and how it ends (a deadline for what runs); pages of other
hosts."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import tempfile
import time
import unittest

import common
from common import MODEL, run
from server import NAME, Server, parse_events

TEXT = "/v1/completions"
BODY = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
ENDLESS = {**BODY, "max_tokens": 1 << 30, "ignore_eos": True, "context_keep": 0, "stream": True}


def start(*options):
    """The process, and the line by which it says where it listens."""
    process = common.popen([common.program, "serve", MODEL, "-t", "2", *map(str, options)], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    return process, process.stdout.readline().decode()


def stop(process):
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=common.PATIENCE)
    return process.returncode


def expected():
    words = [common.program, "run", MODEL, "-p", BODY["prompt"], "-n", "12", "--temperature", "0", "-q"]
    return subprocess.run(words, capture_output=True, check=True).stdout.decode().removesuffix("\n")


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("x")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def talk(test, connection):
    """A whole answer and a streamed one over one connection; the program's text."""
    want = expected()
    connection.request("POST", TEXT, json.dumps(BODY))
    answer = connection.getresponse()
    test.assertEqual((answer.status, json.loads(answer.read())["choices"][0]["text"]), (200, want))
    connection.request("POST", TEXT, json.dumps({**BODY, "stream": True}))
    events = parse_events(connection.getresponse().read())
    test.assertEqual("".join(c["text"] for _, e in events if e != "[DONE]" for c in e["choices"]), want)
    connection.close()


class Reached(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def certificate(self):
        if shutil.which("openssl") is None:
            self.skipTest("openssl is missing")
        paths = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-out", paths[0], "-keyout", paths[1]],
                       check=True, capture_output=True)
        return paths

    def test_tls(self):
        cert, key = self.certificate()
        process, line = start("--port", 0, "--tls-cert", cert, "--tls-key", key)
        self.addCleanup(process.kill)
        if "listening" not in line and b"OpenSSL" in process.stderr.read():
            self.skipTest("built without OpenSSL")
        port = int(re.fullmatch(r"listening on https://127\.0\.0\.1:(\d+)\n", line)[1])
        context = ssl.create_default_context(cafile=cert)
        talk(self, http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=common.PATIENCE))
        with self.assertRaises(ssl.SSLCertVerificationError):
            http.client.HTTPSConnection("127.0.0.1", port,
                                        context=ssl.create_default_context()).request("GET", "/health")
        with socket.create_connection(("127.0.0.1", port)) as plain:  # no TLS
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertNotIn(b"200", plain.recv(1000))
        client = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        client.request("POST", TEXT, json.dumps(ENDLESS))
        answer = client.getresponse()
        answer.read(100)
        client.sock.close()  # who leaves is seen here, too
        answer.close()
        client = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        while True:
            client.request("GET", "/metrics")
            if b"\nrunnel_streams 0\n" in client.getresponse().read():
                break
        client.close()
        self.assertEqual(stop(process), 0)

    def test_tls_files_that_are_none(self):
        cert, key = self.certificate()
        for words in (("--tls-cert", key, "--tls-key", cert), ("--tls-cert", "/nosuch", "--tls-key", key)):
            process, line = start("--port", 0, *words)
            said = process.stderr.read()
            self.assertEqual((line, process.wait()), ("", 1), said)
            self.assertEqual(said.count(b"\n"), 1, said)

    def test_unix(self):
        path = self.folder / "socket"
        process, line = start("--unix", path)
        self.addCleanup(process.kill)
        self.assertEqual(line, f"listening on unix:{path}\n")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        talk(self, Unix(str(path)))
        second, line = start("--unix", path)  # it is served
        self.assertEqual((line, second.wait(common.PATIENCE)), ("", 1))
        self.assertIn(b"cannot listen on", second.stderr.read())
        self.assertEqual(stop(process), 0)
        self.assertFalse(path.exists())

    def test_nobody_reads_where_it_listens(self):
        """It serves all the same, and says so."""
        path = self.folder / "socket"
        gone, output = os.pipe()
        os.close(gone)
        process = common.popen([common.program, "serve", MODEL, "-t", "2", "-q", "--unix", path], stdout=output,
                               stderr=subprocess.PIPE)
        os.close(output)
        self.addCleanup(process.kill)
        self.assertEqual(process.stderr.readline().decode(),
                         f"runnel: nobody reads standard output: listening on unix:{path}\n")
        talk(self, Unix(str(path)))
        self.assertEqual(stop(process), 0)

    def test_unix_socket_that_nobody_serves(self):
        path = self.folder / "socket"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        process, line = start("--unix", path)
        self.assertEqual(line, f"listening on unix:{path}\n")
        talk(self, Unix(str(path)))
        self.assertEqual(stop(process), 0)
        (self.folder / "file").write_text("not a socket")
        process, line = start("--unix", self.folder / "file")
        self.assertEqual((line, process.wait(common.PATIENCE)), ("", 1))
        self.assertEqual((self.folder / "file").read_text(), "not a socket")


class Descriptors(unittest.TestCase):
    def serve(self, limit, *models):
        """A server under `ulimit` with this option and number, for 300 connections."""
        log = tempfile.TemporaryFile()
        process = common.popen(["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", common.program, "serve",
                                *(models or [MODEL]), "-t", "2", "--port", "0", "--max-connections", "300"],
                               stdout=subprocess.PIPE, stderr=log)
        self.addCleanup(log.close)
        self.addCleanup(stop, process)
        port = int(process.stdout.readline().decode().rsplit(":", 1)[1])

        def connect():
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=common.PATIENCE)
            client.request("GET", "/health")
            return client

        def said():
            return os.pread(log.fileno(), 1 << 20, 0).decode()

        def wait_for(part):
            while part not in said():
                self.assertIsNone(process.poll(), said())
                time.sleep(0.001)

        return connect, said, wait_for

    def test_the_soft_limit_is_raised(self):
        connect, said, _ = self.serve("-S -n 128")
        for client in [connect() for _ in range(250)]:
            self.assertEqual(client.getresponse().status, 200)
            client.close()
        self.assertNotIn("descriptors", said())

    def test_the_hard_limit_is_told(self):
        connect, said, wait_for = self.serve("-n 128")
        clients = [connect() for _ in range(150)]
        wait_for("connections wait")
        self.assertIn("--max-connections 300 needs 500 file descriptors; this process may have 128", said())
        for client in clients:  # who waits is served when others have gone
            self.assertEqual(client.getresponse().status, 200)
            client.close()
        self.assertEqual(said().count("connections wait"), 1)

    def test_a_model_has_descriptors_however_many_come(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "late.gguf").symlink_to(MODEL)
            connect, _, wait_for = self.serve("-n 128", "--models-dir", folder)
            clients = [connect() for _ in range(150)]
            wait_for("connections wait")
            clients[0].getresponse().read()
            clients[0].request("POST", TEXT, json.dumps({**BODY, "model": "late"}))
            self.assertEqual(clients[0].getresponse().status, 200)
            for client in clients:
                client.close()


class Deadline(unittest.TestCase):
    def test_what_does_not_end_is_cut_off(self):
        server = Server("--drain", 0.2)
        client = server.connect()
        client.request("POST", TEXT, json.dumps(ENDLESS))
        answer = client.getresponse()
        answer.read(100)
        waits = server.begin(TEXT, {**ENDLESS, "stream": False})  # a whole answer that will never be one
        while server.metric("runnel_streams") != 2:
            pass
        server.process.send_signal(signal.SIGTERM)
        with self.assertRaises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()  # whatever came, no end of it did
        waits = waits.makefile("rb")
        self.assertEqual(waits.readline().split()[1], b"503")
        self.assertIn("going down", json.loads(waits.read().split(b"\r\n\r\n")[1])["error"]["message"])
        waits.close()
        code, said = server.stop()
        self.assertEqual(code, 0)
        self.assertIn("going down", said)
        self.assertIn("0.2 s have passed", said)
        self.assertNotIn("its client left", said)
        self.assertRegex(said, r"POST /v1/completions 200, .*, cut off, req_")
        self.assertRegex(said, r"POST /v1/completions 503, ")

    def test_all_variables_at_once(self):
        """tests/apps/test_fields.c walks the table; here some of them act."""
        env = {**os.environ, "RUNNEL_MAX_STREAMS": "1", "RUNNEL_CTX": "64", "RUNNEL_CORS": "https://a.example",
               "RUNNEL_NO_PAGE": "1", "RUNNEL_LOG_JSON": "1", "RUNNEL_MAX_BODY": "1K", "RUNNEL_DRAIN": "0.1",
               "RUNNEL_METRICS_COMPAT": "vllm"}
        server = Server(env=env)
        self.assertEqual(json.loads(server.get("/v1/models")[1])["data"][0]["max_model_len"], 64)
        self.assertEqual(server.post(TEXT, {"prompt": "a", "n": 2})[0], 400)  # more answers than may run at all
        self.assertEqual(server.get("/"), (200, b"runnel is running"))
        self.assertEqual(server.ask("POST", TEXT, " " * 1025)[0], 413)
        self.assertIn(b"\nvllm:", server.get("/metrics")[1])
        code, said = server.stop()
        self.assertEqual(code, 0)
        self.assertTrue(all(json.loads(line) for line in said.splitlines()))


class Cors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--cors", "https://a.example,http://localhost:3000", "--quiet")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop()[0] == 0

    def preflight(self, origin, asked):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
        client = self.server.connect()
        client.request("OPTIONS", TEXT, None, headers)
        answer = client.getresponse()
        self.assertEqual((answer.status, answer.read()), (204, b""))
        client.close()
        return {name.lower(): ", ".join(answer.headers.get_all(name)) for name in answer.headers}

    def test_preflight(self):
        usual = "authorization, content-type, x-api-key, x-request-id"
        own = "anthropic-version,x-api-key, x-stainless-os,X-Stainless-Retry-Count"
        for origin in ("https://a.example", "http://localhost:3000"):
            got = self.preflight(origin, own)
            self.assertEqual(got["access-control-allow-origin"], origin)
            self.assertEqual(got["access-control-allow-headers"], own)
            self.assertIn("POST", got["access-control-allow-methods"])
            self.assertIn("Origin", got["vary"])
            self.assertIn("Access-Control-Request-Headers", got["vary"])
        for asked in ("", "a" * 1025, 'a"b', "a;b", "a: b", "*", "é".encode().decode("latin-1")):
            with self.subTest(asked=asked[:10]):
                self.assertEqual(self.preflight("https://a.example", asked)["access-control-allow-headers"], usual)
        for origin in ("https://evil.example", "null", "https://a.example.evil.org"):
            got = self.preflight(origin, own)
            self.assertNotIn("access-control-allow-origin", got)
            self.assertEqual(got["access-control-allow-headers"], usual)

    def test_foreign_pages_change_nothing(self):
        """What a browser sends without a preflight."""
        host = f"localhost:{self.server.port}"

        def ask(origin, path=TEXT, method="POST", **more):
            body = json.dumps(BODY) if method == "POST" else None
            headers = {"Host": host, "Content-Type": "text/plain", "Origin": origin, **more}
            return self.server.ask(method, path, body, {k: v for k, v in headers.items() if v is not None})

        for origin in (None, f"http://{host}", f"https://{host}", "https://a.example"):
            self.assertEqual(ask(origin)[0], 200, origin)
        self.assertEqual(ask("https://of.a.proxy", **{"Sec-Fetch-Site": "same-origin"})[0], 200)
        for origin in ("https://evil.example", "null", "http://localhost", "http://localhost:1", "",
                       f"http://{host}.evil.example", f"http://x@{host}"):
            for path, method in ((TEXT, "POST"), ("/models/unload", "POST"), ("/v1/files/file-1", "DELETE"),
                                 ("/x", "POST")):
                status, answer, _ = ask(origin, path, method, **{"Sec-Fetch-Site": "cross-site"})
                self.assertEqual((status, json.loads(answer)["error"]["code"]), (403, "foreign_origin"), origin)
            self.assertEqual(ask(origin, "/v1/models", "GET")[0], 200)
        self.assertEqual(ask("https://evil.example", "/v1/messages")[0], 403)

    def test_origins_that_match_nothing(self):
        for word in ("foo bar", "a.example", "https://a.example/", "https://a.example, https://b.example", "https://"):
            result = run("serve", MODEL, "--port", "0", "--cors", word)
            self.assertEqual((result.returncode, b"--cors '" in result.stderr), (2, True), word)

    def test_what_a_page_may_read(self):
        _, _, got = self.server.ask("POST", TEXT, json.dumps(BODY), {"Origin": "https://a.example"})
        exposed = got["access-control-expose-headers"].split(", ")
        for name in ("x-request-id", "retry-after", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests"):
            self.assertIn(name, exposed)
        self.assertIn("x-request-id", got)
        for headers in ({}, {"Origin": "https://evil.example"}):
            self.assertNotIn("access-control-expose-headers", self.server.ask("GET", "/health", None, headers)[2])


def own_address():
    """One of this machine by which others reach it; None: there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return None


class Hosts(unittest.TestCase):
    """Names by which the server is asked. A page whose name resolves to 127.0.0.1 cannot send another one."""

    LOCAL = ("localhost", "LocalHost.:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "192.168.1.7:1",
             "a.localhost", "host.docker.internal:8080", "nas", "nas:8080", "")
    FOREIGN = ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "a.internals",
               "not.localhosts", "localhost..")

    def serve(self, *options):
        server = Server("--quiet", *options)
        self.addCleanup(lambda: self.assertEqual(server.stop(), (0, "")))
        return server

    def ask(self, server, host, path="/v1/models", method="GET", address="127.0.0.1", version="1.1", **fields):
        """The status, and whether the name was refused as such."""
        head = [f"{method} {path} HTTP/{version}", "Connection: close", *([] if host is None else [f"Host: {host}"]),
                *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items()), "", ""]
        with socket.create_connection((address, server.port), timeout=common.PATIENCE) as client:
            client.sendall("\r\n".join(head).encode())
            with client.makefile("rb") as answer:
                answer = answer.read()
        return int(answer.split()[1]), b"--allow-host does not name it" in answer

    def judge(self, server, known, foreign, **how):
        for host in known:
            self.assertEqual(self.ask(server, host, **how), (200, False), host)
        for host in foreign:
            self.assertEqual(self.ask(server, host, **how), (403, True), host)

    def test_who_needs_no_key(self):
        server = self.serve()
        own = socket.gethostname()
        self.judge(server, (*self.LOCAL, own, own.upper() + ".local"), self.FOREIGN)
        self.assertEqual(self.ask(server, None, version="1.0"), (200, False))  # no browser's
        page = {"Origin": "http://evil.example", "Sec_Fetch_Site": "same-origin"}  # what a browser says for the page
        for method, path in (("GET", "/"), ("GET", "/health"), ("OPTIONS", "/v1/models"), ("POST", "/models/unload"),
                             ("POST", "/api/chat"), ("DELETE", "/v1/files/file-1"), ("GET", "/nothing")):
            self.assertEqual(self.ask(server, "evil.example", path, method, **page), (403, True), path)
        status, answer, _ = server.ask("GET", "/v1/models", None, {"Host": "evil.example"})
        error = json.loads(answer)["error"]
        self.assertEqual((status, error["type"], error["code"]), (403, "permission_error", "foreign_host"))

    def test_names_that_are_allowed(self):
        server = self.serve("--allow-host", "a.example,b.example", "--cors", "https://page.example:8443")
        self.judge(server, (*self.LOCAL, "a.example", "A.Example.:80", "b.example:1", "page.example",
                            "page.example:8080"),
                   (*self.FOREIGN[:4], "b.a.example", "page.examples"))
        self.judge(self.serve("--allow-host", "*"), (*self.LOCAL, *self.FOREIGN), ())
        self.judge(self.serve("--cors", "*"), (*self.LOCAL, *self.FOREIGN), ())

    def test_keys(self):
        """No page has one, and a proxy keeps the name that it is asked by. Names that are given count all the same."""
        keys = self.enterContext(tempfile.NamedTemporaryFile("w"))
        keys.write("a-key\n")
        keys.flush()
        key = {"Authorization": "Bearer a-key"}
        self.judge(self.serve("--api-key-file", keys.name), (*self.LOCAL, *self.FOREIGN), (), **key)
        self.judge(self.serve("--api-key-file", keys.name, "--allow-host", "a.example"), (*self.LOCAL, "a.example"),
                   self.FOREIGN, **key)

    def test_who_comes_from_elsewhere(self):
        """Other machines ask by whatever name the server has with them."""
        address = own_address()
        if address is None or address.startswith("127."):
            self.skipTest("this machine has no address but loopback's")
        server = self.serve("--host", "0.0.0.0")
        self.judge(server, (*self.LOCAL, *self.FOREIGN), (), address=address)
        self.judge(server, self.LOCAL, self.FOREIGN)
        self.judge(self.serve("--host", "0.0.0.0", "--allow-host", "a.example"), (*self.LOCAL, "a.example"),
                   self.FOREIGN, address=address)

    def test_names_that_match_nothing(self):
        for word in ("https://a.example", "a.example:8080", "a b", "a,,b", "[::1]", "a.example/"):
            result = run("serve", MODEL, "--port", "0", "--allow-host", word)
            self.assertEqual((result.returncode, b"--allow-host '" in result.stderr), (2, True), word)


if __name__ == "__main__":
    common.main("__main__")
