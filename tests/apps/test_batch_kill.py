#!/usr/bin/env python3
"""runnel batch killed with SIGKILL at random moments: --resume ends with the bytes of a job that nobody disturbed.

RUNNEL_BATCH_KILLS: how often (50); RUNNEL_BATCH_SEED: of the moments (the clock's)."""
import os
import random
import time
import unittest

import common
from test_batch import Job, line, story, TEXT

KILLS = int(os.environ.get("RUNNEL_BATCH_KILLS", "50"))
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
        whole = Job(lines(), "-q", "--threads", "1", *options)
        began = time.monotonic()
        self.assertEqual(whole.run().returncode, 0)
        lasted = time.monotonic() - began
        want, done, jobs, partial = compare(whole), 0, 0, 0
        while done < kills:
            job, jobs = Job(lines(), "-q", "--threads", "1", *options), jobs + 1
            while done < kills:
                process = job.start("--resume")
                try:
                    process.wait(dice.uniform(0, lasted))
                except Exception:
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


if __name__ == "__main__":
    common.main("__main__")
