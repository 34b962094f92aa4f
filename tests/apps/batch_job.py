"""What the tests of runnel batch share: lines, and a job in a folder of its own."""
import json
import os
import pathlib
import subprocess
import tempfile

import common
from common import MODEL

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
RESPONSES = "/v1/responses"
USER = [{"role": "user", "content": "What is 2+2?"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}

# Its prompts end with the mark that opens a call, so that a model without sense writes one at once.
CALLING = """{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}
<tool_call>
{# {"name": .., "arguments": {..}}
</tool_call> #}"""


def line(custom_id, url, body, **more):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more})


def story(i, length=8, **more):
    return line(f"s{i}", TEXT, {"prompt": f"Once upon a time {i}", "max_tokens": length, **more})


class Job:
    """A job in a folder of its own. apart: its errors go to a file of their own."""

    def __init__(self, data, *options, model=MODEL, apart=False):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.input, self.output = self.path / "in.jsonl", self.path / "out.jsonl"
        self.journal = self.path / "out.jsonl.journal"
        self.errors = self.path / "errors.jsonl"
        self.options, self.model = [*options, *(["--errors", self.errors] if apart else [])], model
        if isinstance(data, list):
            data = "\n".join(data) + "\n"
        self.input.write_bytes(data if isinstance(data, bytes) else data.encode())
        os.utime(self.input, (1000000000, 1000000000))  # answers are dated with it

    def __del__(self):
        self.folder.cleanup()

    def command(self, *more):
        return [common.program, "batch", self.model, str(self.input), str(self.output), *map(str, self.options),
                *map(str, more)]

    def run(self, *more, **how):
        return subprocess.run(self.command(*more), capture_output=True, timeout=common.PATIENCE, **how)

    def start(self, *more, **how):
        return common.popen(self.command(*more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **how)

    def answers(self):
        data = self.output.read_bytes()
        assert data == b"" or data.endswith(b"\n")
        return [json.loads(text) for text in data.split(b"\n")[:-1]]


def answers(data, *options, **more):
    job = Job(data, *options, **more)
    result = job.run()
    assert result.returncode == 0, result.stderr
    assert result.stdout == b""
    return job.answers()


def bodies(data, *options, **more):
    got = answers(data, *options, **more)
    for answer in got:
        assert answer["error"] is None and answer["response"]["status_code"] == 200, answer
    return [answer["response"]["body"] for answer in got]
