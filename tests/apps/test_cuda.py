#!/usr/bin/env python3
"""--device: what is said where it is not there, and what auto does then. RUNNEL_CUDA_EMULATED is the library with the
kernels for the emulated driver."""
import os
import unittest

import common
from common import MODEL, run

EMULATED = os.environ["RUNNEL_CUDA_EMULATED"]
ASK = ("run", MODEL, "-p", "Once upon", "-n", "12", "--temperature", "0", "--quiet")


class Device(unittest.TestCase):
    def refused(self, *options):
        result = run(*ASK, *options)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, b"")
        return result.stderr.decode()

    def test_no_library(self):
        said = self.refused("--device", "cuda", "--cuda-library", "/nowhere/librunnel-cuda.so")
        self.assertIn("cuda: the kernels are not there: /nowhere/librunnel-cuda.so", said)

    def test_not_a_library_of_kernels(self):
        said = self.refused("--device", "cuda", "--cuda-library", "libm.so.6")
        self.assertIn("libm.so.6 has not the kernels of this version of runnel", said)

    def test_not_a_library(self):
        said = self.refused("--device", "cuda", "--cuda-library", os.path.abspath(MODEL))
        self.assertIn("the kernels are not there", said)

    def test_too_few_devices(self):
        said = self.refused("--device", "cuda:1", "--cuda-library", EMULATED)
        self.assertIn("cuda: there is no device 1: the machine has 1 of them", said)

    def test_the_text_is_that_of_the_cpu(self):
        want = run(*ASK)
        for device in "cuda", "auto", "cuda:0":
            got = run(*ASK, "--device", device, "--cuda-library", EMULATED)
            self.assertEqual((got.returncode, got.stdout, got.stderr), (0, want.stdout, b""))

    def test_auto_goes_on_with_the_cpu_and_says_so(self):
        want = run(*ASK)
        got = run(*ASK[:-1], "--device", "auto", "--cuda-library", "/nowhere/librunnel-cuda.so")
        self.assertEqual((got.returncode, got.stdout), (0, want.stdout))
        self.assertIn('device "auto": the model is loaded on the CPU: cuda: the kernels are not there',
                      got.stderr.decode())


if __name__ == "__main__":
    common.main(__name__)
