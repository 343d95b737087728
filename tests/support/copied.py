"""`panda-mdp` in processes that start at once.

Importing what a server needs takes ten times as long as starting one. Here one process imports it,
and each command is a copy of that process, which has its own output, environment, exit code and
death like any other.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import connection, context, forkserver
from pathlib import Path
from typing import IO, Any

ORIGINAL = "import copied; copied.wait_for_orders()()"
MOST_BYTES = 1 << 20
_WAY: list[socket.socket] = []


class Copied:
    """A command that runs; what of `subprocess.Popen` is used here."""

    def __init__(
        self,
        args: list[str],
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> None:
        """Descriptors stay the caller's to close."""
        self.args = args
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self._watcher, theirs = socket.socketpair()
        order = {"args": args, "environment": dict(os.environ), "folder": str(Path.cwd())}
        with theirs:
            descriptors = array.array("i", [theirs.fileno(), stdin, stdout, stderr])
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
            _original().sendmsg([json.dumps(order).encode()], [rights])
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

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

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
    with Path(os.devnull).open("rb") as nothing:
        command = Copied(args, nothing.fileno(), writes, stderr.fileno())
    os.close(writes)
    command.stdout = os.fdopen(reads, encoding="utf-8")
    return command


def run(
    args: list[str], folder: Path, stdin: bytes = b"", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; what it reads and says passes through files in a folder."""
    given, said, complained = (folder / name for name in ("stdin", "stdout", "stderr"))
    given.write_bytes(stdin)
    with given.open("rb") as reads, said.open("wb") as out, complained.open("wb") as err:
        code = Copied(args, reads.fileno(), out.fileno(), err.fileno()).wait(timeout)
    return subprocess.CompletedProcess(args, code, said.read_text(), complained.read_text())


def _original() -> socket.socket:
    """The way to the process that is copied; it ends when the first to ask for it does."""
    if _WAY:
        return _WAY[0]
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    ways = ours.fileno(), theirs.fileno()
    support = str(Path(__file__).parent)
    path = os.pathsep.join(part for part in (support, os.environ.get("PYTHONPATH")) if part)
    process = subprocess.Popen(
        [sys.executable, "-c", ORIGINAL, *map(str, ways)],
        stdin=subprocess.PIPE,
        # Ours as well: servers start their workers by it.
        pass_fds=ways,
        env=os.environ | {"PYTHONPATH": path},
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    _WAY.append(ours)
    return ours


def wait_for_orders() -> Callable[[], None]:
    """In the original: returns in each copy, with what that is to do, and nowhere else."""
    import scipy.sparse.csgraph
    import scipy.spatial  # noqa: F401
    import uvicorn  # noqa: F401

    import panda_mdp.cli
    import panda_mdp.protocol.server.app  # noqa: F401

    starts, orders = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    starts.set_inheritable(False)
    # Or each copy would look through all of it.
    gc.collect()
    gc.freeze()
    while True:
        if sys.stdin in select.select([orders, sys.stdin], [], [])[0]:
            sys.exit()
        order, rights, _, _ = orders.recvmsg(MOST_BYTES, socket.CMSG_SPACE(16))
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        descriptors = array.array("i", rights[0][2])
        if not os.fork():
            orders.close()
            return _become(json.loads(order), starts, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(
    order: dict[str, Any], starts: socket.socket, watcher: int, *streams: int
) -> Callable[[], None]:
    """Returns in the command's own process; this one stays behind to say how it ended."""
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        os.write(watcher, struct.pack("i", pid))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            os.write(watcher, struct.pack("i", os.waitstatus_to_exitcode(status)))
        os._exit(0)
    os.close(watcher)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv[1:] = order["args"]
    _copy_workers(starts)
    entry: Callable[[], None] = sys.modules["panda_mdp.cli"].main
    return entry


def _copy_workers(starts: socket.socket) -> None:
    """Give a server workers that are copies too.

    What is spawned imports everything anew. The process that is forked here has imported it, and no
    thread runs in it yet; its copies get their work pickled as spawned ones do. All end with the
    server, however that ends.
    """
    listener = socket.socket(socket.AF_UNIX)
    address = connection.arbitrary_address("AF_UNIX")
    listener.bind(address)
    listener.listen()
    ends, lives = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(lives)
        starts.close()
        forkserver.main(listener.fileno(), ends, [])
        os._exit(0)
    os.close(ends)
    listener.close()
    known: Any = forkserver._forkserver  # type: ignore[attr-defined]
    known._forkserver_address = address
    known._forkserver_alive_fd = lives
    known._forkserver_pid = pid
    contexts: Any = context._concrete_contexts  # type: ignore[attr-defined]
    contexts["spawn"] = contexts["forkserver"]
