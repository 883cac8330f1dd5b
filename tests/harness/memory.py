"""What the memory of a process holds: private keys as the server's crypto library keeps them. Needs root."""

import base64
import re
import struct

from certs import ec
from machine import missing

ORDER_WORDS = 4
STATIC = 2
HEAD = struct.Struct("<QiiII")
"""A number of aws-lc that lies directly behind its head: pointer, width, width, sign, flags."""
CHUNK = 1 << 24


def regions(pid: int):
    """The writable memory of a process, piece by piece."""
    with open(f"/proc/{pid}/maps") as maps:
        lines = [line.split() for line in maps]
    try:
        memory = open(f"/proc/{pid}/mem", "rb", buffering=0)
    except PermissionError:
        missing("root, to read the memory of a process")
    with memory:
        for line in lines:
            if not line[1].startswith("rw") or (len(line) > 5 and line[5].startswith("[v")):
                continue
            begin, end = (int(part, 16) for part in line[0].split("-"))
            for at in range(begin, end, CHUNK):
                try:
                    memory.seek(at)
                    yield at, memory.read(min(CHUNK, end - at))
                except OSError:
                    break  # gone since, or never touched


def scalars(pid: int):
    """Every 256-bit secret number: its head points at what follows it."""
    shape = re.compile(re.escape(struct.pack("<iiII", ORDER_WORDS, ORDER_WORDS, 0, STATIC)))
    for base, data in regions(pid):
        for found in shape.finditer(data):
            at = found.start() - 8
            if at < 0 or at % 8 or at + HEAD.size + 32 > len(data):
                continue
            if HEAD.unpack_from(data, at)[0] == base + at + HEAD.size:
                yield data[at + HEAD.size : at + HEAD.size + 32]


def private_key(pid: int, certificate):
    """The key that belongs to this certificate, if the process holds it."""
    wanted = certificate.public_key().public_numbers()
    for raw in set(scalars(pid)):
        number = int.from_bytes(raw, "little")
        try:
            key = ec.derive_private_key(number, ec.SECP256R1())
        except ValueError:
            continue
        if key.public_key().public_numbers() == wanted:
            return key
    return None


def spellings(key) -> list[bytes]:
    """The secret number of a key as it might be written somewhere: in memory, in DER, in PEM, in hex."""
    number = key.private_numbers().private_value
    big, little = number.to_bytes(32, "big"), number.to_bytes(32, "little")
    # Base64 at each of its three places; what touches its neighbours is left out.
    inner = [base64.b64encode(bytes(shift) + big)[4:-4] for shift in range(3)]
    return [big, little, big.hex().encode(), little.hex().encode(), big.hex().upper().encode(), *inner]


def holds(path, secrets: list[bytes]) -> bool:
    """Whether a file holds one of these, in any place, in one line or broken into several."""
    data = path.read_bytes() if path.is_file() else b""
    return any(secret in text for text in (data, data.replace(b"\n", b"")) for secret in secrets)
