#!/usr/bin/env python3
"""Prints a C file from the public headers: the members of each struct that has no table in runnel_fields.h, and every
constant (see field_rows.h).

    structs.py INCLUDE_FOLDER > structs.c
"""
import pathlib
import re
import sys

# Those of runnel_fields.h have their tables there; the candidates of a draw are C's alone.
APART = {"runnel_request", "runnel_samplers", "runnel_chat", "runnel_grammar", "runnel_candidates"}
ALSO = ["runnel_usage", "runnel_timings", "runnel_adapter"]  # without struct_size


def headers(folder):
    return [path for path in sorted(folder.glob("runnel*.h")) if path.name not in ("runnel_fields.h", "runnel_uv.h")]


def structs(text):
    sized = re.findall(r"typedef struct (\w+) \{\s*size_t struct_size;", text)
    return [name for name in sized if name not in APART] + ALSO


def source(folder):
    text = "\n".join(path.read_text() for path in headers(folder))
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def members(text, name):
    body = re.search(r"typedef struct %s \{(.*?)\n\} %s;" % (name, name), text, flags=re.S)
    if body is None:
        sys.exit("structs.py: the headers have no struct " + name)
    found = []
    for declaration in body.group(1).split(";"):
        for part in declaration.split(","):
            member = re.search(r"(\w+)\s*(\[[^]]*\])?\s*$", part.strip())
            if member and not member.group(1).startswith(("reserved", "struct_size")):
                found.append(member.group(1))
    return found


def constants(text):
    found = re.findall(r"^#define (RUNNEL_[A-Z0-9_]+) +\(?-?[0-9]", text, flags=re.M)
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", text, flags=re.S):
        found += re.findall(r"\b(RUNNEL_[A-Z0-9_]+)\b(?!\()", body)
    for name, rows in re.findall(r"#define RUNNEL_(\w+)_MAP\(X\)((?:.*\\\n)*.*\n)", text):
        prefix = "" if name == "STATUS" else name + "_"
        found += ["RUNNEL_" + prefix + row for row in re.findall(r"X\((\w+), -?\d+", rows)]
    kept = [name for name in found if not name.endswith(("_MAX_", "_MAP", "_ENUM"))]
    return list(dict.fromkeys(kept))


def main():
    text = source(pathlib.Path(sys.argv[1]))
    print("/* Made by bindings/node/native/structs.py. */")
    for path in headers(pathlib.Path(sys.argv[1])):
        print("#include <%s>" % path.name)
    print('\n#include "field_rows.h"\n')
    for name in structs(text):
        print("static const struct field of_%s[] = {" % name)
        for member in members(text, name):
            print("    FIELD(%s, %s)," % (name, member))
        print("    {0}};")
    print("const struct field_table header_tables[] = {")
    for name in structs(text):
        print('    {"%s", of_%s},' % (name, name))
    print("    {0}};\nconst struct field_constant header_constants[] = {")
    for name in constants(text):
        print('    {"%s", %s},' % (name.removeprefix("RUNNEL_"), name))
    print("    {0}};")


main()
