"""A process that holds one of pact's subscriptions and says nothing, as its agents do; a test may stop it with a signal.

    subscriber.py PORT CA CERT KEY NODE      prints `open`, a line for each change, and `ended STATUS`
"""

import pathlib
import subprocess
import sys

METHOD = "/pact.stream.BootConfigService/SubscribeConfigUpdates"


def main(port: str, authority: str, certificate: str, key: str, node: str) -> None:
    import grpc

    ca, cert, private = (pathlib.Path(file).read_bytes() for file in (authority, certificate, key))
    channel = grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(ca, private, cert))
    plain = {"request_serializer": bytes, "response_deserializer": bytes}
    # SubscribeRequest with its first field, node_id.
    updates = channel.unary_stream(METHOD, **plain)(b"\x0a" + bytes([len(node)]) + node.encode())
    updates.initial_metadata()
    print("open", flush=True)
    try:
        for update in updates:
            print(len(update), flush=True)
    except grpc.RpcError as error:
        print("ended", error.code().name, flush=True)


class Subscriber:
    """Such a process, for the time of a `with`."""

    def __init__(self, plane, machine):
        ca = plane.dir / "ca" / "bundle.pem"
        self.command = [sys.executable, __file__, plane.port, ca, *machine.files, machine.id]

    def __enter__(self) -> "Subscriber":
        self.process = subprocess.Popen([str(part) for part in self.command], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "open\n"
        return self

    def send(self, signal) -> None:
        self.process.send_signal(signal)

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
