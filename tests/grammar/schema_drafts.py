#!/usr/bin/env python3
"""Schemas of drafts 3 and 4: the grammar has an instance if and only if python3-jsonschema's validator of that draft
accepts it.

    schema_drafts.py DRIVER

DRIVER: schema_driver.c, built. A schema that names no draft may be of any: there the validator is that of the only
draft in which what it says means something. Without python3-jsonschema 4.18 or later it ends with 77: skipped; older
ones take `id` for an address, and look for it in the network."""
import json
import subprocess
import sys

try:
    import jsonschema
    import referencing  # noqa: F401: since 4.18
except ImportError:
    sys.exit(77)

D3 = "http://json-schema.org/draft-03/schema#"
D4 = "http://json-schema.org/draft-04/schema#"
D7 = "http://json-schema.org/draft-07/schema#"
VALIDATORS = {D3: jsonschema.Draft3Validator, D4: jsonschema.Draft4Validator, D7: jsonschema.Draft7Validator}
INSTANCES = [None, True, 0, 1, 2, 3, 4.5, 9, -6, "", "a", "ab", "abc", [], [1], ["a"], {}, {"a": 1}, {"a": "x"},
             {"a": 4}, {"a": None}, {"a": {"a": 1}}, {"a": {"a": "x"}}]
STRING, NULL = {"type": "string"}, {"type": "null"}
NAMED = {"definitions": {"a": {"id": "#foo", "type": "string"}}}
FOLDERS = {"id": "http://x/root.json", "definitions": {"a": {"id": "sub/", "definitions": {
    "b": {"id": "leaf.json", "type": "null"}, "c": {"allOf": [{"$ref": "leaf.json"}]}}}}}

# The draft that $schema names (None: none), the draft whose validator judges, the schema: its instances are all those
# above.
CASES = [
    # id: a name within the document, and what references are seen from
    (D4, D4, {**NAMED, "allOf": [{"$ref": "#foo"}]}),
    (None, D4, {**NAMED, "allOf": [{"$ref": "#foo"}]}),
    (D3, D3, {**NAMED, "extends": {}, "properties": {"a": {"$ref": "#foo"}}}),
    (None, D4, {**NAMED, "properties": {"a": {"$ref": "#foo"}}}),
    (D4, D4, {**FOLDERS, "allOf": [{"$ref": "sub/leaf.json"}]}),
    (D4, D4, {**FOLDERS, "allOf": [{"$ref": "http://x/sub/leaf.json"}]}),
    (D4, D4, {**FOLDERS, "allOf": [{"$ref": "#/definitions/a/definitions/c"}]}),
    (D4, D4, {"id": "http://x/a", "definitions": {"b": STRING}, "allOf": [{"$ref": "#/definitions/b"}]}),
    (D4, D4, {"id": "http://x/a", "definitions": {"b": {"id": "c", "definitions": {"d": NULL}, "not": {
        "$ref": "#/definitions/d"}}}, "allOf": [{"$ref": "c"}]}),
    (D4, D4, {"id": "http://x/tree", "properties": {"a": {"anyOf": [NULL, {"$ref": "tree"}]}},
              "additionalProperties": False, "type": "object"}),
    (D4, D4, {"id": "http://x/", "definitions": {"foo": {"id": "http://y/foo", "type": "string"},
                                                  "bar": {"id": "foo", "type": "null"}},
              "allOf": [{"id": "http://y/", "$ref": "foo"}]}),  # beside $ref it says nothing
    # id: a note, where nothing refers to it, and a name of a property
    (None, D7, {"id": "tool", "properties": {"a": {"id": "other", "allOf": [{"$ref": "#/definitions/b"}]}},
                "definitions": {"b": STRING}}),
    (D7, D7, {"id": "tool", "properties": {"a": {"id": "#foo", "allOf": [{"$ref": "#/definitions/b"}]}},
              "definitions": {"b": STRING}}),
    (D4, D4, {"properties": {"id": STRING, "a": {"enum": [{"id": "#foo", "a": 1}, 1]}}}),
    (None, D7, {"id": 5, "type": "string"}),
    # divisibleBy: of draft 3 alone
    (D3, D3, {"divisibleBy": 3}),
    (None, D3, {"divisibleBy": 3}),
    (None, D3, {"type": "integer", "divisibleBy": 2, "minimum": 1}),
    (None, D3, {"properties": {"a": {"divisibleBy": 1.5}}}),
    (D4, D4, {"divisibleBy": 3}),
    (D4, D4, {"not": {"divisibleBy": 3}}),
    (D4, D4, {"multipleOf": 3, "divisibleBy": 2}),
    (D7, D7, {"divisibleBy": 3}),
    # "any": of draft 3 alone, and no type of another
    (D3, D3, {"type": "any"}),
    (None, D3, {"type": "any"}),
    (None, D3, {"type": ["string", "any"]}),
    (None, D3, {"properties": {"a": {"type": "any"}}}),
    # what was read before
    (D4, D4, {"type": "number", "minimum": 1, "exclusiveMinimum": True}),
    (D4, D4, {"items": [{"type": "integer"}], "additionalItems": False}),
]


def main():
    texts, lines, wrong = [json.dumps(value, separators=(",", ":")) for value in INSTANCES], [], 0
    for draft, _, schema in CASES:
        lines += [json.dumps({"$schema": draft, **schema} if draft else schema)] + texts + [""]
    made = subprocess.run([sys.argv[1], "judge"], input="\n".join(lines).encode() + b"\n", stdout=subprocess.PIPE,
                          check=True).stdout.decode().split("\n")
    seen = set()
    for (_, judge, schema), line in zip(CASES, made):
        valid = "".join("01"[VALIDATORS[judge](schema).is_valid(value)] for value in INSTANCES)
        seen |= set(valid)
        if line != valid:
            wrong += 1
            print(f"{json.dumps(schema)}\n  grammar  {line}\n  judged   {valid}")
    print(f"{len(CASES)} schemas, {wrong} wrong")
    return wrong != 0 or seen != {"0", "1"}


if __name__ == "__main__":
    sys.exit(main())
