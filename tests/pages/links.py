#!/usr/bin/env python3
"""Every link between the pages leads to a file that exists, and to a heading that the page has.

    tests/pages/links.py PAGE.md ...        paths from the current directory
"""
import os
import re
import sys


def anchor(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"[`*]", "", heading.lstrip("#").strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(page):
    fenced, found = False, set()
    with open(page, encoding="utf-8") as lines:
        for line in lines:
            fenced ^= line.startswith("```")
            if line.startswith("#") and not fenced:
                found.add(anchor(line))
    return found


def main(pages):
    broken = 0
    for page in pages:
        with open(page, encoding="utf-8") as file:
            links = re.findall(r"\]\(([^)\s]+)\)", file.read())
        for link in links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, at = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(target):
                print(f"{page}: {link}: there is no such file")
                broken += 1
            elif at and at not in headings(target):
                print(f"{page}: {link}: there is no such heading")
                broken += 1
    return broken > 0 or not pages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
