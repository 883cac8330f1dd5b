"""Listens on loopback here, and passes what connects to the same port inside a network namespace: `entrance.py NAMESPACE PORT`."""

import asyncio
import ctypes
import signal
import socket
import sys

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, until its end."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def serve(listener: socket.socket, port: int) -> None:
    # asyncio itself keeps no reference to a task that waits for bytes: it could be collected as garbage.
    tasks = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(pass_on(reader, inner_writer), pass_on(inner_reader, writer))
        writer.close()
        inner_writer.close()

    async with await asyncio.start_server(connected, sock=listener):
        print("listening", flush=True)
        await asyncio.Event().wait()


def main(namespace: str, port: int) -> None:
    """The listener stays where it was made; connections are made where the process is."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    with open(namespace) as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    asyncio.run(serve(listener, port))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
