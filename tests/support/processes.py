"""Processes that tests start. They end with the test, whichever way it ends."""
import ctypes
import os
import signal
import subprocess

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)  # here: nothing is to be loaded between fork and exec


def popen(command, preexec_fn=None, **options):
    """subprocess.Popen of a process that is killed when the thread that called this ends."""
    parent = os.getpid()

    def prepare():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before that
            os._exit(1)
        if preexec_fn is not None:
            preexec_fn()

    return subprocess.Popen(command, preexec_fn=prepare, **options)
