#!/usr/bin/env python3
"""/openapi.json is a proper document, every route keeps to it, and what it forbids is refused by the field's name."""
import json
import os
import subprocess
import tempfile
import unittest

import jsonschema

import common
from batch_job import TEXT, USER, line
from server import Server
from test_serve_batches import form

PROMPT = "Once upon a time"
GAPS = "gaps"  # a model that fills them
RERANKS = ("/v1/rerank", "/v2/rerank", "/v1/reranking", "/rerank", "/reranking")
RANKS = (*RERANKS, "/v1/classify", "/classify")  # of a server with another model
BODIES = {  # what each route is asked that answers with 200, but for what its name says; the rest gets {}
    "/v1/chat/completions": {"messages": USER, "max_tokens": 4},
    "/v1/completions": {"prompt": PROMPT, "max_tokens": 4},
    "/v1/embeddings": {"input": PROMPT},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": 4},
    "/v1/responses/input_tokens": {"input": PROMPT},
    "/v1/chat/completions/input_tokens": {"messages": USER},
    "/v1/messages": {"messages": USER, "max_tokens": 4},
    "/v1/messages/count_tokens": {"messages": USER},
    "/api/chat": {"messages": USER, "stream": False, "options": {"num_predict": 4}},
    "/api/generate": {"prompt": PROMPT, "stream": False, "options": {"num_predict": 4}},
    "/api/embed": {"input": PROMPT},
    "/api/embeddings": {"prompt": PROMPT},
    "/api/show": {"model": GAPS},
    "/completion": {"prompt": PROMPT, "n_predict": 4},
    "/embedding": {"content": PROMPT},
    "/embeddings": {"input": [PROMPT, "Hello"]},
    "/tokenize": {"content": PROMPT, "with_pieces": True},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {"messages": USER},
    "/infill": {"input_prefix": PROMPT, "input_suffix": "wood.", "n_predict": 4},
    "/models/load": {"model": GAPS},
    "/v1/batches": {"input_file_id": "", "endpoint": "/v1/completions", "completion_window": "24h"},
    **{path: {"query": "Who?", "documents": [PROMPT, "Hello"]} for path in RERANKS},
    "/v1/classify": {"input": PROMPT},
    "/classify": {"input": PROMPT},
}
WRONG = (True, 5, 0.5, -7, 1 << 40, "text", ["text"], {"a": 1})  # some of them are of no field's type


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        model = common.with_metadata(os.path.join(folder, GAPS + ".gguf"), {
            f"tokenizer.ggml.fim_{key}_token_id": id for key, id in (("pre", 2040), ("suf", 2041), ("mid", 2042))})
        ranker = os.path.join(folder, "ranker.gguf")
        subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], common.MODEL, ranker, "template"], check=True)
        cls.server = Server("--files-dir", os.path.join(folder, "files"), model=model)
        cls.ranker = Server(model=ranker)
        cls.connections = [server.connect() for server in (cls.server, cls.ranker)]
        status, body = cls.server.get("/openapi.json")
        assert status == 200, body
        cls.document = json.loads(body)
        status, body, _ = cls.server.ask("POST", "/v1/files", *form([
            ("purpose", None, b"batch"), ("file", "a", line("a", TEXT, {"prompt": PROMPT, "max_tokens": 1}).encode())]))
        BODIES["/v1/batches"]["input_file_id"] = json.loads(body)["id"]

    @classmethod
    def tearDownClass(cls):
        for connection in cls.connections:
            connection.close()
        for server in (cls.server, cls.ranker):
            code, said = server.stop()
            assert code == 0, (code, said)

    def ask(self, method, path, body=None):
        """Over one connection to each server: there are more than a thousand requests."""
        connection = self.connections[path in RANKS]
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}

    def operations(self):
        for path, item in self.document["paths"].items():
            for method in ("get", "post", "delete"):
                if method in item:
                    yield method.upper(), path, item[method]

    def whole(self, schema):
        """The schema with the document's components, as a validator."""
        return jsonschema.Draft202012Validator({**schema, "components": self.document["components"]})

    def schemas(self):
        for _, path, operation in self.operations():
            for status, answer in operation["responses"].items():
                for kind in answer.get("content", {}).values():
                    yield f"{path} {status}", kind["schema"]
            for kind in operation.get("requestBody", {"content": {}})["content"].values():
                yield path, kind["schema"]

    def test_document(self):
        self.assertEqual(self.document["openapi"], "3.1.0")
        names = [operation["operationId"] for _, _, operation in self.operations()]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreater(len(names), 20)
        for name, schema in self.document["components"]["schemas"].items():
            jsonschema.Draft202012Validator.check_schema(schema)
        for name, schema in self.schemas():
            with self.subTest(name=name):
                jsonschema.Draft202012Validator.check_schema(schema)
                self.whole(schema).is_valid({})  # a reference that leads nowhere raises

    def test_by_a_validator_of_its_own(self):
        """Of tests/apps/clients.txt; where that is installed, this runs in it."""
        if "RUNNEL_CLIENTS" not in os.environ:
            self.skipTest("there are no clients (scripts/setup)")
        import openapi_spec_validator
        openapi_spec_validator.validate(self.document)

    def test_what_is_said_of_fields_is_of_fields(self):
        """Names in openapi.json's own part about bodies are those that bodies are read by."""
        for entry in json.loads((common.ROOT / "apps/serve/openapi.json").read_text())["x-bodies"]:
            for path in entry["paths"]:
                schema = self.document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
                for name in entry.get("properties", {}):
                    self.assertIn(name, schema["properties"], path)
        self.assertFalse([name for name in self.document["components"]["schemas"] if name.startswith("x-")])

    def judge(self, operation, status, body, headers):
        self.assertIn(str(status), operation["responses"])
        kinds = operation["responses"][str(status)]["content"]
        kind = headers["content-type"].split(";")[0]
        self.assertIn(kind, kinds)
        self.whole(kinds[kind]["schema"]).validate(json.loads(body) if kind.endswith("json") else body.decode())

    def test_answers(self):
        for method, path, operation in self.operations():
            path = path.replace("{name}", GAPS)
            body = json.dumps(BODIES.get(path, {})) if method == "POST" else None
            with self.subTest(path=path, method=method):
                status, answer, headers = self.ask(method, path, body)
                if path in BODIES or (method == "GET" and "/files/" not in path and "/batches/" not in path):
                    self.assertEqual(status, 200, answer)
                self.judge(operation, status, answer, headers)

    def test_what_is_forbidden_is_refused(self):
        judged = 0
        for method, path, operation in self.operations():
            if method != "POST" or path not in BODIES:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            self.whole(schema).validate(BODIES[path])
            for name in schema.get("required", []):
                body = {key: value for key, value in BODIES[path].items() if key != name}
                status, answer, headers = self.ask("POST", path, json.dumps(body))
                self.assertEqual(status, 400, (path, name, answer))
            for name, part in schema["properties"].items():
                for value in WRONG:
                    if self.whole(part).is_valid(value):
                        continue
                    with self.subTest(path=path, name=name, value=value):
                        status, answer, headers = self.ask("POST", path,
                                                                  json.dumps({**BODIES[path], name: value}))
                        self.assertEqual(status, 400, answer)
                        self.judge(operation, status, answer, headers)
                        self.assertIn(name, answer.decode())
                        judged += 1
        self.assertGreater(judged, 800)

    def test_null_is_nothing(self):
        for method, path, operation in self.operations():
            if method != "POST" or path not in BODIES:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            nothing = {name: None for name in schema["properties"] if name not in schema["required"]}
            with self.subTest(path=path):
                status, answer, _ = self.ask("POST", path, json.dumps({**nothing, **BODIES[path]}))
                self.assertEqual(status, 200, answer)

    def test_methods(self):
        for _, path, _ in self.operations():
            path = path.replace("{name}", GAPS)
            status, _, headers = self.ask("PATCH", path)
            self.assertEqual(status, 405)
            allowed = headers["allow"].split(", ")
            listed = [m for m, p, _ in self.operations() if p.replace("{name}", GAPS) == path]
            self.assertEqual(sorted(set(allowed) - {"HEAD"}), sorted(listed))

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("first-key\n")
            keys.flush()
            server = Server("--api-key-file", keys.name)
        document = json.loads(server.get("/openapi.json", Authorization="Bearer first-key")[1])
        for path, item in document["paths"].items():
            for method in item.keys() & {"get", "post", "delete"}:
                status, _, _ = server.ask(method.upper(), path.replace("{name}", GAPS))
                self.assertEqual(status == 401, "security" in item[method], path)
                self.assertEqual("401" in item[method]["responses"], "security" in item[method], path)
        server.stop()


if __name__ == "__main__":
    common.main("__main__")
