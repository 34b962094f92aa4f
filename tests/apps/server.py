"""What the tests of runnel serve share: a server of its own, and clients that show every byte."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import common
from common import MODEL

NAME = "runnel-tiny-Q8_0"

# The model's own turns, and a way to call tools.
TEMPLATE = """{%- if tools %}<|im_start|>system
Call tools so: <tool_call>
{"name": .., "arguments": ..}
</tool_call>
{% for t in tools %}{{ t | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@contextlib.contextmanager
def template(text=TEMPLATE):
    """The options that make a command take this one."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(text)
        file.flush()
        yield "--template", file.name


class Server:
    """runnel serve on a free port, or on a unix socket."""

    def __init__(self, *options, model=MODEL, env=None, ready=True):
        self.log = tempfile.TemporaryFile()  # a pipe that nobody reads would fill up
        models = [model] if model is not None else []
        env = env if env is not None else {**os.environ, "RUNNEL_NICE": "0"}  # beside other tests it gets its share
        self.process = common.popen([common.program, "serve", *models, "--port", "0", "-t", "2",
                                     *map(str, options)],
                                    stdout=subprocess.PIPE, stderr=self.log, env=env)
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"listening on (\w+)://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)\n", line)
        if found is None:
            raise AssertionError((line, self.process.wait(), self.said()))
        self.port = int(found[2])
        while ready and self.get("/ready")[0] != 200:
            time.sleep(0.005)  # the threads that load want the processors

    def stop(self, number=signal.SIGTERM):
        """The exit code, and what it said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=common.PATIENCE)
        return self.process.returncode, self.said()

    def said(self):
        """On standard error, up to now."""
        return os.pread(self.log.fileno(), 1 << 30, 0).decode()

    def lines(self):
        """The whole lines of it."""
        return self.said().split("\n")[:-1]

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=common.PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        """status, body, headers of one request over a connection of its own."""
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict((k.lower(), v) for k, v in answer.getheaders())
        finally:
            connection.close()

    def get(self, path, **headers):
        status, body, _ = self.ask("GET", path, None, headers)
        return status, body

    def post(self, path, body, headers=None):
        """status and JSON."""
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        status, answer, _ = self.ask("POST", path, data, {"Content-Type": "application/json", **(headers or {})})
        return status, json.loads(answer)

    def events(self, path, body):
        """The events of a streamed answer: (name or None, JSON or "[DONE]")."""
        status, data, headers = self.ask("POST", path, json.dumps({**body, "stream": True}))
        assert status == 200, data
        assert headers["content-type"] == "text/event-stream", headers
        return parse_events(data)

    def metric(self, name):
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.split("{")[0].split(" ")[0] == name:
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def begin(self, path, body):
        """A socket with a request sent and nothing read."""
        data = json.dumps(body).encode()
        client = socket.create_connection(("127.0.0.1", self.port), timeout=common.PATIENCE)
        client.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                       % (path.encode(), len(data)) + data)
        return client


def parse_events(data):
    assert data.endswith(b"\n\n"), data[-80:]
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, lines = None, []
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                lines.append(line[6:])
            else:
                assert line.startswith(":"), line
        if lines:
            text = "\n".join(lines)
            events.append((name, text if text == "[DONE]" else json.loads(text)))
    return events


class Served(unittest.TestCase):
    """Tests that share a server, which ends without an error."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        code, said = cls.server.stop()
        assert code == 0, (code, said)
