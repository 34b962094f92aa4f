"""The program on a pseudo-terminal."""
import os
import pty
import select
import signal
import tempfile
import termios
import time

import common

CTRL_C, CTRL_D = b"\x03", b"\x04"

state = tempfile.TemporaryDirectory()  # for the history of what was typed: not the one of who runs the tests


class Terminal:
    """The program as the leader of a session on a new terminal."""

    def __init__(self, *args, columns=80, env=None):
        self.seen = b""
        self.at = 0  # what lies before it has been waited for
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            common.set_columns(0, columns)
            env = {**({**os.environ, "XDG_STATE_HOME": state.name} if env is None else env), "TERM": "xterm"}
            os.execve(common.program, [common.program, *map(str, args)], env)
        while not self.is_program():
            time.sleep(0.001)  # a Ctrl-C would be this test's own child's

    def is_program(self):
        try:
            return os.path.samefile(f"/proc/{self.pid}/exe", common.program)
        except FileNotFoundError:  # it has ended
            return True

    def type(self, text):
        os.write(self.fd, text)

    def read_some(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            more = os.read(self.fd, 65536)
        except OSError:  # the program has ended
            more = b""
        self.seen += more
        return bool(more)

    def wait_for(self, text, seconds=common.PATIENCE):
        """Until `text` has come behind what was waited for last; what lay between."""
        end = time.monotonic() + seconds
        while self.seen.find(text, self.at) < 0:
            left = end - time.monotonic()
            if left <= 0 or not self.read_some(left):
                raise AssertionError(f"{text!r} did not come: {self.seen[self.at:]!r}")
        begin, self.at = self.at, self.seen.find(text, self.at) + len(text)
        return self.seen[begin:self.at]

    def wait_for_prompt(self):
        """The editor takes over the terminal just after it has shown its prompt: a Ctrl-D before would be lost."""
        self.wait_for(b"> ")
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            time.sleep(0.001)

    def end(self):
        while self.read_some(common.PATIENCE):
            continue
        until = time.monotonic() + common.PATIENCE
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.001)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def need_terminals():
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError as error:  # a bare chroot has no devpts
        common.skip(f"no pseudo-terminal can be opened: {error}")
