#!/usr/bin/env python3
"""--device: what is said where it is not there, and what auto does then. RUNNEL_CUDA_EMULATED is the library with the
kernels for the emulated driver."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import common
from batch_job import Job, story
from common import MODEL, run
from server import Server

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
        self.assertIn("the kernels do not load", said)

    def test_no_such_level(self):
        said = self.refused("--device", "cpu:mmx")
        self.assertIn('device "cpu:mmx" is not there: this machine has the instruction sets ', said)

    def test_too_few_devices(self):
        said = self.refused("--device", "cuda:1", "--cuda-library", EMULATED)
        self.assertIn("cuda: there is no device 1: the machine has 1 of them", said)

    def test_the_text_is_that_of_the_cpu(self):
        for device, n in ("cuda", 8), ("auto", 1), ("cuda:0", 1):  # the emulated device takes long
            want = run(*ASK, "-n", n)
            got = run(*ASK, "-n", n, "--device", device, "--cuda-library", EMULATED)
            self.assertEqual((got.returncode, got.stdout, got.stderr), (0, want.stdout, b""))

    def test_auto_goes_on_with_the_cpu_and_says_so(self):
        want = run(*ASK)
        got = run(*ASK[:-1], "--device", "auto", "--cuda-library", "/nowhere/librunnel-cuda.so")
        self.assertEqual((got.returncode, got.stdout), (0, want.stdout))
        self.assertIn('device "auto": the model is loaded on the CPU: cuda: the kernels are not there',
                      got.stderr.decode())

    def test_some_layers_are_on_the_device(self):
        split = ("--device", "cuda", "--cuda-library", EMULATED, "--device-layers", "1")
        want, got = run(*ASK), run(*ASK[:-1], *split, "--log-level", "info")
        self.assertEqual((got.returncode, got.stdout), (0, want.stdout))
        self.assertIn("5 of 6 layers, with", got.stderr.decode())
        doctor = run("doctor", MODEL, "--threads", "1", *split).stdout.decode()
        self.assertRegex(doctor, r"layers +5 on the CPU, 1 on the device")
        bench = run("bench", MODEL, "-p", "8", "-n", "2", "-r", "1", "--no-limits", "--json", *split)
        self.assertEqual({row["device_layers"] for row in json.loads(bench.stdout)["results"]}, {1})

    def test_layers_that_cannot_be_had(self):
        split = ("--device", "cuda", "--cuda-library", EMULATED, "--device-layers")
        self.assertIn("device_layers 7 are more than the 6 layers", self.refused(*split, "7"))
        self.assertIn('device "cpu" has no memory of its own', self.refused("--device-layers", "1"))
        for bad in "0", "-1", "x", "4294967296":
            self.assertIn("--device-layers", self.refused(*split, bad))

    def test_the_server_has_some_layers_on_the_device(self):
        split = ("--device", "cuda", "--cuda-library", EMULATED, "--device-layers", 2)
        request = {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
        texts = []
        for options in (), split:
            server = Server("--ctx", 64, *options)
            self.addCleanup(server.stop)
            status, answer = server.post("/v1/completions", request)
            self.assertEqual(status, 200)
            texts.append(answer["choices"][0]["text"])
            server.stop()
        self.assertEqual(texts[0], texts[1])
        with tempfile.TemporaryDirectory() as folder:
            models = pathlib.Path(folder) / "models.json"
            row = {"path": os.path.abspath(MODEL), "load": "start", "options": {"device": "cuda", "device-layers": 7}}
            models.write_text(json.dumps({"models": [row]}))
            result = run("serve", "--models-file", str(models), "--port", "0", "--cuda-library", EMULATED)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("device_layers 7 are more than the 6 layers", result.stderr.decode())

    def test_memory_of_the_device(self):
        """size_vram: weights and KV that lie there."""
        tensors = json.loads(run("info", MODEL, "--json").stdout)["tensors"]
        weights = sum(t["bytes"] for t in tensors)
        there = sum(t["bytes"] for t in tensors
                    if not re.match(r"blk\.[0-3]\.", t["name"]))  # the embedding is the head
        cuda = ("--device", "cuda", "--cuda-library", EMULATED)
        for options, vram in (((), lambda kv: 0), (cuda, lambda kv: weights + kv),
                              ((*cuda, "--device-layers", 2), lambda kv: there + kv * 2 // 6)):
            server = Server("--ctx", 64, *options)
            loaded, = json.loads(server.get("/api/ps")[1])["models"]
            self.assertEqual(server.stop()[0], 0)
            self.assertGreater(loaded["size"], weights)
            self.assertEqual(loaded["size_vram"], vram(loaded["size"] - weights))

    def read_for_a_token(self, model):
        """A token reads two of four experts, and the rest: the embedding is the head."""
        tensors = json.loads(run("info", model, "--json").stdout)["tensors"]
        needed = sum(t["bytes"] / (2 if "_exps." in t["name"] else 1) for t in tensors)
        doctor = run("doctor", model, "--threads", "1").stdout.decode()
        read = float(re.search(r"^reads memory +([0-9.]+) GB/s", doctor, re.MULTILINE)[1]) * 1e9
        most = float(re.search(r"^one stream +at most ([0-9.]+) tokens/s", doctor, re.MULTILINE)[1])
        self.assertLess(abs(most * needed / read - 1), 0.03)  # the speed is told to 0.1 GB/s

    def test_memory_of_machine_and_device(self):
        device = ("--device", "auto", "--cuda-library", EMULATED)
        lacking = run("doctor", MODEL, "--threads", "1", "--ctx", "4294967295", *device)
        self.assertEqual(lacking.returncode, 1)
        self.assertRegex(lacking.stdout.decode(), r"missing +memory: [0-9.]+ GiB are needed, [0-9.]+ could be had "
                                                  r"and [0-9.]+ on the device; ")

    def test_a_job_goes_on_where_it_was_computed(self):
        """Not where "auto" finds something else meanwhile: the texts might be others."""
        there = ("--device", "auto", "--cuda-library", EMULATED)
        gone = (*there[:-1], "/nowhere/librunnel-cuda.so")
        cuda, cpu = ("--device", "cuda", "--cuda-library", EMULATED), ("--device", "cpu")
        for first, others, same, was, now in ((there, (gone, cpu), cuda, "cuda", "cpu"),
                                              (gone, (there, cuda), cpu, "cpu", "cuda")):
            job = Job([story(i, 1) for i in range(2)])
            self.assertEqual(job.run(*first, "--limit", "1").returncode, 0)
            for other in others:
                got = job.run(*other, "--resume")
                self.assertEqual(got.returncode, 1)
                self.assertRegex(got.stderr.decode(), rf"its device: {was}\S* there, {now}\S* now")
            self.assertEqual(job.run(*same, "--resume").returncode, 0)
            self.assertEqual(len(job.answers()), 2)

    def test_experts_are_apart_from_their_layers(self):
        """The program's and the server's text is that of the device that has all, whatever has a place there."""
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "experts.gguf")
            subprocess.run([os.environ["RUNNEL_MAKE_EXPERTS"], MODEL, model], check=True)
            ask = ["run", model, "Once upon a time", "-n", "4", "--temperature", "0", "--quiet"]
            device = ("--device", "cuda", "--cuda-library", EMULATED)
            want = run(*ask, *device)
            for size, places in ("1", 0), ("1M", 6), ("1G", 24):  # 24 experts of 0.15 MiB
                got = run(*ask, *device, "--device-experts", size, "--log-level", "info")
                self.assertEqual((got.returncode, got.stdout), (0, want.stdout))
                self.assertRegex(got.stderr.decode(),
                                 rf"24 experts with [0-9.]+ MiB lie in the host's memory, and {places} ")
            doctor = run("doctor", model, "--threads", "1", *device, "--device-experts", "1M").stdout.decode()
            self.assertRegex(doctor, r"experts +6 on the device, in ")
            self.assertNotIn("one stream", doctor)  # bounded by a memory that is not measured
            self.read_for_a_token(model)
            bench = run("bench", model, "-p", "8", "-n", "2", "-r", "1", "--no-limits", "--json", *device,
                        "--device-experts", "1M")
            for row in json.loads(bench.stdout)["results"]:
                self.assertEqual(row["device_experts"], 6)
                self.assertTrue(0 < row["expert_hit_percent"] < 100)
            models = pathlib.Path(folder) / "models.json"
            models.write_text(json.dumps({"models": [
                {"path": model, "load": "start", "options": {"device": "cuda", "device-experts": "1M", "ctx": 64}}]}))
            server = Server("--models-file", str(models), "--cuda-library", EMULATED, model=None)
            self.addCleanup(server.stop)
            status, answer = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 4,
                                                             "temperature": 0})
            self.assertEqual((status, answer["choices"][0]["text"]), (200, want.stdout.decode().rstrip("\n")))
            metrics = server.get("/metrics")[1].decode()
            self.assertRegex(metrics, r"runnel_expert_device_hits_total\{[^}]*\} [1-9]")
            tensors = json.loads(run("info", model, "--json").stdout)["tensors"]
            weights, experts = (sum(t["bytes"] for t in tensors if part in t["name"]) for part in ("", "_exps."))
            loaded, = json.loads(server.get("/api/ps")[1])["models"]
            places = loaded["size_vram"] - (loaded["size"] - experts)  # KV and the other weights are there, too
            self.assertTrue(experts * 6 / 24 <= places <= experts * 6 / 24 + 24 * 256, (places, experts))

    def test_experts_that_cannot_be_apart(self):
        self.assertIn("has no experts", self.refused("--device", "cuda", "--cuda-library", EMULATED,
                                                     "--device-experts", "1"))
        self.assertIn('device "cpu" has no memory of its own', self.refused("--device-experts", "1"))
        self.assertIn("--device-experts", self.refused("--device-experts", "some"))

    def test_what_is_known(self):
        told = run("info", "--devices", "--cuda-library", EMULATED)
        lines = dict(line.split(None, 1) if line.startswith("cuda:") else (line[:18].strip(), line[19:])
                     for line in told.stdout.decode().splitlines())
        self.assertEqual((told.returncode, told.stderr), (0, b""))
        levels = lines["cpu:LEVEL"].split(", ")
        self.assertEqual((levels[-1], len(set(levels))), ("c", len(levels)))
        self.assertEqual(lines["cuda kernels"], os.path.realpath(EMULATED))
        self.assertIn("emulated", lines["cuda driver"])
        self.assertRegex(lines["cuda:0"],
                         r"^emulated device, compute capability 9\.0, 0\.2 GiB, of which 0\.[12] are free$")
        self.assertEqual(lines["device auto"], "cuda:0")

    def test_what_is_missing(self):
        told = run("info", "--devices", "--json", "--cuda-library", "/nowhere/librunnel-cuda.so")
        known = json.loads(told.stdout)
        self.assertEqual((told.returncode, known["auto"]), (0, "cpu"))
        self.assertEqual(known["cpu_levels"][-1], "c")
        text = {run("run", MODEL, "-p", "Once upon a time", "-n", "12", "--device", "cpu:" + level).stdout
                for level in known["cpu_levels"]}
        self.assertEqual((len(text), len(max(text)) > 12), (1, True))
        self.assertIn("the kernels are not there: /nowhere/librunnel-cuda.so", known["why"])
        self.assertIn("the kernels are not there: /nowhere/librunnel-cuda.so", known["kernels"])
        self.assertIn("libcuda.so.1", known["driver"])
        doctor = run("doctor", "--threads", "1", "--cuda-library", "/nowhere/librunnel-cuda.so").stdout.decode()
        self.assertIn("device auto        the CPU: " + known["why"], doctor)

    def test_devices_take_no_model(self):
        result = run("info", MODEL, "--devices")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"--devices takes no MODEL", result.stderr)


if __name__ == "__main__":
    common.main(__name__)
