#!/usr/bin/env python3
"""runnel cache: what it shows, finds and takes away, judged by a folder whose records have a closed form
(make_cache)."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import common
from common import run

MAKE = os.environ["RUNNEL_MAKE_CACHE"]
POINTS = int(os.environ.get("RUNNEL_PURGE_POINTS", "60"))  # of the writes at which a purge is killed, about
CHAINS, DEPTH, TOKENS = 12, 3, 4  # TOKENS: of a block


class Cache(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.temporary.name) / "cache"
        subprocess.run([MAKE, self.path, str(CHAINS), str(DEPTH)], check=True, timeout=common.PATIENCE)

    def tearDown(self):
        self.temporary.cleanup()

    def json(self, *args, code=0):
        done = run("cache", *args, "--json")
        if code is not None:
            self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def entry(self):
        entries = self.json("ls", self.path)["entries"]
        self.assertEqual(len(entries), 1)
        return entries[0]

    def segments(self):
        return sorted(self.path.glob("*/*.kv"))

    def test_ls(self):
        entry = self.entry()
        self.assertEqual(entry["model"], "closed form")
        self.assertEqual((entry["records"], entry["prefixes"], entry["salts"]), (CHAINS * DEPTH, CHAINS, 3))
        self.assertEqual((entry["tokens"], entry["longest_tokens"]), (CHAINS * DEPTH * TOKENS, DEPTH * TOKENS))
        self.assertEqual(entry["file_bytes"], sum(p.stat().st_size for p in self.segments()))
        self.assertEqual((entry["segments"], entry["damaged"]), (len(self.segments()), 0))
        self.assertEqual(entry["fingerprint"], self.segments()[0].parent.name)
        text = run("cache", "ls", self.path)
        self.assertEqual(text.returncode, 0)
        head, line = text.stdout.decode().splitlines()
        self.assertEqual(line.split()[:2], [entry["fingerprint"][:12], str(CHAINS * DEPTH)])
        self.assertTrue(head.startswith("fingerprint") and line.endswith("closed form"))
        for name, field in (("records", "36"), ("model", "closed")):  # columns stand under their names
            end = head.index(name) + (len(name) if name != "model" else len(field))
            self.assertTrue(line[:end].endswith(field), (head, line))

    def test_records(self):
        records = self.json("ls", self.path, "--fingerprint", self.entry()["fingerprint"][:8])
        self.assertEqual(len(records), CHAINS * DEPTH)
        known = {0: None}
        for r in records:
            chain, depth = r["tokens"][0], r["tokens"][1]
            self.assertEqual(r["tokens"], [chain, depth, -1, chain ^ depth * 1000003])
            self.assertEqual((r["depth"], r["salt"], r["bytes"]),
                             (depth, chain % 3, 1 + (chain * 7 + depth * 31) % 200))
            self.assertEqual(known[r["parent"]], (chain, depth - 1) if depth else None)
            known[r["id"]] = (chain, depth)
        lines = run("cache", "ls", self.path, "--fingerprint", self.entry()["fingerprint"]).stdout.decode().splitlines()
        self.assertEqual(len(lines), 1 + CHAINS * DEPTH)

    def test_verify(self):
        good = self.json("verify", self.path)
        self.assertEqual((good["damage"], good["records"], good["damaged"]), ([], CHAINS * DEPTH, 0))
        self.assertIn(b"all whole", run("cache", "verify", self.path).stdout)
        segment = self.segments()[0]
        data = bytearray(segment.read_bytes())
        data[256 + 96 + 4 * TOKENS] ^= 1  # the first record's payload
        segment.write_bytes(data)
        bad = self.json("verify", self.path, code=1)
        self.assertEqual((bad["damaged"], bad["records"]), (1, CHAINS * DEPTH - 1))
        self.assertEqual((bad["damage"][0]["file"], bad["damage"][0]["offset"]), (segment.name, 256 + 96 + 4 * TOKENS))
        text = run("cache", "verify", self.path)
        self.assertEqual(text.returncode, 1)
        self.assertIn(segment.name.encode() + b": byte 368, 1 bytes", text.stdout)

    def test_purge(self):
        gone = self.json("purge", self.path, "--salt", "1")
        self.assertEqual(gone["records"], CHAINS // 3 * DEPTH)
        self.assertEqual((self.entry()["salts"], self.entry()["records"]), (2, CHAINS * DEPTH * 2 // 3))
        newest, before = self.segments()[-1].stat().st_size, self.entry()["records"]
        gone = self.json("purge", self.path, "--keep", str(newest), "--fingerprint", self.entry()["fingerprint"])
        self.assertEqual(len(self.segments()), 1)
        left = self.entry()["records"]
        self.assertEqual(gone["records"], before - left)
        self.assertGreater(gone["records"], 0)
        self.assertEqual(self.json("purge", self.path, "--all")["records"], left)
        self.assertEqual(self.segments(), [])
        self.assertEqual(run("cache", "ls", self.path).stdout, b"nothing is kept here\n")

    def disk_bytes(self):
        return sum(p.stat().st_size for p in self.whole())

    def whole(self):
        """The segments but for those that were killed while they got their header."""
        return [p for p in self.segments() if p.stat().st_size >= 256]

    def needed(self, records):
        """What these records take, with a header and a trailer for each segment."""
        return len(self.whole()) * (256 + 48) + sum((96 + 4 * TOKENS + n + 7) // 8 * 8 + 8 + 96 + 4 * TOKENS
                                                    for n in records.values())

    def records(self):
        return {(r["tokens"][0], r["tokens"][1]): r["bytes"]
                for r in self.json("ls", self.path, "--fingerprint", self.entry()["fingerprint"])}

    def test_purge_room(self):
        """What is purged is no longer in the files: they are as long as what is left needs."""
        for salt, left in ((1, (0, 2)), (0, (2,))):
            self.json("purge", self.path, "--salt", str(salt), "--fingerprint", self.entry()["fingerprint"][:6])
            records = self.records()
            self.assertEqual(set(records), {(c, d) for c in range(CHAINS) if c % 3 in left for d in range(DEPTH)})
            self.assertEqual(self.disk_bytes(), self.needed(records))
            self.assertEqual(self.json("verify", self.path)["damaged"], 0)

    def test_purge_killed(self):
        """At each write to a file: the other salts have all that they had, and another purge comes to the same end."""
        def purge(crash_at, count=""):
            environment = {**os.environ, "LD_PRELOAD": os.environ["RUNNEL_CRASH_POINT"], "CRASH_AT": str(crash_at),
                           "CRASH_COUNT": count,
                           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
            return subprocess.run([common.program, "cache", "purge", self.path, "--salt", "1"], env=environment,
                                  capture_output=True, timeout=common.PATIENCE, check=False)

        before = {key: n for key, n in self.records().items() if key[0] % 3 != 1}
        kept = pathlib.Path(self.temporary.name) / "kept"
        shutil.copytree(self.path, kept)
        counted = pathlib.Path(self.temporary.name) / "count"
        done = purge(0, str(counted))
        self.assertEqual(done.returncode, 0, done.stderr)
        n_points = int(counted.read_text())
        self.assertGreater(n_points, CHAINS // 3 * DEPTH * 3)
        for point in range(1, n_points + 1, max(1, n_points // POINTS)):
            shutil.rmtree(self.path)
            shutil.copytree(kept, self.path)
            self.assertEqual(purge(point).returncode, -9)
            records = self.records()
            self.assertEqual({key: n for key, n in records.items() if key[0] % 3 != 1}, before, point)
            damage = self.json("verify", self.path, code=None)["damaged"]
            self.assertLessEqual(damage, 3, point)  # a record of that salt, its entry in the index, a header
            self.json("purge", self.path, "--salt", "1")
            self.assertEqual(self.records(), before)
            verified = self.json("verify", self.path, code=None)
            self.assertEqual(verified["records"], len(before))
            self.assertEqual(verified["damaged"], len(self.segments()) - len(self.whole()))
            self.assertEqual(self.disk_bytes(), self.needed(before))

    def test_writer(self):
        with common.popen([MAKE, self.path, "1", "1", "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as w:
            self.assertEqual(w.stdout.readline(), b"held\n")
            for way in (["--all"], ["--salt", "1"], ["--keep", "1"]):
                refused = run("cache", "purge", self.path, *way)
                self.assertEqual(refused.returncode, 1)
                self.assertIn(b"an engine is writing to it", refused.stderr)
            self.assertEqual(self.entry()["records"], CHAINS * DEPTH + 1)
            self.assertEqual(self.json("verify", self.path)["damaged"], 0)
            w.stdin.close()
            self.assertEqual(w.wait(timeout=common.PATIENCE), 0)
        self.json("purge", self.path, "--all")

    def test_refused(self):
        empty = pathlib.Path(self.temporary.name) / "empty"
        empty.mkdir()
        plain = pathlib.Path(self.temporary.name) / "plain"
        plain.write_text("x")
        for args, code, words in (
                (["ls", "/nonexistent/x"], 1, b"/nonexistent/x: No such file"),
                (["verify", plain], 1, b"Not a directory"),
                (["purge", "/nonexistent/x", "--all"], 1, b"No such file"),
                (["purge", self.path], 2, b"one of --all"),
                (["purge", self.path, "--all", "--keep", "1"], 2, b"one of --all"),
                (["purge", self.path, "--salt", "x"], 2, b"whole number"),
                (["ls", self.path, "--fingerprint", "xyz"], 2, b"'xyz' is no fingerprint"),
                (["verify", self.path, "--fingerprint", "0" * 32], 1, b"no fingerprint begins with"),
                (["verfy", self.path], 2, b"did you mean verify?"),
                (["ls"], 2, b"DIR is missing"),
                ([], 2, b"what to do"),
                (["ls", self.path, "more"], 2, b"one word too many")):
            done = run("cache", *args)
            self.assertEqual(done.returncode, code, (args, done.stderr))
            self.assertIn(words, done.stderr, args)
            self.assertEqual(done.stdout, b"", args)
        self.assertEqual(run("cache", "ls", empty).stdout, b"nothing is kept here\n")
        self.assertEqual(self.json("ls", empty), {"entries": [], "foreign": 0})
        self.assertEqual(self.entry()["records"], CHAINS * DEPTH)

    def test_foreign(self):
        (self.path / "notes.txt").write_text("mine")
        (self.segments()[0].parent / "0000000000000abc.kv").symlink_to(self.path / "notes.txt")
        self.assertEqual(self.json("ls", self.path)["foreign"], 1)
        self.json("purge", self.path, "--all")
        self.assertEqual((self.path / "notes.txt").read_text(), "mine")


if __name__ == "__main__":
    common.main(__name__)
