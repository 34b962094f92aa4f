#!/usr/bin/env python3
"""Random schemas and random instances: the grammar has an instance if and only if python3-jsonschema accepts it.

    schema_instances.py DRIVER [SCHEMAS [SEED [INSTANCES]]]

DRIVER: schema_driver.c, built. The grammar wants the names of an object in an order of its own, so an instance is
spelled with its names in every order, and one spelling must be accepted; where these are too many it is left out.
Without python3-jsonschema it ends with 77: skipped."""
import copy
import decimal
import itertools
import json
import random
import subprocess
import sys

import schema_random

SPELLINGS_MOST = 60
STRINGS = ["", "a", "b", "ab", "abc", "x1", "x9", "12", "ba", "a\u00e9", "b\n\"", "0123", "2020-01-31", "12:30:00Z",
           "a@b.de", "10.0.0.1", "::1", "P1D", "/a/b", "aaaaaaa"]
NUMBERS = [0, 1, -1, 2, 3, 4, 5, 7, -3, -20, 10, 12, 14, 21, 70, 99, 100, 1234, 0.5, 1.5, 7.25, -0.5, 0.1, 0.25, 2.5,
           1.1, 2.2, 0.01, 9007199254740991, 9007199254740993]


def spell_number(value):
    number = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
    return str(int(number)) if number == number.to_integral_value() else format(number.normalize(), "f")


def some_of(lists):
    return itertools.islice(itertools.product(*lists), SPELLINGS_MOST)


def spellings(value):
    """All, or SPELLINGS_MOST of them."""
    made = []
    if isinstance(value, dict):
        for order in itertools.permutations(value.items()):
            members = [[f"{json.dumps(name, ensure_ascii=False)}:{text}" for text in spellings(item)]
                       for name, item in order]
            made += ["{" + ",".join(each) + "}" for each in some_of(members)]
            if len(made) >= SPELLINGS_MOST:
                break
    elif isinstance(value, list):
        made = ["[" + ",".join(each) + "]" for each in some_of([spellings(item) for item in value])]
    elif isinstance(value, (str, bool)) or value is None:
        made = [json.dumps(value, ensure_ascii=False)]
    else:
        made = [spell_number(value)]
    return made[:SPELLINGS_MOST]


def any_value(rng, depth):
    kind = rng.randrange(9)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind < 5 or depth == 0:
        return rng.choice([None, True, False]) if rng.random() < 0.4 else rng.choice(STRINGS)
    if kind < 7:
        return [any_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {name: any_value(rng, depth - 1) for name in rng.sample(schema_random.NAMES, rng.randrange(4))}


def guess_number(rng, schema):
    bounds = [schema[key] for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if key in schema]
    number = rng.choice(NUMBERS)
    if bounds and rng.random() < 0.8:
        number = rng.choice(bounds) + rng.choice([0, 0, 1, -1, 2, 5, 0.5])
    if "multipleOf" in schema and rng.random() < 0.8:
        unit = decimal.Decimal(str(schema["multipleOf"]))
        number = decimal.Decimal(str(number)) // unit * unit
    elif schema.get("type") == "integer" and rng.random() < 0.9:
        number = int(number)
    return number


def guess_array(rng, schema, root, depth):
    items = []
    for i in range(rng.choice([schema.get("minItems", 0), schema.get("maxItems", 2), rng.randrange(4)])):
        first = schema.get("prefixItems", [])
        item = first[i] if i < len(first) else schema.get("items", {})
        if "contains" in schema and rng.random() < 0.4:
            item = schema["contains"]
        items.append(guess(rng, item, root, depth - 1))
    return items


def guess_object(rng, schema, root, depth):
    listed = schema.get("properties", {})
    names = set(schema.get("required", []) if rng.random() < 0.92 else [])
    names |= {name for name in listed if rng.random() < 0.5}
    if rng.random() < 0.25:
        names.add(rng.choice(schema_random.NAMES + ["zz", "abc", "x5"]))
    others = schema.get("additionalProperties", {})
    return {name: guess(rng, listed.get(name, others), root, depth - 1) for name in sorted(names)[:4]}


def guess(rng, schema, root, depth):
    """A value that the schema may well allow."""
    if not isinstance(schema, dict) or depth <= 0 or rng.random() < 0.06:
        return any_value(rng, 1)
    if "$ref" in schema and rng.random() < 0.9:
        goal = root
        for name in schema["$ref"].split("/")[1:]:
            goal = goal[name]
        return guess(rng, goal, root, depth - 1)
    for key in ("const", "enum"):
        if key in schema and rng.random() < 0.9:
            return copy.deepcopy(schema[key] if key == "const" else rng.choice(schema[key]))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema and rng.random() < 0.4:
            return guess(rng, rng.choice(schema[key]), root, depth)
    kind = schema.get("type") or rng.choice(["null", "boolean", "integer", "number", "string", "array", "object"])
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind in ("integer", "number"):
        return guess_number(rng, schema)
    if kind == "string":
        letters = "".join(rng.choice("abcx0129\u00e9\"") for _ in range(rng.randrange(8)))
        return rng.choice(STRINGS) if rng.random() < 0.5 else letters
    if kind == "array":
        return guess_array(rng, schema, root, depth)
    if kind == "object":
        return guess_object(rng, schema, root, depth)
    return None if kind == "null" else rng.random() < 0.5


def compare(schema, instances, line, counts):
    validator, at = schema_random.validator_of(schema), 0
    for texts in instances:
        accepted = "1" in line[at:at + len(texts)]
        valid = validator.is_valid(json.loads(texts[0], parse_float=schema_random.exact))
        counts["valid" if valid else "invalid"] += 1
        if accepted != valid:
            counts["wrong"] += 1
            print(f"{json.dumps(schema)}\n  {texts[0]}\n  {'rejected, but valid' if valid else 'accepted'}")
        at += len(texts)
    assert at == len(line), line


def main():
    given = [int(text) for text in sys.argv[2:]] + [600, 1, 20][len(sys.argv) - 2:]
    rng, cases, lines = random.Random(given[1]), [], []
    for _ in range(given[0]):
        schema = schema_random.some_schema(rng, 2)
        if isinstance(schema, dict):
            schema["$defs"] = schema_random.definitions(rng)
        instances = [spellings(guess(rng, schema, schema, 3)) for _ in range(given[2])]
        instances = [texts for texts in instances if len(texts) < SPELLINGS_MOST]
        cases.append((schema, instances))
        lines += [json.dumps(schema)] + [text for texts in instances for text in texts] + [""]
    made = subprocess.run([sys.argv[1], "judge"], input="\n".join(lines).encode() + b"\n", stdout=subprocess.PIPE,
                          check=True).stdout.decode().split("\n")
    counts = {"refused": 0, "valid": 0, "invalid": 0, "wrong": 0}
    for (schema, instances), line in zip(cases, made):
        if line.startswith("refused "):
            counts["refused"] += 1
        else:
            compare(schema, instances, line, counts)
    print(f"{given[0]} schemas: " + ", ".join(f"{n} {name}" for name, n in counts.items()))
    few = given[0] * given[2] // 5
    return counts["wrong"] != 0 or counts["valid"] < few or counts["invalid"] < few


if __name__ == "__main__":
    sys.exit(main())
