"""The pages: their links lead somewhere, what they name is there, and what their marked commands print is what they show.

A block that begins with ```console run is executed, in the order of the page, in a folder that looks like the repository:

    $ COMMAND        is run by bash and must succeed, unless the next command is `echo $?`
    > MORE           continues it
    anything else    is what it prints, standard error too; a line `...` stands for any number of lines

Lines must be as shown but for white space. In a block marked ```console run, numbers vary numbers may be others: times that were
measured, errors that depend on the processor.
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
README = SOURCE / "README.md"
PAGES = sorted([README, SOURCE / "CONTRIBUTING.md", *(SOURCE / "docs").glob("*.md")])

FENCE = re.compile(r"^```")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
OF_THE_TREE = re.compile(r"(src|include|tests|scripts|bench|models|docs)/[\w./-]*")
NUMBER = re.compile(r"\d[\d,.]*(e[+-]?\d+)?( ?(us|ms|s|B|KiB|MiB|GiB)\b)?")
RULE = re.compile(r"^[\s-]+$")


def split(page):
    """The blocks of a page, as (line, info, lines), and its text without them."""
    blocks, text, block = [], [], None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(line):
            if block is None:
                block = (number, line[3:].strip(), [])
            else:
                blocks.append(block)
                block = None
            text.append("")
        elif block is None:
            text.append(line)
        else:
            block[2].append(line)
            text.append("")
    assert block is None, f"{page.name}:{block[0]}: the block does not end"
    return blocks, text


def anchor(heading):
    words = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(page):
    return {anchor(line.lstrip("#")) for line in split(page)[1] if line.startswith("#")}


def broken_links(page):
    for number, line in enumerate(split(page)[1], 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, place = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            if not linked.exists():
                yield f"{page.name}:{number}: there is no {target}"
            elif place and place not in anchors(linked):
                yield f"{page.name}:{number}: {linked.name} has no heading #{place}"


def missing_files(page):
    """Files and folders of the repository that the text names."""
    for number, line in enumerate(split(page)[1], 1):
        for code in CODE.findall(line):
            word = code.split()[0]  # what follows a command may be a target of the build
            if OF_THE_TREE.fullmatch(word) and not any(SOURCE.glob(word.rstrip("/") + "*" * word.endswith("."))):
                yield f"{page.name}:{number}: there is no {word}"


def beginnings(page):
    """A page begins with its title and a paragraph, which says what it is for."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line]
    if not lines[0].startswith("# "):
        yield f"{page.name}: does not begin with a title"
    elif not re.match(r"\w[^|#]{40}", lines[1]):
        yield f"{page.name}: its title is not followed by what the page is for"


def sentences(page):
    paragraphs = "\n".join("" if line.startswith(("|", "#")) else line for line in split(page)[1]).split("\n\n")
    for paragraph in paragraphs:
        for sentence in re.split(r"(?<=[.:]) ", " ".join(paragraph.split())):
            if len(sentence) > 100:
                yield sentence


def repetitions():
    seen = {}
    for page in PAGES:
        for sentence in sentences(page):
            other = seen.setdefault(sentence, page)
            if other != page:
                yield f"{page.name} and {other.name} both say: {sentence}"


def unreachable():
    linked, pending = {README}, [README]
    while pending:
        page = pending.pop()
        for target in LINK.findall("\n".join(split(page)[1])):
            path = (page.parent / target.partition("#")[0]).resolve()
            if path.suffix == ".md" and path.exists() and path not in linked:
                linked.add(path)
                pending.append(path)
    return [f"{page.name}: no page links to it" for page in PAGES if page not in linked]


def commands(block):
    """Pairs of a command and the lines that it prints."""
    number, _, lines = block
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append([line[2:], []])
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0] += "\n" + line[2:]
        else:
            assert found, f"line {number}: the block begins with no command"
            found[-1][1].append(line)
    return found


def comparable(line, numbers_vary):
    line = " ".join(line.split())
    if numbers_vary and RULE.match(line):
        return "-"
    return NUMBER.sub("N", line) if numbers_vary else line


def is_shown(shown, printed):
    """Whether `printed` is what `shown` says, in which `...` is any number of lines."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(is_shown(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and is_shown(shown[1:], printed[1:])


def execute(command, folder, before):
    """`before`: the exit code of the command before, for `echo $?`."""
    script = f"(exit {before})\n{command}\n"
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, [line for line in done.stdout.splitlines() if line.strip()]


def run_block(page, block, folder):
    vary = "numbers vary" in block[1]
    pairs = commands(block)
    code = 0
    for i, (command, shown) in enumerate(pairs):
        code, printed = execute(command, folder, code)
        where = f"{page.name}:{block[0]}: $ {command}\n"
        if code != 0 and not (i + 1 < len(pairs) and pairs[i + 1][0] == "echo $?"):
            yield where + f"exit code {code}\n" + "\n".join(printed)
            return
        wanted = [comparable(line, vary) for line in shown if line.strip()]
        found = [comparable(line, vary) for line in printed]
        if not is_shown(wanted, found):
            yield where + "\n".join(difflib.unified_diff(wanted, found, "shown", "printed", lineterm="", n=1))


def lay_out(folder):
    """The repository as commands see it, where they may write."""
    for name in ("models", "tests", "bench", "docs", ".deps"):
        (folder / name).symlink_to(SOURCE / name)
    (folder / "build").symlink_to(os.environ["AUTOPAR_BUILD"])
    (folder / "scripts").mkdir()
    for script in (SOURCE / "scripts").iterdir():
        if script.name != "autopar":
            (folder / "scripts" / script.name).symlink_to(script)
    program = folder / "scripts" / "autopar"  # built already
    program.write_text(f'#!/bin/sh\nexec "{os.environ["AUTOPAR"]}" "$@"\n')
    program.chmod(0o755)


def check_the_checker():
    assert anchor("`cluster.json`") == "clusterjson" and anchor("Bound and gap") == "bound-and-gap"
    assert is_shown(["a", "...", "c"], ["a", "b", "b", "c"]) and is_shown(["...", "c"], ["c"])
    assert not is_shown(["a"], ["a", "b"]) and not is_shown(["...", "c"], ["c", "d"]) and not is_shown(["a"], [])
    assert comparable("a  1.5e-07 us", True) == comparable("a 23 s", True) != comparable("b 23 s", True)
    assert commands((1, "", ["$ a", "> b", "c"])) == [["a\nb", ["c"]]]
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.md"
        page.write_text("# Page\n\n[a](b.md) [c](#d) [e](#page) `src/nothing.cpp`\n", encoding="utf-8")
        assert len(list(broken_links(page))) == 2 and len(list(missing_files(page))) == 1 and len(list(beginnings(page))) == 1
        wrong = (1, "run", ["$ echo 1", "2"]), (1, "run", ["$ false"]), (1, "run", ["$ echo 1"])
        assert all(len(list(run_block(page, block, folder))) == 1 for block in wrong)
        right = (1, "run", ["$ false", "$ echo $?", "1"]), (1, "run, numbers vary", ["$ echo 1", "2"])
        assert not any(list(run_block(page, block, folder)) for block in right)


def main():
    check_the_checker()
    errors = [*repetitions(), *unreachable()]
    executed = 0
    for page in PAGES:
        errors += [*broken_links(page), *missing_files(page), *beginnings(page)]
        with tempfile.TemporaryDirectory() as folder:
            lay_out(pathlib.Path(folder))
            for block in split(page)[0]:
                if block[1].startswith("console run"):
                    errors += run_block(page, block, folder)
                    executed += len(commands(block))
    print("\n\n".join(errors) or f"{len(PAGES)} pages, {executed} commands")
    return 1 if errors or executed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
