#!/usr/bin/env python3
"""The shared tier over TLS and with accounts: a redis-server with certificates made here, and servers that are not what
they should be. The judge of every text is a run without any cache tier; of what was shared, the server's own count of
keys."""
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import common
from common import MODEL, run

PROMPT = "Once upon a time there was a small house at the edge of the wood. " * 14 + "An old man"
SECRET = "p:w/@d 77%"
TELLS = "the shared cache tier:"
TRIES = 20  # of what a machine under load may spoil once
QUOTED = "p%3Aw%2F%40d%2077%25"


def answer(*options, prompt=PROMPT):
    """Text, tokens that were shared, what was told on stderr."""
    done = run("run", MODEL, "-p", prompt, "-n", "12", "--json", *options)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert SECRET.encode() not in done.stdout + done.stderr and QUOTED.encode() not in done.stdout + done.stderr
    return ("".join(e["text"] for e in events if e["type"] == "token"), events[-1]["usage"].get("shared_tokens", 0),
            done.stderr.decode())


def gets(test, *options):
    """A run finds nothing or what one before it has put, and in the end one finds it: a machine that stands still for
    half a second says nothing of the tier."""
    for _ in range(TRIES):
        text, shared, told = answer(*options)
        test.assertEqual(text, test.expected)
        if shared > 200:
            test.assertNotIn(TELLS, told)
            return
    test.fail(told)


def fails(test, words, *options):
    """The text is right, nothing is shared, and one line says why."""
    for _ in range(TRIES):
        text, shared, told = answer(*options)
        test.assertEqual((text, shared), (test.expected, 0))
        lines = [line for line in told.splitlines() if TELLS in line]
        test.assertEqual(len(lines), 1, told)
        if any(word in lines[0] for word in words):
            return
        test.assertIn("in time", lines[0])
    test.fail(lines[0])


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_authority(folder, name):
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", name + ".key", "-out", name + ".pem",
            "-subj", "/CN=" + name, "-days", "2")


def make_certificate(folder, name, names, days="2"):
    openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", name + ".key", "-out", name + ".csr", "-subj",
            "/CN=" + name, "-addext", "subjectAltName=" + names)
    openssl(folder, "x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", name + ".pem", "-copy_extensions", "copy", "-days", days)


def free_port(host="127.0.0.1"):
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        return s.getsockname()[1]


class Server:
    """A redis-server on a port, by TLS if it has a certificate, and on a socket from beside."""

    def __init__(self, folder, certificate=None, clients="no", host="127.0.0.1", port=None, options=()):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.socket = self.folder + "/socket"
        for _ in range(50):  # until nobody else has the port
            self.port = port or free_port(host)
            way = ["--port", str(self.port)]
            if certificate is not None:
                way = ["--port", "0", "--tls-port", str(self.port), "--tls-cert-file", f"{folder}/{certificate}.pem",
                       "--tls-key-file", f"{folder}/{certificate}.key", "--tls-ca-cert-file", f"{folder}/ca.pem",
                       "--tls-auth-clients", clients]
            self.process = common.popen(["redis-server", *way, "--bind", host, "--unixsocket", self.socket,
                                         "--save", "", "--dir", self.folder, "--logfile", self.folder + "/log",
                                         *options])
            if self.comes_up():
                return
        raise AssertionError(pathlib.Path(self.folder, "log").read_text())

    def comes_up(self):
        while self.process.poll() is None:  # the socket comes behind the port
            if pathlib.Path(self.socket).exists():
                return True
            time.sleep(0.005)
        return False

    def ask(self, *words):
        done = subprocess.run(["redis-cli", "-s", self.socket, *words], capture_output=True, check=True)
        return done.stdout.decode().strip()

    def stop(self):
        self.process.kill()
        self.process.wait()
        pathlib.Path(self.socket).unlink(missing_ok=True)


class Pretender:
    """Takes connections and does `act` with each."""

    def __init__(self, act):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.act = act
        self.accepted = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        with connection:
            try:
                self.act(connection)
            except OSError:
                pass

    def stop(self):
        self.listener.close()


def cut_after(port, most):
    """Passes everything on to the server at `port`, and of what that says `most` bytes; then closes."""
    def act(connection):
        left = most
        with socket.create_connection(("127.0.0.1", port)) as server:
            while left > 0:
                for side in select.select([connection, server], [], [])[0]:
                    data = side.recv(4096)
                    if not data:
                        return
                    if side is connection:
                        server.sendall(data)
                    else:
                        connection.sendall(data[:left])
                        left -= len(data)
    return act


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        make_authority(cls.folder, "ca")
        make_authority(cls.folder, "stranger")
        make_certificate(cls.folder, "good", "DNS:localhost,IP:127.0.0.1,IP:::1")
        make_certificate(cls.folder, "elsewhere", "DNS:redis.example,IP:127.0.0.9")
        make_certificate(cls.folder, "expired", "DNS:localhost,IP:127.0.0.1", "-1")
        cls.ca = ("--cache-shared-ca", cls.folder + "/ca.pem")
        cls.expected = answer()[0]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def serve(self, *args, **options):
        server = Server(self.folder, *args, **options)
        self.addCleanup(server.stop)
        return server

    def pretend(self, act):
        pretender = Pretender(act)
        self.addCleanup(pretender.stop)
        return pretender

    def shares(self, server, *options):
        """The first run puts what the second one gets."""
        self.assertEqual(answer(*options)[:2], (self.expected, 0))
        gets(self, *options)
        self.assertGreater(int(server.ask("DBSIZE")), 3)

    def test_verified(self):
        server = self.serve("good")
        self.shares(server, "--cache-shared", f"rediss://127.0.0.1:{server.port}", *self.ca)
        server.ask("FLUSHALL")
        self.shares(server, "--cache-shared", f"rediss://localhost:{server.port}", *self.ca)  # ::1 refuses, where it is

    def test_system_authorities(self):
        """$SSL_CERT_FILE stands for what the system trusts."""
        server = self.serve("good")
        url = f"rediss://localhost:{server.port}"
        fails(self, ["certificate is refused"], "--cache-shared", url)
        os.environ["SSL_CERT_FILE"] = self.folder + "/ca.pem"
        self.addCleanup(os.environ.pop, "SSL_CERT_FILE")
        self.shares(server, "--cache-shared", url)
        fails(self, ["certificate is refused"], "--cache-shared", url, "--cache-shared-ca",
              self.folder + "/stranger.pem")  # who names authorities trusts no others

    def test_refused(self):
        """Nothing of a prompt and no password goes to a server that is not who it should be."""
        for certificate, ca, words in (("good", "stranger", "self-signed certificate in certificate chain"),
                                       ("elsewhere", "ca", "mismatch"), ("expired", "ca", "expired")):
            server = self.serve(certificate)
            for host in ("127.0.0.1", "localhost"):
                fails(self, [words], "--cache-shared", f"rediss://:{QUOTED}@{host}:{server.port}", "--cache-shared-ca",
                           f"{self.folder}/{ca}.pem")
            self.assertEqual(server.ask("DBSIZE"), "0")
            self.assertNotIn("cmdstat_auth", server.ask("INFO", "commandstats"))

    def test_client_certificate(self):
        server = self.serve("good", clients="yes")
        url = f"rediss://127.0.0.1:{server.port}"
        fails(self, ["certificate required", "closed", "reset"], "--cache-shared", url, *self.ca)
        ours = ("--cache-shared", url, *self.ca, "--cache-shared-cert", self.folder + "/good.pem")
        self.shares(server, *ours, "--cache-shared-key", self.folder + "/good.key")
        both = pathlib.Path(self.folder, "both.pem")
        both.write_text(pathlib.Path(self.folder, "good.pem").read_text() +
                        pathlib.Path(self.folder, "good.key").read_text())
        gets(self, "--cache-shared", url, *self.ca, "--cache-shared-cert", both)

    def test_files(self):
        """What cannot be read, or does not fit, is an error at once; nobody is asked for a passphrase."""
        openssl(self.folder, "rsa", "-in", "good.key", "-aes128", "-passout", "pass:x", "-out", "locked.key")
        here = self.folder + "/"
        pathlib.Path(here + "empty").write_text("")
        for options, words in ((("ca", "/nonexistent"), "No such file"), (("ca", here + "good.key"), "trust in"),
                               (("ca", here + "empty"), "trust in"), (("ca", here), "trust in"),
                               (("cert", here + "good.key"), "no certificate in"),
                               (("cert", here + "good.pem"), "no key"), (("key", here + "good.key"), "without a cert"),
                               (("cert", here + "good.pem", "key", here + "expired.key"), "mismatch"),
                               (("cert", here + "good.pem", "key", here + "locked.key"), "passphrase")):
            words_of = [f"--cache-shared-{x}" if i % 2 == 0 else x for i, x in enumerate(options)]
            done = run("run", MODEL, "-p", "x", "-n", "1", "--cache-shared", "rediss://127.0.0.1:1", *words_of)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words.encode(), done.stderr)
        for url, words in (("redis://x", b"for rediss:// only"), ("unix:/x", b"for rediss:// only")):
            done = run("run", MODEL, "-p", "x", "-n", "1", "--cache-shared", url, *self.ca)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
        done = run("run", MODEL, "-p", "x", "-n", "1", *self.ca)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"without cache_shared", done.stderr)

    def test_crossed(self):
        """Plain where TLS is meant, and the other way round."""
        plain, tls = self.serve(), self.serve("good")
        fails(self, ["a server without TLS?"], "--cache-shared", f"rediss://127.0.0.1:{plain.port}", *self.ca)
        self.assertEqual(plain.ask("DBSIZE"), "0")
        fails(self, ["perhaps it wants TLS", "Protocol error"], "--cache-shared", f"redis://127.0.0.1:{tls.port}")
        self.assertEqual(tls.ask("DBSIZE"), "0")

    def test_pretenders(self):
        server = self.serve("good")
        shares = ("--cache-shared", f"rediss://127.0.0.1:{server.port}", *self.ca)
        self.shares(server, *shares)
        for act, words in ((lambda c: c.recv(1) and time.sleep(common.PATIENCE), ["no answer in time"]),
                           (lambda c: c.close(), ["closed", "reset", "eof"]),
                           (lambda c: c.recv(99) and c.sendall(b"+OK\r\n" * 99) or c.recv(1), ["wrong version"]),
                           (lambda c: c.recv(99) and c.sendall(bytes(range(256)) * 4) or c.recv(1), ["TLS: "])):
            pretender = self.pretend(act)
            fails(self, words, "--cache-shared", f"rediss://127.0.0.1:{pretender.port}", *self.ca)
            self.assertGreater(pretender.accepted, 0)

    def test_cut(self):
        """Lost at any place: in the handshake, in a record, between two."""
        server = self.serve("good")
        self.shares(server, "--cache-shared", f"rediss://127.0.0.1:{server.port}", *self.ca)
        for most in (1, 5, 100, 900, 1500, 2300, 3000, 6000, 20000, 60000):
            pretender = self.pretend(cut_after(server.port, most))
            text, _, told = answer("--cache-shared", f"rediss://127.0.0.1:{pretender.port}", *self.ca)
            self.assertEqual(text, self.expected, most)
            self.assertGreater(pretender.accepted, 0)
            self.assertIn(TELLS, told)

    def test_restart(self):
        """Lost while an engine runs; then one more, with nothing."""
        server = self.serve("good")
        shares = ("--cache-shared", f"rediss://127.0.0.1:{server.port}", *self.ca)
        self.shares(server, *shares)
        busy = common.popen([common.program, "run", MODEL, "-p", PROMPT, "-n", "400", "--ignore-eos", "--json",
                             "-q", *shares], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        busy.stdout.readline()
        server.stop()
        last = json.loads(busy.communicate(timeout=common.PATIENCE)[0].splitlines()[-1])
        self.assertEqual((busy.returncode, last["type"]), (0, "done"))
        again = self.serve("good", port=server.port)
        self.shares(again, *shares)


class Accounts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        cls.expected = answer()[0]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def serve(self, **options):
        server = Server(self.folder, **options)
        self.addCleanup(server.stop)
        return server

    def shares(self, server, url, database="0"):
        gets(self, "--cache-shared", url)
        self.assertGreater(int(server.ask("-n", database, "DBSIZE")), 3)

    def test_users(self):
        """The rights that docs/TIERS.md names are enough."""
        server = self.serve()
        server.ask("ACL", "SETUSER", "an@e", "on", ">" + SECRET, "~runnel:1:*", "+auth", "+select", "+ping", "+get",
                   "+getrange", "+strlen", "+set", "+del", "+scan", "+xadd", "+xrange", "+xrevrange", "+expire")
        for database in ("", "/", "/3"):
            server.ask("FLUSHALL")
            self.shares(server, f"redis://an%40e:{QUOTED}@127.0.0.1:{server.port}{database}", database[1:] or "0")
        server.ask("FLUSHALL")
        self.shares(server, f"unix://an%40e:{QUOTED}@{server.socket}?db=5&ttl=600", "5")
        self.shares(server, f"redis://an%40e:{QUOTED}@127.0.0.1:{server.port}?db=7", "7")
        for account in (f"an%40e:{QUOTED}x", f"me:{QUOTED}"):
            fails(self, ["WRONGPASS"], "--cache-shared", f"redis://{account}@127.0.0.1:{server.port}")

    def test_file(self):
        """An address with a password in it need not stand on the command line."""
        server = self.serve(options=("--requirepass", SECRET))
        path = pathlib.Path(self.folder, "address")
        path.write_text(f"redis://:{QUOTED}@127.0.0.1:{server.port}\n")
        gets(self, "--cache-shared", f"@{path}")
        for content, words in (("", b"redis://"), ("a\nb\n", b"more than a line"),
                               (f"redis://:{QUOTED}@\n", b"host is missing")):
            path.write_text(content)
            done = run("run", MODEL, "-p", "x", "-n", "1", "--cache-shared", f"@{path}")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
            self.assertNotIn(QUOTED.encode(), done.stderr)
        self.assertNotEqual(run("run", MODEL, "-p", "x", "--cache-shared", "@/nonexistent").returncode, 0)

    def test_echo(self):
        """A server may repeat a command that it does not know. What it says is told, a password is not."""
        def act(connection):
            said = connection.recv(4096)
            connection.sendall(b"-ERR unknown command 'AUTH', with args beginning with: '" + SECRET.encode() + b"'\r\n"
                               if SECRET.encode() in said else b"-ERR what?\r\n")
        pretender = Pretender(act)
        self.addCleanup(pretender.stop)
        fails(self, ["with the password in it"], "--cache-shared", f"redis://:{QUOTED}@127.0.0.1:{pretender.port}")
        fails(self, ["ERR what?"], "--cache-shared", f"redis://127.0.0.1:{pretender.port}")

    def test_ipv6(self):
        try:
            free_port("::1")
        except OSError:
            self.skipTest("there is no ::1")
        server = self.serve(host="::1")
        self.shares(server, f"redis://[::1]:{server.port}")


def has_tls():
    """What the program says of rediss:// where it was built without: an error, and no word to the server."""
    done = run("run", MODEL, "-p", "x", "-n", "1", "--cache-shared", "rediss://127.0.0.1:1", "-q")
    return b"without OpenSSL" not in done.stderr or done.returncode == 0


def can_serve():
    done = subprocess.run(["redis-server", "--port", "0", "--tls-port", "x"], capture_output=True)
    return b"Bad directive" not in done.stdout + done.stderr


def load_tests(loader, standard, pattern):
    for program in ("redis-server", "redis-cli", "openssl"):
        if shutil.which(program) is None:
            common.skip(f"there is no {program}")
    if not can_serve():
        common.skip("this redis-server knows no TLS")
    if not has_tls():
        print("this build has no TLS: accounts only")
        return loader.loadTestsFromTestCase(Accounts)
    return standard


if __name__ == "__main__":
    common.main(__name__)
