"""pytest, watched: a run that hangs tells where its threads are, also behind the last test, and ends. The time is
below that of ctest. Where all that ran passed and some test was skipped, it ends with 77: ctest says that, too.

    run.py [--needs MODULE] ...     77 where there is no such module: ctest takes that as skipped
"""

import faulthandler
import importlib
import os
import sys

WATCHED_S = 1200


def missing(module):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return True
    return False


class Skips:
    """Whether a test was skipped."""

    seen = False

    def pytest_runtest_logreport(self, report):
        self.seen |= report.skipped and not hasattr(report, "wasxfail")

    def pytest_collectreport(self, report):
        self.seen |= report.skipped


if __name__ == "__main__":
    while sys.argv[1:2] == ["--needs"]:
        if missing(sys.argv[2]):
            print(f"There is no module {sys.argv[2]}: scripts/setup installs it, or pip does")
            sys.exit(77)
        del sys.argv[1:3]
    import pytest

    told = os.fdopen(os.dup(2), "w")  # pytest takes descriptor 2 for itself
    faulthandler.dump_traceback_later(WATCHED_S, exit=True, file=told)
    skips = Skips()
    status = pytest.main(sys.argv[1:], plugins=[skips])
    sys.exit(77 if status == 0 and skips.seen else status)
