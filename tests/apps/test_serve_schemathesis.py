#!/usr/bin/env python3
"""schemathesis over /openapi.json: bodies that it allows and bodies that it does not, each route, each method."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import common
from common import MODEL
from server import Server

SEED = 1
PHASES = os.environ.get("RUNNEL_SCHEMATHESIS_PHASES", "coverage,fuzzing,stateful")
EXAMPLES = int(os.environ.get("RUNNEL_SCHEMATHESIS_EXAMPLES", 5))
RANKS = r"^/v1/(rerank|classify)$"
NAMES = r"^(/v2)?/rerank|/reranking$|^/classify$"  # further names of the same route: left out
# Left out: positive_data_acceptance (schemathesis_checks.py has one with reasons), max_response_time (of machines),
# object_level_authorization (test_serve_batches.py has who sees what).
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance", "negative_data_rejection", "missing_required_header", "unsupported_method",
          "allow_header_conformance", "use_after_free", "ensure_resource_availability", "ignored_auth",
          "refused_for_a_reason")
# QUERY is left out: a method that the parser of HTTP does not know gets 501, as RFC 9110 has it, not 405.
CONFIG = """
cache.enabled = false
[phases.coverage]
unexpected-methods = ["get", "put", "post", "delete", "patch", "trace"]
"""


class Schemathesis(unittest.TestCase):
    def judge(self, server, *options, operations):
        self.addCleanup(server.stop)
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "schemathesis.toml")
            config.write_text(CONFIG)
            here = str(pathlib.Path(__file__).parent)
            got = subprocess.run([sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run",
                                  f"http://127.0.0.1:{server.port}/openapi.json", "--phases", PHASES,
                                  "--checks", ",".join(CHECKS), "--seed", str(SEED), "--max-examples", str(EXAMPLES),
                                  "--generation-database", "none", "--generation-allow-x00", "false",
                                  "--request-timeout", str(common.PATIENCE), "--suppress-health-check", "all",
                                  "--warnings", "off", "--no-color", *options],
                                 cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_checks", "PYTHONPATH": here})
        self.assertEqual(got.returncode, 0, got.stdout)
        tested = re.search(r"Selected: (\d+)/\d+\n\s+Tested: (\d+)", got.stdout)
        self.assertEqual((int(tested[1]), int(tested[2])), (operations, operations), got.stdout)
        self.assertEqual(server.stop()[0], 0)

    def operations(self, server, ranks):
        """How many of the document's are of models that rank, or are not; schemathesis leaves out the document's
        own."""
        document = json.loads(server.get("/openapi.json")[1])
        return sum(1 for path, item in document["paths"].items() for method in item.keys() & {"get", "post", "delete"}
                   if bool(re.search(RANKS, path)) == ranks and not re.search(NAMES, path)
                   and path != "/openapi.json")

    def test_each_route(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = {"pre": 2040, "suf": 2041, "mid": 2042, "rep": 2043, "sep": 2044}  # so that it fills gaps
            model = common.with_metadata(os.path.join(folder, "gaps.gguf"),
                                         {f"tokenizer.ggml.fim_{k}_token_id": v for k, v in keys.items()})
            server = Server("--files-dir", os.path.join(folder, "files"), "--ctx", 128, "--quiet", model=model)
            self.judge(server, "--exclude-path-regex", f"{RANKS}|{NAMES}", operations=self.operations(server, False))

    def test_rankers(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "ranker.gguf")
            subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], MODEL, model, "template"], check=True)
            server = Server("--ctx", 128, "--quiet", model=model)
            self.judge(server, "--include-path-regex", RANKS, "--phases", PHASES.removesuffix(",stateful"),  # no links
                       operations=self.operations(server, True))


if __name__ == "__main__":
    common.main("__main__")
