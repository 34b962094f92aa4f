"""runnel embed: vectors against another program's, forms of output, what is refused."""
import json
import math
import tempfile
import unittest

import common
from common import MODEL, ROOT, run

TEXTS = ["Once upon a time there was a little fox who lived in the woods.",
         "The cat sat on the mat, and the dog looked at it for a long time without a word.",
         "Hello"]
POOLINGS = {"1": "mean", "2": "first", "3": "last"}


def expected():
    """(text, pooling): vector, of the bundled model."""
    found = {}
    for row in (ROOT / "tests/actors/embed/embeddings.txt").read_text().splitlines():
        words = row.split()
        if words[0] == "runnel-tiny-Q8_0":
            found[int(words[1]), POOLINGS[words[2]]] = [float(x) for x in words[4:]]
    return found


def scaled(vector):
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b))


class Embed(unittest.TestCase):
    def test_against_another_program(self):
        for (text, pooling), vector in expected().items():
            with self.subTest(text=text, pooling=pooling):
                got = run("embed", MODEL, TEXTS[text], "--pooling", pooling, "-q", "--raw", "--kv-type", "f32")
                self.assertEqual((got.returncode, got.stderr), (0, b""))
                values = [float(x) for x in got.stdout.split()]
                self.assertEqual(len(values), len(vector))
                self.assertLess(distance(values, vector), 0.01)

    def test_json(self):
        known = expected()
        got = json.loads(run("embed", MODEL, *TEXTS, "--json", "-q", "--dimensions", "50").stdout)
        ids = [run("tokenize", MODEL, "-p", t, "--ids", "--bos").stdout.split() for t in TEXTS]
        self.assertEqual(got["object"], "list")
        self.assertEqual(got["usage"]["prompt_tokens"], sum(map(len, ids)))
        for i, item in enumerate(got["data"]):
            self.assertEqual((item["object"], item["index"]), ("embedding", i))
            self.assertLess(distance(item["embedding"], scaled(known[i, "mean"][:50])), 0.01)

    def test_json_of_a_text_that_fails(self):
        """The object is whole: the vectors so far, and what was wrong."""
        got = run("embed", MODEL, "a", "", "b", "--json", "-q")
        told = json.loads(got.stdout)
        self.assertEqual((got.returncode, set(told), len(told["data"])), (1, {"object", "data", "error"}, 1))
        self.assertEqual(got.stderr.decode(), f"runnel: {told['error']['message']}\n")
        self.assertTrue(told["error"]["message"].startswith("text 2: "), told)

    def test_lines_of_a_file(self):
        with tempfile.NamedTemporaryFile() as f:
            f.write(("\n\n".join(TEXTS[:2]) + "\r\n" + TEXTS[2]).encode())
            f.flush()
            lines = run("embed", MODEL, "-f", f.name, "-q").stdout
        self.assertEqual(lines, run("embed", MODEL, *TEXTS, "-q").stdout)
        self.assertEqual(lines, run("embed", MODEL, "-f", "-", "-q", stdin="\n".join(TEXTS).encode()).stdout)
        self.assertEqual(len(lines.splitlines()), 3)

    def test_refused(self):
        self.assertEqual(run("embed", MODEL).returncode, 2)
        self.assertEqual(run("embed", MODEL, "a", "--pooling", "best").returncode, 2)
        self.assertEqual(run("embed", MODEL, "a", "--dimensions", "0").returncode, 2)
        for words, part in (((MODEL, ""), b"empty"), ((MODEL, "a", "--dimensions", "257"), b"dimensions = 257"),
                            ((MODEL, "word " * 200, "--ctx", "64"), b"64 fit"),
                            ((MODEL, "a", "-f", "/nosuch"), b"/nosuch")):
            with self.subTest(words=words):
                got = run("embed", *words, "-q")
                self.assertEqual((got.returncode, got.stdout), (1, b""))
                self.assertIn(part, got.stderr)


if __name__ == "__main__":
    common.main("__main__")
