"""A reporter uploads 400 MB as a table, six times at once; the server's memory is watched.

python benchmarks/attacks/large_bodies.py
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from stage import deployed

SIZE, TIMES = 400 << 20, 6


def memory_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def upload(host: str, port: int, token: str, answers: list[str]) -> None:
    head = (
        f"POST /v1/tables/x HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/octet-stream\r\ncontent-length: {SIZE}\r\n\r\n"
    )
    with socket.create_connection((host, port), timeout=60) as sock:
        sent = 0
        try:
            sock.sendall(head.encode())
            piece = b"x" * (1 << 20)
            while sent < SIZE:
                sock.sendall(piece)
                sent += len(piece)
            answers.append(sock.recv(64).split(b"\r\n")[0].decode())
        except OSError:
            try:
                answers.append(sock.recv(64).split(b"\r\n")[0].decode() or "closed")
            except OSError:
                answers.append(f"closed after {sent >> 20} MB")


def main() -> None:
    running = deployed()
    try:
        (reporter,) = running.reporters(1)
        token = reporter.headers["authorization"].removeprefix("Bearer ")
        where = urlsplit(running.url)
        pid = running.process.pid if running.process else 0
        before, answers = memory_mb(pid), list[str]()
        target = (where.hostname or "", where.port or 0, token, answers)
        threads = [threading.Thread(target=upload, args=target) for _ in range(TIMES)]
        for thread in threads:
            thread.start()
        most = before
        while any(thread.is_alive() for thread in threads):
            most = max(most, memory_mb(pid))
            time.sleep(0.02)
        print(f"memory: {before:.0f} MB before, {most:.0f} MB at most; answers: {answers}")
    finally:
        running.stop()


if __name__ == "__main__":
    main()
