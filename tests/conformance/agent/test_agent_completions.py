"""The completion script of the agent, as bash runs it."""

import subprocess

import pytest

from machine import AGENT, run


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of these words, by the function that the script registers for the program."""
    drive = """
        source /dev/stdin
        words=("$@")
        function=$(complete -p enlist-agent | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        COMP_WORDS=("${words[@]}")
        COMP_CWORD=$((${#words[@]} - 1))
        "$function" enlist-agent "${words[COMP_CWORD]}" "${words[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    command = ["bash", "--norc", "-c", drive, "bash", *words]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60)
    assert not done.stderr, done
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("doctor", "--s"), {"--server", "--system-roots"}),
        (("enroll", "--token"), {"--token", "--token-file"}),
        (("status", "--j"), {"--json"}),
        (("completions", "ba"), {"bash"}),
        (("doc",), {"doctor"}),
        (("help", "reco"), {"reconcile", "recover"}),
    ],
)
def test_bash_completes_commands_and_their_flags(words, offered):
    """Of the program whose name has a dash: the flags of every command, and not only the commands."""
    script = run(AGENT, "completions", "bash").out
    assert set(completed(script, "enlist-agent", *words)) == offered
