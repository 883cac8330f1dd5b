"""Each document from beginning to end, by its own command lines and calls: tests/documents/*.sh. And our own pages: no
link leads nowhere."""

import os
import pathlib
import re
import subprocess
import urllib.parse

import pytest

from machine import BIN, ROOT, need

PATIENCE = 300


@pytest.mark.parametrize("document", ["plfm", "pact", "probectl", "taskrun", "gpuaas"])
def test_a_document_holds_from_beginning_to_end(programs, document):
    """A node is enrolled, renewed and revoked with nothing but what the document says.

    Proves PLFM-07, PLFM-08, PLFM-24, PLFM-26, PLFM-27, PACT-01, PACT-06, PACT-31, PACT-33, PROBE-02, PROBE-21, TASK-05, TASK-11, TASK-17,
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


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def prose(page: pathlib.Path) -> str:
    """Without what stands in code blocks and between backticks, where brackets are no links."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text())
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: pathlib.Path) -> set[str]:
    """What GitHub makes of the headings."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text())
    found: dict[str, int] = {}
    for heading in re.findall(r"(?m)^#{1,6} +(.*?) *$", text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if number == 0 else f"{slug}-{number}" for slug, last in found.items() for number in range(last + 1)}


def broken(page: pathlib.Path) -> list[str]:
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
        if not file.exists() or not file.is_relative_to(ROOT) or (anchor and anchor not in anchors(file)):
            found.append(f"{page.relative_to(ROOT)}: {target}")
    return found


def test_no_link_in_our_pages_leads_nowhere():
    """Relative links name files that are there, and headings that those have."""
    assert len(PAGES) > 50 and sum(prose(page).count("](") for page in PAGES) > 50
    assert [link for page in PAGES for link in broken(page)] == []


def test_every_page_can_be_reached_from_the_first():
    """From README.md, by links alone. The pages of errors are found by their folder."""
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if not re.match(r"[a-z]+:|#", target):
                file = (page.parent / target.partition("#")[0]).resolve()
                waiting += sorted(file.glob("*.md")) if file.is_dir() else [file]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in seen] == []


def reference() -> dict[str, set[str]]:
    """Every command of docs/cli.md with its flags; a flag with a value ends with a space."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"(?m)^##+ (?=enlist)", (ROOT / "docs" / "cli.md").read_text())[1:]:
        name, _, rest = section.partition("\n")
        flags = re.findall(r"(?m)^\| `(--[\w-]+)( ?[\[<])?", rest)
        found[name.strip()] = {flag + (" " if value else "") for flag, value in flags} | {"--help", "--version"}
    return found


def written(page: pathlib.Path) -> list[str]:
    """The command lines of our programs on a page: in blocks for the shell, and between backticks."""
    text = page.read_text()
    blocks = "\n".join(re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", text)).replace("\\\n", " ")
    lines = [re.sub(r"\s#.*", "", line).strip() for line in blocks.splitlines()]
    lines += [line.split("|", 1)[1].strip() for line in lines if re.match(r"echo .*\| enlist", line)]
    lines += [line.split(" -- ", 1)[1].strip() for line in lines if line.startswith("runuser ")]
    prose = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    return [line for line in lines if re.match(r"enlist(-agent)? ", line)]


def mistake(line: str, known: dict[str, set[str]]) -> str | None:
    """What the reference does not have of a command line."""
    program, *words = line.replace("\\|", "|").replace("[", " ").replace("]", " ").split()
    command, everywhere = program, known[program]
    words = iter(words)
    for word in words:
        if word == "--":
            # What follows is another program's.
            break
        if word.startswith("--"):
            flag = word.partition("=")[0]
            has = known[command] | everywhere
            if flag not in has and flag + " " not in has:
                return f"{command} has no {flag}"
            if flag not in has and "=" not in word:
                next(words, None)
        elif f"{command} {word}" in known:
            command = f"{command} {word}"
        elif any(name.startswith(f"{command} ") for name in known) and re.fullmatch(r"[a-z][a-z-]*", word):
            return f"there is no {command} {word}"
    return None


def test_every_command_on_our_pages_exists():
    """Each command line and each flag that a page names is in the reference, which is made from the programs."""
    known = reference()
    assert len(known) > 50 and "--ca-pin " in known["enlist-agent enroll"]
    assert mistake("enlist node revoke NODE --because stolen", known) and mistake("enlist nodes list", known)
    pages = [page for page in PAGES if page.name not in ("cli.md", "CHANGELOG.md")]
    lines = [(page, line) for page in pages for line in written(page)]
    assert len(lines) > 200
    wrong = [f"{page.relative_to(ROOT)}: `{line}`: {what}" for page, line in lines if (what := mistake(line, known))]
    assert wrong == []


def test_what_the_threat_model_names_is_there():
    """Each test that SECURITY.md names exists."""
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 20, named
    for file, test in named:
        text = (ROOT / "tests" / "conformance" / file).read_text()
        assert f"def {test}(" in text if test else text, f"{file}::{test}"


MISSING = re.compile(r"(?i)not there yet|no command for it yet|does not yet|not (?:supported|served|implemented|possible) yet")
"""How a page says that something does not exist."""


def said_missing() -> list[tuple[str, str]]:
    """Each sentence that says that something is missing, with the words in it that could be commands or flags."""
    found = []
    for page in (page for page in PAGES if page.name not in ("cli.md", "CHANGELOG.md")):
        text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text())
        # A heading is a sentence of its own.
        text = re.sub(r"(?m)^#+ .*$", r"A heading.", text)
        for sentence in re.split(r"(?<=[.;|])\s+(?=[A-Z|`-])", " ".join(text.split())):
            if MISSING.search(sentence):
                found += [(f"{page.relative_to(ROOT)}: {sentence[:120]}", word) for word in re.findall(r"`([^`]+)`", sentence)]
    return found


def test_no_command_is_said_to_be_missing_that_exists():
    """A sentence such as "Not there yet: `backup`", or "`node list` does not yet", names no command and no flag that the reference has."""
    known = reference()
    commands = {" ".join(name.split()[1:]) for name in known} | set(known)
    flags = {flag.strip() for flags in known.values() for flag in flags}
    said = said_missing()
    assert "backup" in [word for _, word in said], "the sentence of README.md is found"
    assert [(where, word) for where, word in said if word in commands or word in flags] == []


CONSTANT = re.compile(r"const (\w+): [\w:]+ =\s*(?:Span::|Duration::)?(?:from_)?(secs|minutes|hours|days)?\(?([\d_]+(?: \* [\d_]+)*)\)?;")
NUMBERS = {
    "too_many_certificates.md": [
        ("has {} certificates on record", "lifecycle/src/registry/certificate/renew.rs", "ON_RECORD"),
        ("or {} that nobody", "lifecycle/src/registry/certificate/renew.rs", "UNSEEN_BY_SVID"),
        ("For an operator the limit is {}", "lifecycle/src/registry/operator/renew.rs", "ON_RECORD"),
    ],
    "too_many_bootstraps.md": [("{} certificates", "lifecycle/src/registry/bootstrap/issue.rs", "MOST")],
    "bootstrap_ttl_invalid.md": [("at most {} days", "lifecycle/src/registry/bootstrap/issue.rs", "BOOTSTRAP_LONGEST")],
    "issuer_invalid.md": [("({} days)", "lifecycle/src/registry/issuer/publish.rs", "EPHEMERAL_LIFE")],
    "too_large.md": [
        ("any other | {} KiB", "server/src/edge/body.rs", "BODY_LIMIT"),
        ("the body {} KiB", "server/src/edge/body.rs", "DOCUMENT_LIMIT"),
        ("register | {} MiB", "server/src/edge/body.rs", "BATCH_LIMIT"),
        ("domain | {} bytes", "lifecycle/src/registry/vcluster/documents.rs", "DOCUMENT_MAX"),
    ],
    "too_many_issuers.md": [("{} of them at once", "lifecycle/src/registry/issuer/publish.rs", "TRUSTED")],
    "overloaded.md": [("A credential has {} requests", "server/src/edge/capacity.rs", "REQUESTS_EACH")],
}
"""What the pages of errors say in numbers, and the constant of the source that decides it."""


def constant(file: str, name: str) -> int:
    found = [match for match in CONSTANT.finditer((ROOT / "crates" / file).read_text()) if match.group(1) == name]
    assert len(found) == 1, f"{file} has no constant {name} that this test can read"
    product = 1
    for factor in found[0].group(3).split(" * "):
        product *= int(factor.replace("_", ""))
    return product


@pytest.mark.parametrize("page", NUMBERS)
def test_a_page_of_an_error_says_the_number_of_the_source(page):
    """In whichever unit the page has it."""
    text = " ".join((ROOT / "docs" / "errors" / page).read_text().split())
    for words, file, name in NUMBERS[page]:
        number = constant(file, name)
        number //= 1024 ** (words.count("KiB") + 2 * words.count("MiB"))
        assert words.format(number) in text or words.format(f"{number:,}") in text, f"{words.format(number)} ({name})"
