#!/usr/bin/env python3
"""runnel batch killed with SIGKILL at random moments: --resume ends with the bytes of a job that nobody disturbed.

At moments of time, and at each write to a file (crash_point.c). RUNNEL_BATCH_KILLS: how often (50),
RUNNEL_BATCH_POINTS: how many of the writes (all), RUNNEL_BATCH_SEED: of what is drawn (the clock's),
RUNNEL_CRASH_POINT: the library."""
import os
import random
import subprocess
import time
import unittest

import common
from test_batch import Job, line, story, TEXT

KILLS = int(os.environ.get("RUNNEL_BATCH_KILLS", "50"))
POINTS = int(os.environ.get("RUNNEL_BATCH_POINTS", "1000"))
SEED = int(os.environ.get("RUNNEL_BATCH_SEED", time.time_ns() % 1000000))


def lines():
    out = []
    for i in range(48):
        out.append(story(i, 1 + (29 * i) % 24, n=1 + i % 2))
        if i % 6 == 0:
            out += ["{broken", "", story(i), line(f"bad{i}", TEXT, {"prompt": 5})]  # the third is a duplicate
    return out


class Kill(unittest.TestCase):
    def disturb(self, options, kills, dice, compare):
        """Kills jobs at moments from their start to their end, each again and again until it gets through."""
        options = ["-q", "--threads", "1", "--streams", "4", *options]
        whole = Job(lines(), *options)
        began = time.monotonic()
        self.assertEqual(whole.run().returncode, 0)
        lasted = time.monotonic() - began
        want, done, jobs, partial = compare(whole), 0, 0, 0
        while done < kills:
            job, jobs = Job(lines(), *options), jobs + 1
            while done < kills:
                process = job.start("--resume")
                try:
                    process.wait(dice.uniform(0, lasted))
                except subprocess.TimeoutExpired:
                    process.kill()
                    done += 1
                    partial += job.output.exists() and 0 < job.output.stat().st_size < whole.output.stat().st_size
                text = process.communicate()[1]
                if process.returncode == 0:
                    break
                self.assertEqual((process.returncode, text), (-9, b""))
                if done % 12 == 0:
                    break
            result = job.run("--resume")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(compare(job), want)
        print(f"{done} kills in {jobs} jobs of {lasted:.2f} s, {partial} of them with a part of the output")
        return partial

    def test_ordered(self):
        with self.subTest(seed=SEED):
            partial = self.disturb([], KILLS - KILLS // 5, random.Random(SEED), lambda job: job.output.read_bytes())
            self.assertTrue(partial > 0 or KILLS < 20)

    def test_unordered(self):
        with self.subTest(seed=SEED):
            self.disturb(["--unordered"], KILLS // 5, random.Random(SEED + 1),
                         lambda job: sorted(job.output.read_bytes().split(b"\n")))


class Points(unittest.TestCase):
    def start(self, job, at, count="/dev/null"):
        env = {**os.environ, "LD_PRELOAD": os.environ["RUNNEL_CRASH_POINT"], "CRASH_AT": str(at),
               "CRASH_COUNT": str(count),
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        return job.run("--resume", env=env)

    def test_points(self):
        """A crash at a write, then another one in the run that goes on, and then none."""
        if "RUNNEL_CRASH_POINT" not in os.environ:
            self.skipTest("RUNNEL_CRASH_POINT is not set")
        dice, data, options = random.Random(SEED), lines()[:14], ["-q", "--threads", "1", "--streams", "3"]
        whole = Job(data, *options)
        self.assertEqual(self.start(whole, 0, whole.path / "count").returncode, 0)
        want, n = whole.output.read_bytes(), int((whole.path / "count").read_text())
        if n == 0:
            self.skipTest("a sanitizer's functions stand in front of the library's")
        self.assertGreater(n, 40)
        print(f"{min(POINTS, n)} of {n} writes", end=" ", flush=True)
        for at in sorted(dice.sample(range(1, n + 1), min(POINTS, n))):
            job, again = Job(data, *options), dice.randrange(1, n)
            with self.subTest(seed=SEED, at=at, again=again, of=n):
                for point in (at, again):
                    result = self.start(job, point)
                    self.assertIn(result.returncode, (-9, 0), result.stderr)
                    self.assertEqual(result.stderr, b"")
                result = job.run("--resume")
                self.assertEqual((result.returncode, result.stderr), (0, b""))
                self.assertEqual(job.output.read_bytes(), want)


if __name__ == "__main__":
    common.main("__main__")
