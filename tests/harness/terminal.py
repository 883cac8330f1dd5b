"""Our programs at a pseudo-terminal: what a person sees, and what their keyboard sends. Pipes hide faults."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import evidence
from machine import PATIENCE, clean_env, until

STEERING = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    """The text without colours and movements of the cursor."""
    return STEERING.sub("", text)


class Terminal:
    """One program at a terminal of so many columns. `written` is everything that it has sent to the screen."""

    def __init__(self, *command, columns: int = 80, rows: int = 40, env: dict | None = None, cwd=None):
        command = [str(part) for part in command]
        quiet = {k: v for k, v in clean_env().items() if k not in ("ENLIST_LOG", "NO_COLOR", "COLUMNS", "LINES")}
        environment = {**quiet, "TERM": "xterm-256color", **(env or {})}
        self.written, self.code, self.columns = "", None, columns
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            try:
                # Before the program starts: it asks for the size once.
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                if cwd:
                    os.chdir(cwd)
                os.execvpe(command[0], command, environment)
            finally:
                os._exit(127)
        evidence.note_arguments(self.pid)

    def read(self) -> str:
        """Takes what has been written since, without waiting for more than a moment."""
        while self.screen is not None and select.select([self.screen], [], [], 0.02)[0]:
            try:
                data = os.read(self.screen, 65536)
            except OSError:  # the other side is closed
                data = b""
            if not data:
                os.close(self.screen)
                self.screen = None
                break
            self.written += data.decode(errors="replace")
        return self.written

    def until(self, text: str, patience: float = PATIENCE) -> str:
        """Waits until `text` stands on the screen, colours aside."""
        try:
            until(lambda: text in plain(self.read()), f"{text!r} was shown", patience)
        except AssertionError as error:
            raise AssertionError(f"{error}; shown was:\n{plain(self.written)}") from None
        return plain(self.written)

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal sends it."""
        self.type("\x03")

    def end(self, patience: float = PATIENCE) -> int:
        """Waits for the program's end: its exit code, or minus the signal that ended it."""
        deadline = time.monotonic() + patience
        while self.code is None:
            self.read()
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"it did not end; shown was:\n{plain(self.written)}")
            else:
                time.sleep(0.02)
        self.read()
        return self.code

    def lines(self) -> list[str]:
        """What is on the screen, a line each, without colours; a line drawn over itself counts as last drawn."""
        text = plain(self.written).replace("\r\n", "\n")
        return [line.rsplit("\r", 1)[-1] for line in text.split("\n")]

    def too_wide(self) -> list[str]:
        """The lines that a terminal of this width would have wrapped."""
        return [line for line in self.lines() if len(line) > self.columns]

    def close(self) -> None:
        if self.code is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        if self.screen is not None:
            os.close(self.screen)
            self.screen = None

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def shown(*command, columns: int = 80, env: dict | None = None, code: int = 0, cwd=None) -> Terminal:
    """Runs a command to its end at a terminal, and expects this exit code."""
    with Terminal(*command, columns=columns, env=env, cwd=cwd) as terminal:
        assert terminal.end() == code, f"exit {terminal.code}:\n{plain(terminal.written)}"
        return terminal
