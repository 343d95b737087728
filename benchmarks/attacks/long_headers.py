"""A header of 80 MB, and 50 connections whose headers never end; the server's work is watched.

python benchmarks/attacks/long_headers.py
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from stage import deployed


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    running = deployed()
    try:
        where = urlsplit(running.url)
        address = (where.hostname or "", where.port or 0)
        pid = running.process.pid if running.process else 0
        used, sent = processor_seconds(pid), 0
        with socket.create_connection(address, timeout=60) as sock:
            sock.sendall(b"GET /v1 HTTP/1.1\r\nhost: x\r\nx: ")
            try:
                while sent < 80 << 20:
                    sent += sock.send(b"a" * (1 << 20))
            except OSError:
                pass
        time.sleep(0.5)
        print(f"{sent / 1e6:.1f} of 80 MB sent; {processor_seconds(pid) - used:.2f} s of processor")
        idle = [socket.create_connection(address, timeout=60) for _ in range(50)]
        for sock in idle:
            sock.sendall(b"GET /v1 HTTP/1.1\r\nhost: x\r\nx-")
        began = time.monotonic()
        ended = sum(bool(sock.recv(64)) for sock in idle)
        print(f"{ended} of 50 endless headers were ended after {time.monotonic() - began:.0f} s")
    finally:
        running.stop()


if __name__ == "__main__":
    main()
