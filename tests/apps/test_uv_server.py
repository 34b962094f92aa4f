#!/usr/bin/env python3
"""uv_server with fifty clients of which half vanish in the middle: every other answer is complete and is
what `runnel run` says to the same prompt. The program's path comes in; the server lies beside it."""
import pathlib
import re
import selectors
import signal
import socket
import subprocess
import time
import unittest

import common
from common import MODEL, run

CLIENTS, TOKENS, PROMPTS = 50, 40, 10
SEND_BUFFER = 2048  # of the kernel, asked for; it takes more
STARTS = ["Once upon a time", "When they came home,", "One evening, when the stars were bright,",
          "Then a turtle named Leo came along and asked,", "After the long winter,"]
NAMES = ["Paul", "Hugo"]


def prompt_of(i):
    return f"{STARTS[i % 5]} {NAMES[i // 5 % 2]}"


def unescape(line):
    return re.sub(rb"\\(.)", lambda m: b"\n" if m[1] == b"n" else m[1], line)


class Server:
    def __init__(self, *args):
        path = pathlib.Path(common.program).with_name("example_uv_server")
        self.process = common.popen([path, MODEL, "--max-tokens", str(TOKENS), *args], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE)
        self.port = int(re.fullmatch(rb"listening on (\d+)\n", self.process.stdout.readline())[1])

    def connect(self, small=False):
        client = socket.socket()
        if small:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(common.PATIENCE)
        client.connect(("127.0.0.1", self.port))
        return client

    def stop(self):
        """The exit code after SIGINT, once it has come."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=common.PATIENCE)
        counts = re.fullmatch(rb"uv_server: (\d+) answers, (\d+) cancelled, (\d+) pauses\n", err)
        self.answers, self.cancelled, self.pauses = map(int, counts.groups())
        return self.process.returncode


def read_line(client):
    data = b""
    while not data.endswith(b"\n"):
        more = client.recv(4096)
        if not more:
            break
        data += more
    return data


def unsent(client):
    """Bytes that the kernel holds back on the server's side of a connection (/proc/net/tcp, tx_queue)."""
    ends = (client.getpeername()[1], client.getsockname()[1])
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (int(fields[1][-4:], 16), int(fields[2][-4:], 16)) == ends:
            return int(fields[4].split(":")[0], 16)
    raise AssertionError("the connection is gone")


def sleeps(process):
    """No thread of it runs, or would if it were let."""
    states = (task.joinpath("stat").read_text().rpartition(")")[2].split()[0]
              for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir())
    return all(state == "S" for state in states)


def wait_until_full(server, client):
    """Until the client's silence has filled all buffers on the way: for half a second the server sleeps over a full
    one."""
    last, since, end = -1, time.monotonic(), time.monotonic() + common.PATIENCE
    while time.monotonic() < since + 0.5:
        assert time.monotonic() < end, "the buffers never fill"
        now = unsent(client)
        if now != last or now < SEND_BUFFER or not sleeps(server.process):
            last, since = now, time.monotonic()
        time.sleep(0.01)


class UvServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.want = {}
        for i in range(PROMPTS):
            prompt = prompt_of(i)
            cls.want[prompt] = run("run", MODEL, "-p", prompt, "-n", TOKENS, "-q").stdout

    def setUp(self):
        self.server = None

    def tearDown(self):
        if self.server is not None and self.server.process.poll() is None:
            self.server.process.kill()
            self.server.process.communicate()

    def start(self, *args):
        self.server = Server(*args)
        return self.server

    def check(self, prompt, line):
        self.assertTrue(line.endswith(b"\n"), line)
        self.assertEqual(unescape(line[:-1]), self.want[prompt])

    def test_fifty_clients_half_vanish(self):
        server = self.start()
        selector = selectors.DefaultSelector()
        answers = {}
        for i in range(CLIENTS):
            client = server.connect()
            client.sendall(prompt_of(i).encode() + b"\n")
            answers[i] = b""
            selector.register(client, selectors.EVENT_READ, i)
        vanished = 0
        while selector.get_map():
            ready = selector.select(common.PATIENCE)
            self.assertTrue(ready, "the server has fallen silent")
            for key, _ in ready:
                data = key.fileobj.recv(64)
                answers[key.data] += data
                gone = key.data % 2 == 1  # these leave after their first bytes
                if gone or not data or answers[key.data].endswith(b"\n"):
                    vanished += gone and not answers[key.data].endswith(b"\n")
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        for i in range(0, CLIENTS, 2):
            self.check(prompt_of(i), answers[i])
        self.assertGreater(vanished, CLIENTS // 4)
        client = server.connect()  # and it still serves
        client.sendall(prompt_of(0).encode() + b"\n")
        self.check(prompt_of(0), read_line(client))
        client.close()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(server.answers + server.cancelled, CLIENTS + 1)

    def test_leaves_at_the_first_byte(self):
        """One after the other: each would have to be late for nothing to be left to cancel."""
        server = self.start("--max-tokens", "400")
        for i in range(50):
            client = server.connect()
            client.sendall(prompt_of(i).encode() + b"\n")
            client.recv(1)
            client.close()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(server.answers + server.cancelled, 50)
        self.assertGreater(server.cancelled, 0)

    def test_lines_in_order_and_half_close(self):
        client = self.start().connect()
        prompts = [prompt_of(i) for i in range(5)]
        client.sendall("\r\n".join(prompts).encode())  # the last one has no end but the end of input
        client.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: client.recv(4096), b""))
        client.close()
        lines = data.splitlines(keepends=True)
        self.assertEqual(len(lines), 5)
        for prompt, line in zip(prompts, lines):
            self.check(prompt, line)
        self.assertEqual(self.server.stop(), 0)

    def test_backpressure(self):
        server = self.start("--write-limit", "512", "--send-buffer", str(SEND_BUFFER))
        slow = server.connect(small=True)
        # Refused lines, answered at once, fill most of the buffers on the way; answers do the rest.
        refused, prompts = 100, [prompt_of(i) for i in range(PROMPTS)] * 6
        slow.sendall(b"\xff\n" * refused + "".join(p + "\n" for p in prompts).encode())
        wait_until_full(server, slow)
        other = server.connect()  # is not held up meanwhile
        other.sendall(prompt_of(3).encode() + b"\n")
        self.check(prompt_of(3), read_line(other))
        other.close()
        slow.shutdown(socket.SHUT_WR)
        lines = b"".join(iter(lambda: slow.recv(4096), b"")).splitlines(keepends=True)
        slow.close()
        self.assertEqual(len(lines), refused + len(prompts))
        self.assertTrue(all(line.startswith(b"\\!") for line in lines[:refused]))
        for prompt, line in zip(prompts, lines[refused:]):
            self.check(prompt, line)
        self.assertEqual(server.stop(), 0)
        self.assertEqual((server.answers, server.cancelled), (len(prompts) + 1, 0))
        self.assertGreater(server.pauses, 0)

    def test_refusals(self):
        client = self.start().connect()
        client.sendall(b"\xff\xfe\n" + prompt_of(1).encode() + b"\n")
        self.assertTrue(read_line(client).startswith(b"\\!"))
        client.close()
        long = self.server.connect()
        try:
            long.sendall(b"x" * 100000)  # no line is as long as this
            self.assertEqual(long.recv(100), b"")
        except ConnectionError:
            pass
        long.close()
        self.assertEqual(self.server.stop(), 0)

    def test_interrupt_amid_answers(self):
        server = self.start()
        clients = [server.connect() for _ in range(10)]
        for i, client in enumerate(clients):
            client.sendall(prompt_of(i).encode() + b"\n")
        clients[0].recv(1)
        self.assertEqual(server.stop(), 0)
        for client in clients:
            client.close()

    def test_bad_model(self):
        path = pathlib.Path(common.program).with_name("example_uv_server")
        for model in ("/does/not/exist", __file__):
            result = subprocess.run([path, model], capture_output=True, timeout=common.PATIENCE)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertIn(b"uv_server: ", result.stderr)


if __name__ == "__main__":
    common.main("__main__")
