#!/usr/bin/env python3
"""Weights in tiles in files of --weights-dir: runnel repack, and runs that map, write and mistrust what is there."""
import os
import pathlib
import shutil
import tempfile
import unittest

import common
from common import MODEL, run

RUN = ("-p", "Once upon", "-n", "8", "-c", "64", "-t", "2", "-q", "--log-level", "info")


class Repack(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.kept = pathlib.Path(self.folder.name, "kept")
        self.want = run("run", MODEL, *RUN).stdout
        self.assertGreater(len(self.want), 10)

    def file(self):
        file, = self.kept.iterdir()
        self.assertRegex(file.name, r"^[0-9a-f]{32}\.tiles$")
        return file

    def answer(self, *options, model=MODEL):
        """What a run says on standard error; its answer must be that without the folder."""
        result = run("run", model, *RUN, "--weights-dir", self.kept, *options)
        self.assertEqual((result.returncode, result.stdout), (0, self.want), result.stderr)
        return result.stderr.decode()

    def repack(self, *options):
        result = run("repack", MODEL, "--weights-dir", self.kept, "-q", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        if b"nothing is kept" in result.stdout:
            common.skip("this processor has no kernels for tiles")
        self.assertRegex(result.stdout.decode(), r"^[0-9.]+ MiB of [0-9.]+ MiB of weights are kept in tiles\n$")
        return result

    def test_kept_and_used(self):
        self.repack()
        before = self.file().stat()
        self.repack()
        self.assertNotIn("warning", self.answer())
        self.assertNotIn("warning", self.answer("--weights", "tiles"))
        self.assertNotIn("warning", self.answer("--weights", "file"))
        after = self.file().stat()
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))

    def test_written_by_a_run(self):
        self.repack()
        good = self.file().read_bytes()
        self.file().unlink()
        self.assertIn("written", self.answer("--weights", "tiles"))
        self.assertEqual(self.file().read_bytes(), good)

    def test_damaged(self):
        self.repack()
        good = self.file().read_bytes()
        for at in (0, 20, 100, len(good) - 1):
            bad = bytearray(good)
            bad[at] ^= 1
            self.file().write_bytes(bad)
            self.assertIn(self.file().name, self.answer("--weights", "tiles"))
            self.assertEqual(self.file().read_bytes(), good)
        for size in (0, 7, 4096, len(good) // 2):
            self.file().write_bytes(good[:size])
            self.assertIn("it is not used", self.answer("--weights", "tiles"))
            self.assertEqual(self.file().read_bytes(), good)

    def test_model_was_changed(self):
        self.repack()
        copy = os.path.join(self.folder.name, "copy.gguf")
        shutil.copyfile(MODEL, copy)
        os.utime(copy, ns=(1, 1))
        before = self.file().read_bytes()
        self.assertIn("before the model's file was changed", self.answer("--weights", "tiles", model=copy))
        self.assertNotEqual(self.file().read_bytes(), before)
        self.assertNotIn("is not used", self.answer("--weights", "tiles", model=copy))

    def test_errors(self):
        result = run("repack", MODEL)
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertIn(b"repack needs --weights-dir", result.stderr)
        result = run("repack", MODEL, "--weights-dir", "/proc/none", "-q", "--log-level", "warning")
        self.assertIn(b"cannot be made", result.stderr)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(run("repack", "/none/such.gguf", "--weights-dir", self.kept).returncode, 1)


if __name__ == "__main__":
    common.main("__main__")
