"""pytest, watched: a run that hangs tells where its threads are, also behind the last test, and ends. The time is
below that of ctest."""

import faulthandler
import os
import sys

import pytest

WATCHED_S = 1200

if __name__ == "__main__":
    told = os.fdopen(os.dup(2), "w")  # pytest takes descriptor 2 for itself
    faulthandler.dump_traceback_later(WATCHED_S, exit=True, file=told)
    sys.exit(pytest.main(sys.argv[1:]))
