"""The data that all checkouts share: $RUNNEL_SHARED, or ../shared (shared.h)."""
import glob
import os
import sys

FOLDER = os.environ.get("RUNNEL_SHARED", "../shared")


def files(pattern):
    """The files there; an error where the folder is there and they are not. Without it, none, and that is said: who
    goes on ends with 77."""
    found = sorted(glob.glob(os.path.join(FOLDER, pattern)))
    if not found and os.path.isdir(os.path.join(FOLDER, "oracles")):
        sys.exit(f"{pattern} is missing, and {FOLDER} is there")
    if not found:
        print(f"skipped: there is no {pattern} in {FOLDER}")
    return found
