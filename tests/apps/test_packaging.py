#!/usr/bin/env python3
"""What is installed beside the program: completion in bash, units of systemd, the Dockerfile. RUNNEL_MADE is the folder
where the build has them."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

import common
from common import MODEL, run

MADE = pathlib.Path(os.environ.get("RUNNEL_MADE", "."))


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        result = run("--completion")
        assert (result.returncode, result.stderr) == (0, b"")
        cls.script = result.stdout.decode()

    def test_it_is_what_the_build_made_and_bash_reads_it(self):
        self.assertEqual((MADE / "runnel.bash").read_text(), self.script)
        result = subprocess.run(["bash", "-n"], input=self.script.encode(), capture_output=True)
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def complete(self, *words, folder="."):
        """What bash offers for the last of the words."""
        script = (self.script + f'COMP_WORDS=("$@"); COMP_CWORD={len(words)}; _runnel; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        result = subprocess.run(["bash", "-c", script, "bash", "runnel", *words], capture_output=True, cwd=folder,
                                text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return sorted(result.stdout.split())

    def test_commands(self):
        listed = re.findall(r"(?m)^  ([a-z-]+) {2,}", run("--help").stdout.decode().split("usage:")[1])
        commands = sorted(set(listed) - {"runnel"})
        offered = self.complete("")
        self.assertEqual([word for word in offered if not word.startswith("-") and word not in ("help", "version")],
                         commands)
        self.assertEqual(self.complete("se"), ["serve"])
        self.assertEqual(self.complete("b"), ["batch", "bench"])

    def test_options(self):
        for command in ("run", "serve", "bench", "doctor"):
            told = re.findall(r"(?m)^  (?:-\w, |    )(--[\w-]+)", run(command, "--help").stdout.decode())
            self.assertEqual(self.complete(command, "--"), sorted(told))
        self.assertEqual(self.complete("serve", "model.gguf", "--max-st"), ["--max-streams"])
        self.assertNotIn("--port", self.complete("run", "--"))

    def test_values(self):
        self.assertEqual(self.complete("run", "m.gguf", "--kv-type", "f"), ["f16", "f32", "fp8"])
        self.assertEqual(self.complete("run", "m.gguf", "--weights", ""), ["auto", "file", "tiles"])
        self.assertEqual(self.complete("run", "m.gguf", "--temperature", ""), [])
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.gguf", "b.txt", "c.gguf"):
                pathlib.Path(folder, name).touch()
            pathlib.Path(folder, "d").mkdir()
            self.assertEqual(self.complete("run", "", folder=folder), ["a.gguf", "c.gguf", "d"])
            self.assertEqual(self.complete("run", "b", folder=folder), ["b.txt"])
            self.assertEqual(self.complete("run", "a.gguf", "-f", "", folder=folder),
                             ["a.gguf", "b.txt", "c.gguf", "d"])
            self.assertEqual(self.complete("run", "a.gguf", "--cache-dir", "", folder=folder), ["d"])


class Units(unittest.TestCase):
    def test_systemd_finds_nothing_wrong(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not here")
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("service", "socket"):
                text = (MADE / f"runnel-serve.{kind}").read_text()
                text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={os.path.abspath(common.program)}", text)
                text = re.sub(r"(?m)^Documentation=.*\n", "", text)  # the page is not installed
                pathlib.Path(folder, f"runnel-serve.{kind}").write_text(text)
            units = [f"{folder}/runnel-serve.{kind}" for kind in ("service", "socket")]
            result = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
            ours = [line for line in result.stderr.splitlines() if "runnel" in line]
            self.assertEqual(ours, [])
            result = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", units[0]],
                                    capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stdout[-300:])

    def test_a_socket_that_is_handed_over(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            waiting = socket.create_connection(("127.0.0.1", port))  # before there is a server
            waiting.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            process = common.popen(
                ["bash", "-c", f'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@" 3<&{listener.fileno()}', "bash", common.program,
                 "serve", MODEL, "-t", "2"], pass_fds=[listener.fileno()], stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"listening on the socket that was handed over\n")
        self.assertTrue(waiting.recv(1000).startswith(b"HTTP/1.1 200 "))
        waiting.close()
        process.terminate()
        self.assertEqual(process.wait(timeout=common.PATIENCE), 0)
        process.communicate()

    def test_sockets_that_are_handed_over(self):
        """All of them, TCP's and a unix one, each for itself."""
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as first, \
                socket.create_server(("127.0.0.1", 0)) as second, socket.socket(socket.AF_UNIX) as third:
            third.bind(f"{folder}/socket")
            third.listen()
            handed = [first, second, third]
            moved = " ".join(f"{3 + i}<&{one.fileno() + 100}" for i, one in enumerate(handed))
            kept = " ".join(f"{one.fileno() + 100}<&{one.fileno()}" for one in handed)
            process = common.popen(
                ["bash", "-c", f'exec {kept}; LISTEN_FDS=3 LISTEN_PID=$$ exec "$@" {moved}', "bash", common.program,
                 "serve", MODEL, "-t", "2"], pass_fds=[one.fileno() for one in handed], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"listening on the 3 sockets that were handed over\n")
            for one in handed:
                with socket.socket(one.family) as client:
                    client.connect(one.getsockname())
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200 "))
            process.terminate()
            self.assertEqual(process.wait(timeout=common.PATIENCE), 0)
            process.communicate()


class Dockerfile(unittest.TestCase):
    def setUp(self):
        text = (common.ROOT / "packaging/Dockerfile").read_text().replace("\\\n", " ")
        self.steps = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.lists = [set(re.search(r"--no-install-recommends (.*?)&&", step)[1].split())
                      for step in self.steps if "apt-get install" in step]

    def test_form(self):
        words = [step.split(" ", 1)[0] for step in self.steps]
        self.assertEqual(words.count("FROM"), 2)
        self.assertLess(set(words),
                        {"FROM", "RUN", "COPY", "USER", "WORKDIR", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"} | {""})
        for step in self.steps:
            if step.startswith(("ENTRYPOINT", "CMD")):
                self.assertIsInstance(json.loads(step.split(" ", 1)[1]), list)
        self.assertGreater(words.index("USER"), max(i for i, word in enumerate(words) if word == "RUN"))

    def test_what_is_built_with_is_what_setup_installs(self):
        setup = set(re.findall(r"[\w.+-]+", (common.ROOT / "scripts/setup").read_text()))
        self.assertEqual(self.lists[0] - setup, set())

    def test_the_image_has_the_libraries_that_the_program_needs(self):
        release = pathlib.Path("/etc/os-release").read_text()
        if 'VERSION_ID="12"' not in release or "debian" not in release:
            self.skipTest("the image is Debian 12, and this is not")
        needed = set()
        for path in re.findall(r"=> (/\S+)",
                               subprocess.run(["ldd", common.program], capture_output=True, text=True).stdout):
            owner = ""
            for name in (path, "/usr" + path, os.path.realpath(path)):
                owner = owner or subprocess.run(["dpkg", "-S", name], capture_output=True, text=True).stdout
            needed.add(owner.split(":")[0])
        base = {"libc6", "libgcc-s1", "libtinfo6", "libmd0", "libbsd0", "libasan8", "libubsan1", "libtsan2",
                "libstdc++6"}
        self.assertEqual(needed - self.lists[1] - base, set())


if __name__ == "__main__":
    common.main("__main__")
