#!/usr/bin/env python3
"""Random schemas, random texts of their grammars: each text is JSON and valid by python3-jsonschema.

    schema_random.py DRIVER [SCHEMAS [SEED]]

DRIVER: schema_driver.c, built. Without python3-jsonschema it ends with 77: skipped."""
import decimal
import json
import random
import subprocess
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    sys.exit(77)

NAMES = ["a", "b", "kind", "x1", "x2", "\u00e9"]
PATTERNS = ["^a", "b$", "^[a-c]+$", "^x[0-9]$", "a|b", "\\d{2}", "[^\"a]"]


decimal.getcontext().prec = 1000


def exact(text):
    """A number as it is written: a double would round it."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of many digits
        return float(text)
    if abs(number.adjusted()) > 900:
        return float(text)
    return int(number) if number == number.to_integral_value() else number


def some_value(rng, depth=1):
    choices = [None, True, False, 0, 1, 2, 5, -3, 1.5, "", "a", "ab", "b\n\"", "\u00e9"]
    if depth > 0 and rng.random() < 0.2:
        return [some_value(rng, 0) for _ in range(rng.randrange(3))]
    if depth > 0 and rng.random() < 0.2:
        return {name: some_value(rng, 0) for name in rng.sample(NAMES, rng.randrange(3))}
    return rng.choice(choices)


def number_keywords(rng, schema):
    if rng.random() < 0.5:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = rng.choice([-20, -1, 0, 3, 0.5, 12])
    if rng.random() < 0.5:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = rng.choice([-1, 0, 4, 7.25, 100, 1234])
    if rng.random() < 0.3:
        schema["multipleOf"] = rng.choice([1, 2, 3, 7, 10])


def string_keywords(rng, schema):
    if rng.random() < 0.4:
        schema["minLength"] = rng.randrange(4)
    if rng.random() < 0.4:
        schema["maxLength"] = rng.randrange(2, 8)
    if rng.random() < 0.4:
        schema["pattern"] = rng.choice(PATTERNS)


def array_keywords(rng, schema, depth):
    if rng.random() < 0.7:
        schema["items"] = some_schema(rng, depth - 1)
    if rng.random() < 0.3:
        schema["prefixItems"] = [some_schema(rng, depth - 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.3:
        schema["minItems"] = rng.randrange(3)
    if rng.random() < 0.4:
        schema["maxItems"] = rng.randrange(1, 5)
    if rng.random() < 0.2:
        schema["contains"] = some_schema(rng, depth - 1)
        if rng.random() < 0.5:
            schema["maxContains"] = rng.randrange(1, 3)
    if rng.random() < 0.15:
        schema["uniqueItems"] = True


def object_keywords(rng, schema, depth):
    if rng.random() < 0.8:
        schema["properties"] = {name: some_schema(rng, depth - 1) for name in rng.sample(NAMES, rng.randrange(1, 4))}
    if rng.random() < 0.5:
        schema["required"] = rng.sample(NAMES, rng.randrange(1, 3))
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice([False, False, some_schema(rng, depth - 1)])
    if rng.random() < 0.2:
        schema["patternProperties"] = {rng.choice(PATTERNS): some_schema(rng, depth - 1)}
    if rng.random() < 0.1:
        schema["propertyNames"] = {"maxLength": 3}
    if rng.random() < 0.1:
        schema["maxProperties"] = rng.randrange(1, 4)
    if rng.random() < 0.1:
        schema["dependentRequired"] = {rng.choice(NAMES): [rng.choice(NAMES)]}


def some_schema(rng, depth):
    schema = {}
    if rng.random() < 0.05:
        return rng.random() < 0.9
    kinds = ["null", "boolean", "integer", "number", "string"] + (["array", "object", "object"] if depth > 0 else [])
    if rng.random() < 0.85:
        schema["type"] = rng.choice(kinds) if rng.random() < 0.8 else rng.sample(kinds[:5], 2)
    kind = schema.get("type")
    if rng.random() < 0.12:
        schema["enum"] = [some_value(rng) for _ in range(rng.randrange(1, 5))]
    if kind in ("integer", "number"):
        number_keywords(rng, schema)
    if kind == "string":
        string_keywords(rng, schema)
    if kind == "array":
        array_keywords(rng, schema, depth)
    if kind == "object":
        object_keywords(rng, schema, depth)
    if depth > 0 and rng.random() < 0.15:
        schema[rng.choice(["anyOf", "allOf", "oneOf"])] = [some_schema(rng, depth - 1) for _ in range(2)]
    if depth > 0 and rng.random() < 0.06:
        schema["not"] = some_schema(rng, 0)
    if depth > 0 and rng.random() < 0.06:
        schema.update({"if": some_schema(rng, 0), "then": some_schema(rng, 0), "else": some_schema(rng, 0)})
    if depth > 1 and rng.random() < 0.1:
        schema["$defs"] = {"d": some_schema(rng, 1)}
        schema.setdefault("properties", {})["r"] = {"$ref": "#/$defs/d"}
    return schema


def main():
    driver, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 600
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    schemas = [some_schema(rng, 2) for _ in range(count)]
    for schema in schemas:  # a reference is seen from the document's root
        if isinstance(schema, dict) and "$defs" not in schema:
            schema["$defs"] = {"d": {"type": "integer"}}
    lines = "".join(json.dumps(schema) + "\n" for schema in schemas)
    out = subprocess.run([driver, str(seed), "6"], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    answers = out.decode().split("\n")
    refused = texts = empty = wrong = at = 0
    for schema in schemas:
        validator, n = Draft202012Validator(schema), 0
        while answers[at] != "":
            text = answers[at]
            at += 1
            n += 1
            if text.startswith("refused "):
                refused += 1
                continue
            texts += 1
            problem = next(validator.iter_errors(json.loads(text, parse_float=exact)), None)
            if problem is not None:
                wrong += 1
                print(f"{json.dumps(schema)}\n  {text}\n  {problem.message}")
        at += 1
        empty += n == 0
    print(f"{count} schemas: {refused} refused, {empty} without a text, {texts} texts, {wrong} wrong")
    return wrong != 0 or texts < count or refused > count // 5


if __name__ == "__main__":
    sys.exit(main())
