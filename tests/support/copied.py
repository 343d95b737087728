"""`panda-mdp` in processes that start at once.

Importing what a server needs takes ten times as long as starting one. Here one process imports it,
and each command is a copy of that process, which has its own output, environment, exit code and
death like any other.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import IO

ORIGINAL = """
import copied
copied.wait_for_orders()
from panda_mdp.cli import main
main()
"""


class Copied:
    """A command that runs; what of `subprocess.Popen` is used here."""

    def __init__(self, args: list[str], stdout: int, stderr: int) -> None:
        """`stdout` and `stderr` are descriptors, which are the caller's to close."""
        self.args = args
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self._watcher, theirs = socket.socketpair()
        order = {"args": args, "environment": dict(os.environ), "folder": str(Path.cwd())}
        body = json.dumps(order).encode()
        with theirs:
            original = _original()
            descriptors = array.array("i", [theirs.fileno(), stdout, stderr])
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
            original.sendmsg([struct.pack("I", len(body))], [rights])
            original.sendall(body)
        (self.pid,) = struct.unpack("i", self._watcher.recv(4))

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once there is one."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """To this command alone, and to nobody once it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._watcher], [], [], timeout)[0]:
            (self.returncode,) = struct.unpack("i", self._watcher.recv(4))
            self._watcher.close()
        return self.returncode


def start(args: list[str], stderr: IO[bytes]) -> Copied:
    """Start a command whose output can be read line by line."""
    reads, writes = os.pipe()
    try:
        command = Copied(args, writes, stderr.fileno())
    finally:
        os.close(writes)
    command.stdout = os.fdopen(reads, encoding="utf-8")
    return command


def run(args: list[str], folder: Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output passes through files in a folder."""
    paths = folder / "stdout", folder / "stderr"
    with paths[0].open("wb") as out, paths[1].open("wb") as err:
        code = Copied(args, out.fileno(), err.fileno()).wait(timeout)
    said, complained = (path.read_text(encoding="utf-8") for path in paths)
    return subprocess.CompletedProcess(args, code, said, complained)


@cache
def _original() -> socket.socket:
    """The way to the process that is copied; it ends when this one does."""
    ours, theirs = socket.socketpair()
    with theirs:
        support = str(Path(__file__).parent)
        path = os.pathsep.join(part for part in (support, os.environ.get("PYTHONPATH")) if part)
        process = subprocess.Popen(
            [sys.executable, "-c", ORIGINAL, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": path},
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def wait_for_orders() -> None:
    """In the original: returns in each copy, ready to be a command, and nowhere else."""
    import uvicorn  # noqa: F401

    import panda_mdp.cli
    import panda_mdp.protocol.server.app  # noqa: F401

    orders = socket.socket(fileno=int(sys.argv[1]))
    while True:
        size, rights, _, _ = orders.recvmsg(4, socket.CMSG_SPACE(12))
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not size:
            sys.exit()
        descriptors = array.array("i", rights[0][2])
        body = orders.recv(*struct.unpack("I", size), socket.MSG_WAITALL)
        if not os.fork():
            orders.close()
            _become(json.loads(body), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _become(order: dict[str, object], watcher: int, stdout: int, stderr: int) -> None:
    """Returns in the command's own process; this one stays behind to say how it ended."""
    pid = os.fork()
    if pid:
        os.close(stdout)
        os.close(stderr)
        os.write(watcher, struct.pack("i", pid))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _, status = os.waitpid(pid, 0)
        os.write(watcher, struct.pack("i", os.waitstatus_to_exitcode(status)))
        os._exit(0)
    os.close(watcher)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[call-overload]
    os.chdir(str(order["folder"]))
    sys.argv[1:] = order["args"]  # type: ignore[assignment]
