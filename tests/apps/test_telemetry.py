#!/usr/bin/env python3
"""--metrics and --trace: read by other programs' readers, and held against each other and the answers."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import common
from common import MODEL, run


def read_samples(text):
    """{name with labels: value}; strict about the form of each line."""
    samples = {}
    for line in text.splitlines():
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            continue
        name, value = re.fullmatch(r'(runnel_\w+(?:\{(?:\w+="[^"]*",?)*\})?) (\d+(?:\.\d+)?)', line).groups()
        assert name not in samples, name
        samples[name] = float(value)
    return samples


def of_model(samples, name, more=""):
    return samples[f'runnel_{name}{{model_name="runnel-tiny-Q8_0"{more}}}']


class Telemetry(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.metrics = pathlib.Path(self.folder.name, "metrics")
        self.trace = pathlib.Path(self.folder.name, "trace.json")

    def tearDown(self):
        self.folder.cleanup()

    def both(self, *args):
        result = run(*args, "--metrics", self.metrics, "--trace", self.trace)
        self.assertEqual(result.returncode, 0, result.stderr)
        return read_samples(self.metrics.read_text()), json.loads(self.trace.read_text())

    def check_spans(self, events):
        """On one track what began earlier has ended before the next begins."""
        ends = {}
        spans = [e for e in events if e["ph"] == "X"]
        for e in sorted(spans, key=lambda e: e["ts"]):
            self.assertGreaterEqual(e["dur"], 0)
            self.assertGreaterEqual(round(1000 * e["ts"]), ends.get(e["tid"], 0), e)
            ends[e["tid"]] = round(1000 * e["ts"]) + round(1000 * e["dur"])
        names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        self.assertEqual(set(names), set(ends))
        return names

    def check_requests(self, events, n):
        """Each request: its phases in order, each begun once and ended once, without gaps."""
        requests = {}
        for e in sorted((e for e in events if e.get("cat") == "request"), key=lambda e: e["ts"]):
            requests.setdefault(e["id"], []).append((e["name"], e["ph"], round(1000 * e["ts"])))
        self.assertEqual(len(requests), n)
        for seen in requests.values():
            self.assertEqual([(name, ph) for name, ph, _ in seen],
                             [(name, ph) for name in ("queued", "prefill", "decode") for ph in "be"])
            for (_, _, end), (_, _, begin) in zip(seen[1:-1:2], seen[2::2]):
                self.assertEqual(end + 1, begin)

    def test_run(self):
        samples, events = self.both("run", MODEL, "-p", "Once upon a time", "-n", 40)
        steps = [e for e in events if e.get("cat") == "step"]
        names = self.check_spans(events)
        self.check_requests(events, 1)
        self.assertEqual(len(steps), of_model(samples, "steps_total"))
        self.assertEqual(sum(e["args"]["prompt_tokens"] for e in steps), of_model(samples, "prompt_tokens_total"))
        self.assertEqual(sum(e["args"]["tokens"] for e in steps), 40)
        self.assertEqual(of_model(samples, "generation_tokens_total"), 40)
        self.assertEqual(of_model(samples, "inter_token_latency_seconds_count"), 39)
        self.assertEqual(of_model(samples, "request_success_total", ',finished_reason="length"'), 1)
        self.assertEqual(samples["runnel_trace_dropped_total"], 0)
        self.assertLessEqual({"router", "decode of runnel-tiny-Q8_0", "steps of runnel-tiny-Q8_0"}, set(names.values()))

    def test_bench_many_streams(self):
        samples, events = self.both("bench", MODEL, "-p", 100, "-n", 30, "--streams", 8, "-r", 1, "--no-limits")
        self.check_spans(events)
        self.assertEqual(len([e for e in events if e.get("cat") == "step"]), of_model(samples, "steps_total"))
        n = of_model(samples, "requests_total")
        self.assertEqual(len({e["id"] for e in events if e.get("cat") == "request"}), n)
        self.assertGreaterEqual(n, 16)
        self.assertEqual(n, sum(of_model(samples, "request_success_total", f',finished_reason="{why}"')
                                for why in ("stop", "length", "abort", "error")))

    def test_standard_error(self):
        result = run("run", MODEL, "-p", "Once", "-n", 3, "--quiet", "--metrics", "-")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(of_model(read_samples(result.stderr.decode()), "generation_tokens_total"), 3)

    def test_chat(self):
        command = [common.program, "chat", MODEL, "-n", "5", "--metrics", self.metrics, "--trace", self.trace]
        subprocess.run(command, input=b"Hello\nAgain\n", check=True, capture_output=True, timeout=common.PATIENCE)
        self.check_requests(json.loads(self.trace.read_text()), 2)
        self.assertEqual(of_model(read_samples(self.metrics.read_text()), "requests_total"), 2)

    def test_killed(self):
        """What is there when the program dies at once lacks nothing but the bracket."""
        command = [common.program, "bench", MODEL, "-p", "200", "-n", "200", "-r", "1000", "--no-limits"]
        process = common.popen([*command, "--trace", self.trace],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begin = time.monotonic()
        while (not self.trace.exists() or
               self.trace.stat().st_size < 100000) and time.monotonic() - begin < common.PATIENCE:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        events = json.loads(self.trace.read_text() + "]")
        self.assertGreater(len(events), 500)
        self.check_spans(events)

    def test_unwritable(self):
        for option in ("--metrics", "--trace"):
            result = run("run", MODEL, "-p", "Once", "-n", 3, option, "/nonexistent/file")
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"/nonexistent/file", result.stderr)
            result = run("run", MODEL, "-p", "Once", "-n", 3, option, "/dev/full")
            self.assertEqual(result.returncode, 1)
            self.assertIn(b"/dev/full", result.stderr)

    def test_one_model(self):
        result = run("bench", MODEL, MODEL, "--trace", self.trace)
        self.assertEqual(result.returncode, 2)
        self.assertFalse(self.trace.exists())


if __name__ == "__main__":
    common.main("__main__")
