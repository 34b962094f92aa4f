#!/usr/bin/env python3
"""runnel batch killed with SIGKILL: --resume ends with the bytes of a job that nobody disturbed.

Killed while it stands still in a write to its output (so that a part of the output is certain, however fast or slow the
machine is), at moments of time (where they fall is left to the machine), and at each write to a file (crash_point.c).
RUNNEL_BATCH_KILLS: how often of the first two (25), RUNNEL_BATCH_POINTS: how many of the writes (all),
RUNNEL_BATCH_SEED: of what is drawn (the clock's), RUNNEL_CRASH_POINT: the library."""
import os
import random
import subprocess
import time
import unittest

import common
from batch_job import Job, line, story, TEXT

KILLS = int(os.environ.get("RUNNEL_BATCH_KILLS", "25"))
POINTS = int(os.environ.get("RUNNEL_BATCH_POINTS", "1000"))
SEED = int(os.environ.get("RUNNEL_BATCH_SEED", time.time_ns() % 1000000))
QUIET = ["-q", "--threads", "1", "--streams", "4"]


def lines():
    out = []
    for i in range(48):
        out.append(story(i, 1 + (29 * i) % 8, n=1 + i % 2))
        if i % 6 == 0:
            out += ["{broken", "", story(i), line(f"bad{i}", TEXT, {"prompt": 5})]  # the third is a duplicate
    return out


def ordered(job):
    return job.output.read_bytes()


def unordered(job):
    return sorted(job.output.read_bytes().split(b"\n"))


def sanitized(option):
    """An environment with one more option of AddressSanitizer's, which other builds do not look at."""
    return {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":" + option}


def preload(at, **more):
    """An environment with crash_point in front: see there."""
    return {**sanitized("verify_asan_link_order=0"), "LD_PRELOAD": os.environ["RUNNEL_CRASH_POINT"],
            "CRASH_AT": str(at),
            **{f"CRASH_{name.upper()}": str(value) for name, value in more.items()}}


def count_writes(test, job, **more):
    """Runs the job to its end: how many writes crash_point has seen; skips where it is not seen itself."""
    if "RUNNEL_CRASH_POINT" not in os.environ:
        test.skipTest("RUNNEL_CRASH_POINT is not set")
    count = job.path / "count"
    result = job.run("--resume", env=preload(0, count=count, **more))
    test.assertEqual((result.returncode, result.stderr), (0, b""))
    n = int(count.read_text())
    if n == 0:
        test.skipTest("a sanitizer's functions stand in front of the library's")
    return n


class Progress(unittest.TestCase):
    def kill_in_output(self, job, at):
        """Kills the job while it stands in the at-th change of its output; False: it has ended before."""
        tell, told = os.pipe()
        env = preload(at, file=job.output.name, tell=told)
        process = common.popen(job.command("--resume"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env,
                               pass_fds=(told,))
        os.close(told)
        stands = os.read(tell, 1) == b"!"  # nothing: the process has closed its end by ending
        os.close(tell)
        if stands:
            process.kill()
        text = process.communicate(timeout=common.PATIENCE)[1]
        self.assertEqual((process.returncode, text), (-9 if stands else 0, b""))
        return stands

    def disturb(self, options, compare):
        dice, whole = random.Random(SEED), Job(lines(), *QUIET, *options)
        n = count_writes(self, whole, file=whole.output.name)
        want, size, partial, done, jobs = compare(whole), whole.output.stat().st_size, 0, 0, 0
        certain = 1 + sum(text != "" for text in lines()) + 1  # it is cut, each line is written, it is synced once
        self.assertGreaterEqual(n, certain)
        while done < KILLS:
            job, jobs = Job(lines(), *QUIET, *options), jobs + 1
            at = dice.randint(2, certain)
            while done < KILLS and self.kill_in_output(job, at):
                done, at = done + 1, dice.randint(1, n)
                partial += 0 < job.output.stat().st_size < size
                if done % 6 == 0:
                    break
            result = job.run("--resume")
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertEqual(compare(job), want)
        print(f"{done} kills in {jobs} jobs, {partial} of them with a part of the output", end=" ", flush=True)
        self.assertGreaterEqual(partial, jobs)  # each job's first at least

    def test_ordered(self):
        with self.subTest(seed=SEED):
            self.disturb([], ordered)

    def test_unordered(self):
        with self.subTest(seed=SEED):
            self.disturb(["--unordered"], unordered)


class Time(unittest.TestCase):
    def disturb(self, options, tries, compare):
        """Kills at moments from a job's start to its end. Nothing is asked of how many fall where."""
        dice, whole = random.Random(SEED), Job(lines(), *QUIET, *options)
        began = time.monotonic()
        self.assertEqual(whole.run().returncode, 0)
        lasted, want, done = time.monotonic() - began, compare(whole), 0
        job = Job(lines(), *QUIET, *options)
        for i in range(tries):
            # The check for leaks is done by a process of its own, which outlives the kill and says so.
            process = job.start("--resume", env=sanitized("detect_leaks=0"))
            try:
                process.wait(dice.uniform(0, lasted))
            except subprocess.TimeoutExpired:
                process.kill()
            text = process.communicate(timeout=common.PATIENCE)[1]
            self.assertIn((process.returncode, text), ((-9, b""), (0, b"")))
            done += process.returncode != 0
            if process.returncode == 0 or i % 12 == 11 or i == tries - 1:
                result = job.run("--resume")
                self.assertEqual((result.returncode, result.stderr), (0, b""))
                self.assertEqual(compare(job), want)
                job = Job(lines(), *QUIET, *options)
        print(f"{done} kills in {tries} runs of {lasted:.2f} s", end=" ", flush=True)

    def test_ordered(self):
        with self.subTest(seed=SEED):
            self.disturb([], KILLS, ordered)

    def test_unordered(self):
        with self.subTest(seed=SEED):
            self.disturb(["--unordered"], KILLS // 3, unordered)


class Points(unittest.TestCase):
    def disturb(self, points, files, apart):
        """A crash at a write, then another one in the run that goes on, and then none."""
        dice, data, options = random.Random(SEED), lines()[:14], ["-q", "--threads", "1", "--streams", "3"]
        whole = Job(data, *options, apart=apart)
        n, want = count_writes(self, whole), files(whole)
        self.assertGreater(n, 40)
        print(f"{min(points, n)} of {n} writes", end=" ", flush=True)
        for at in sorted(dice.sample(range(1, n + 1), min(points, n))):
            job, again = Job(data, *options, apart=apart), dice.randrange(1, n)
            with self.subTest(seed=SEED, at=at, again=again, of=n):
                for point in (at, again):
                    result = job.run("--resume", env=preload(point))
                    self.assertIn(result.returncode, (-9, 0), result.stderr)
                    self.assertEqual(result.stderr, b"")
                result = job.run("--resume")
                self.assertEqual((result.returncode, result.stderr), (0, b""))
                self.assertEqual(files(job), want)

    def test_points(self):
        self.disturb(POINTS, ordered, False)

    def test_errors_apart(self):
        self.disturb(min(POINTS, 40), lambda job: (job.output.read_bytes(), job.errors.read_bytes()), True)


if __name__ == "__main__":
    common.main("__main__")
