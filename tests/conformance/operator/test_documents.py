"""Each document from beginning to end, by its own command lines and calls: tests/documents/*.sh."""

import os
import subprocess

import pytest

from machine import BIN, ROOT, need

PATIENCE = 300


@pytest.mark.parametrize("document", ["plfm", "probectl", "taskrun", "gpuaas"])
def test_a_document_holds_from_beginning_to_end(programs, document):
    """A node is enrolled, renewed and revoked with nothing but what the document says.

    Proves PLFM-07, PLFM-08, PLFM-24, PLFM-26, PLFM-27, PROBE-02, PROBE-21, TASK-05, TASK-11, TASK-17,
    GPU-04, GPU-08, GPU-10, GPU-18, GPU-20, GPU-22, GPU-30.
    """
    for command in ("bash", "curl", "openssl", "python3"):
        need(command)
    script = ROOT / "tests" / "documents" / f"{document}.sh"
    environment = {**os.environ, "ENLIST_BIN_DIR": str(BIN)}
    process = subprocess.Popen(
        ["bash", str(script)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        # The script ends what it started when it is asked to end.
        process.terminate()
        said, _ = process.communicate()
    assert process.returncode == 0, said.decode(errors="replace")[-4000:]
    assert said.decode().rstrip().endswith("== done")
