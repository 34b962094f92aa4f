#!/usr/bin/env python3
"""The command line: what is refused, with which exit code and which words; help; errors of files; signals."""
import array
import fcntl
import json
import mmap
import os
import pathlib
import re
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import common
from common import MODEL, run

PAGE = mmap.PAGESIZE  # the least that a pipe holds

REFUSED = [  # arguments, words that standard error must contain
    ([], "usage: runnel COMMAND"),
    (["rnu"], "did you mean run?"),
    (["preplexity"], "did you mean perplexity?"),
    (["qqqqqqqqqq"], "see runnel --help"),
    (["run"], "MODEL is missing"),
    (["perplexity", MODEL], "FILE is missing"),
    (["run", MODEL, "more"], "one word too many"),
    (["run", MODEL, "--temprature", "1"], "did you mean --temperature?"),
    (["run", MODEL, "--temp", "1"], "did you mean --temperature?"),
    (["run", MODEL, "--josn"], "did you mean --json?"),
    (["info", MODEL, "--seed", "1"], "not an option of info"),
    (["chat", MODEL, "--file", "x"], "not an option of chat"),
    (["run", MODEL, "--seed"], "needs a value"),
    (["run", MODEL, "--json=1"], "takes no value"),
    (["run", MODEL, "-p", "a", "-f", "b"], "exclude each other"),
    (["run", MODEL, "--logprobs", "3"], "needs --json"),
    (["run", MODEL, "--logprobs", "21", "--json"], "from 0 to 20"),
    (["run", MODEL, "--kv-type", "q5"], "f16|f32|bf16"),
    (["run", MODEL, "--kv-type", ""], "f16|f32|bf16"),
    (["run", MODEL, "--device", "cp"], "cpu|reference"),
    (["run", MODEL, "--stop", ""], "1 to 256 bytes"),
    (["run", MODEL, "--stop", "x" * 257], "1 to 256 bytes"),
    (["run", MODEL] + ["--stop", "x"] * 17, "at most 16"),
    (["run", MODEL, "--logit-bias", "5"], "ID=NUMBER"),
    (["run", MODEL, "--logit-bias", "5=nan"], "ID=NUMBER"),
    (["run", MODEL, "--logit-bias", "-5=1"], "ID=NUMBER"),
    (["run", MODEL, "--logit-bias", "2048=1", "-p", "a"], "vocabulary"),
    (["run", MODEL, "-p", b"\xff"], "UTF-8"),
    (["tokenize", MODEL], "-p or -f"),
    (["tokenize", MODEL, "-p", b"\xc0\x80"], "UTF-8"),
    (["logits", MODEL, "-p", "a"], "--output is missing"),
    (["logits", MODEL, "-o", "x"], "--tokens"),
    (["logits", MODEL, "-p", "a", "--tokens", "1", "-o", "x"], "--tokens"),
    (["logits", MODEL, "--tokens", "", "-o", "x"], "parted by commas"),
    (["logits", MODEL, "--tokens", "1,,2", "-o", "x"], "parted by commas"),
    (["logits", MODEL, "--tokens", "1,2,", "-o", "x"], "parted by commas"),
    (["logits", MODEL, "--tokens", "1, 2", "-o", "x"], "parted by commas"),
    (["run", MODEL, "-p", "a", "--batch", "7"], "from 8 to 8192"),
    (["bench"], "MODEL is missing"),
    (["bench"] + [MODEL] * 33, "one word too many"),
    (["bench", MODEL, "-p", ""], "parted by commas"),
    (["bench", MODEL, "-p", "1,,2"], "parted by commas"),
    (["bench", MODEL, "-p", "1,2,"], "parted by commas"),
    (["bench", MODEL, "-n", "1;2"], "parted by commas"),
    (["bench", MODEL, "-n", "-1"], "from 0 to 1048576"),
    (["bench", MODEL, "--streams", "0"], "from 1 to 1000"),
    (["bench", MODEL, "--streams", "1,1001"], "from 1 to 1000"),
    (["bench", MODEL, "--depth", "x"], "parted by commas"),
    (["bench", MODEL, "--depth", ",".join("1" * 17)], "1 to 16"),
    (["bench", MODEL, "-r", "0"], "from 1 to 1000"),
    (["bench", MODEL, "-p", "0", "-n", "0,0"], "nothing to time"),
    (["bench", MODEL, "--json", "--csv"], "exclude each other"),
    (["bench", MODEL, "--ctx", "64"], "not an option of bench"),
    (["bench", MODEL, "--repeat", "2"], "did you mean --repeats?"),
    (["logits", MODEL, "--tokens", "-1", "-o", "x"], "parted by commas"),
]
BAD_NUMBERS = {  # option: values outside its type or range
    "--temperature": ["", "x", "nan", "inf", "-1", "1x", " 1", "1 ", "0x1", "1e999", "1,5", "--"],
    "--top-p": ["0", "-0.1", "1.0001", "nan"],
    "--min-p": ["-0.1", "1.5", "1..0"],
    "--repetition-penalty": ["0", "-1", "1e-60"],
    "--top-k": ["-1", "1.5", "4294967296", "99999999999999999999", "+1", " 1", ""],
    "--max-tokens": ["-2", "1.0", "0x10", "2147483648"],
    "--seed": ["-1", "18446744073709551616", "1e3"],
    "--ctx": ["0", "-1", "4294967296"],
    "--batch": ["0"],
    "--threads": ["0", "1025"],
    "--kv-size": ["0", "K", "1T", "-1M", "1.5G", "18014398509481984K", "1KB"],
    "--stop-token": ["-1", "2147483648", "a"],
}


def hostile(body):
    file = tempfile.NamedTemporaryFile(suffix=".gguf")
    file.write(body)
    file.flush()
    return file


class Arguments(unittest.TestCase):
    def one_line(self, result, code, words=""):
        text = result.stderr.decode()
        self.assertEqual(result.returncode, code, text)
        self.assertEqual(result.stdout, b"")
        self.assertTrue(text.startswith("runnel: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertIn(words, text)

    def test_refused(self):
        for args, words in REFUSED:
            with self.subTest(args=args):
                result = subprocess.run([common.program, *args], capture_output=True, timeout=common.PATIENCE)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertEqual(result.stdout, b"")
                self.assertIn(words, result.stderr.decode())

    def test_bad_numbers(self):
        for option, values in BAD_NUMBERS.items():
            for i, value in enumerate(values):
                words = [option, value] if i % 2 == 0 else [f"{option}={value}"]
                with self.subTest(words=words):
                    self.one_line(run("run", MODEL, *words), 2, f"{option} '{value}'")

    def test_good_numbers(self):
        result = run("run", MODEL, "-p", "Once upon", "-n", "2", "-q", "--temperature", "1e-3", "--top-k", "4294967295",
                     "--top-p=.5", "--min-p", "0", "--repetition-penalty", "1.1", "--frequency-penalty", "-0.5",
                     "--presence-penalty", "+1", "--logit-bias", "5=-inf", "--logit-bias", "6=-1.5e1", "--seed",
                     "18446744073709551615", "--ctx", "64", "--batch", "8", "--threads", "1", "--kv-size", "64M",
                     "--kv-type", "f32", "--stop-token", "3", "--device", "cpu", "--ignore-eos")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertGreater(len(result.stdout), 2)

    def test_help(self):
        for args in (["--help"], ["-h"], ["help"]):
            result = run(*args)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertIn(b"Exit codes: 0", result.stdout)
        for command in "run chat info tokenize logits perplexity bench".split():
            self.assertIn(command, result.stdout.decode())
            mine = run(command, "--help")
            self.assertEqual((mine.returncode, mine.stderr), (0, b""))
            self.assertIn(f"usage: runnel {command} MODEL", mine.stdout.decode())
            self.assertEqual(run("help", command).stdout, mine.stdout)
            self.assertLessEqual(max(map(len, mine.stdout.decode().splitlines())), 110)

    def test_version(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout.decode(), r"^runnel \d+\.\d+\.\d+\n$")

    def test_files_that_fail(self):
        head = struct.pack("<4sIQQ", b"GGUF", 3, 1 << 62, 1 << 62)
        for body in (b"", b"GGUF", b"no model at all" * 100, head, head + b"\xff" * 4096,
                     pathlib.Path(MODEL).read_bytes()[:100000]):
            with hostile(body) as file:
                for command in ("info", "run", "tokenize"):
                    args = ["-p", "a"] if command != "info" else []
                    with self.subTest(command=command, body=body[:30]):
                        self.one_line(run(command, file.name, *args), 1)
        self.one_line(run("run", "/does/not/exist.gguf", "-p", "a"), 1, "/does/not/exist.gguf")
        self.one_line(run("run", "/tmp", "-p", "a"), 1, "/tmp")
        self.one_line(run("run", MODEL, "-f", "/does/not/exist"), 1, "No such file")
        self.one_line(run("logits", MODEL, "-p", "a", "-q", "-o", "/does/not/exist"), 1, "No such file")

    def test_disk_full(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([common.program, "run", MODEL, "-p", "Once", "-q"], stdout=full,
                                    stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"No space left", result.stderr)
        self.one_line(run("logits", MODEL, "-p", "Once", "-q", "-o", "/dev/full"), 1, "No space left")

    def test_reader_goes_away(self):
        process = subprocess.Popen([common.program, "run", MODEL, "-p", "Once", "-q", "--ignore-eos", "--reference"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        self.assertEqual(process.wait(common.PATIENCE), 130)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    ENDLESS = ["run", MODEL, "-p", "Once upon", "--ignore-eos", "--ctx", "4096", "-n", "4000"]

    def begin_endless(self, *args):
        """Its answer is longer than what the pipe holds: it cannot end before somebody reads on."""
        process = subprocess.Popen([common.program, *self.ENDLESS, *args],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PAGE)
        return process, os.read(process.stdout.fileno(), 1)

    def test_interrupt(self):
        whole = run(*self.ENDLESS, "-q").stdout
        self.assertGreater(len(whole), PAGE + 2000)  # what is computed ahead of its reader is less
        for number in (signal.SIGINT, signal.SIGTERM):
            process, first = self.begin_endless("-q")
            process.send_signal(number)
            out, err = process.communicate(timeout=common.PATIENCE)
            self.assertEqual((process.returncode, err), (130, b""))
            self.assertTrue(whole.startswith(first + out), first + out)
            self.assertLess(len(first + out), len(whole))

    def test_interrupt_json(self):
        process, first = self.begin_endless("--json")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=common.PATIENCE)
        self.assertEqual(process.returncode, 130)
        lines = [json.loads(line) for line in (first + out).decode().splitlines()]
        self.assertEqual(lines[-1]["type"], "cancelled")
        self.assertEqual(sum(line["type"] == "cancelled" for line in lines), 1)

    def test_interrupt_twice(self):
        # Standard output is full and nobody reads: the first signal cannot be acted upon, the second ends.
        process, _ = self.begin_endless("-q")
        held, last, since = array.array("i", [0]), 0, time.monotonic()
        while held[0] < PAGE - 64 and time.monotonic() < since + 1:  # either way the verdict is the same
            fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, held)
            if held[0] != last:
                last, since = held[0], time.monotonic()
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        while self.is_pending(process, signal.SIGINT):  # two at once would be one
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        self.assertIn(process.wait(common.PATIENCE), (130, -signal.SIGINT))
        process.stdout.close()
        process.stderr.close()

    def is_pending(self, process, number):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        return any(int(mask, 16) >> (number - 1) & 1 for mask in re.findall(r"^S\w+Pnd:\s*(\w+)", status, re.MULTILINE))


if __name__ == "__main__":
    common.main("__main__")
