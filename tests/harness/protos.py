"""Modules from the .proto files, by grpcio's own compiler."""

import importlib
import pathlib
import sys

from machine import PROTO, missing, scratch

try:
    import grpc_tools
    from grpc_tools import protoc
except ImportError:
    missing("grpcio with grpcio-tools")


OWN = pathlib.Path(__file__).resolve().parent / "proto"
"""Protocols that the tests have written down for themselves, where others define them."""


def compiled(file: str, root: pathlib.Path = PROTO) -> tuple:
    """The messages and the services of a file such as `enlist/agent/v1/agent.proto`."""
    place = scratch("proto")
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    flags = [f"-I{root}", f"-I{well_known}", f"--python_out={place}", f"--grpc_python_out={place}", str(root / file)]
    assert protoc.main(["protoc", *flags]) == 0
    sys.path.insert(0, str(place))
    name = file.removesuffix(".proto").replace("/", ".")
    return importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")
