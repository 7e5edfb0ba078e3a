"""The manual is made from the options: docs/manual.md is in step, the man page is troff, nothing that the program reads is left out."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

AUTOPAR = os.environ["AUTOPAR"]
SOURCE = pathlib.Path(os.environ["AUTOPAR_SOURCE"])


def output(*args):
    done = subprocess.run([AUTOPAR, *args], capture_output=True, text=True)
    assert done.returncode == 0, f"{args}: exit {done.returncode}\n{done.stderr}"
    return done.stdout


def commands():
    listed = output("--help").split("Commands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z-]+) ", listed, re.MULTILINE)


def options_of(command):
    """Those of its --help: the lines that begin with one."""
    return {name for line in re.findall(r"^  (-[^ ,]*(?:, --[^ ]*)?)", output(command, "--help"), re.MULTILINE) for name in line.split(", ")}


def test_the_page_is_in_step():
    written = (SOURCE / "docs" / "manual.md").read_text()
    assert written == output("manual", "--format", "markdown"), "docs/manual.md: run scripts/make_manual"


def test_every_option_is_in_the_manual():
    page, man = output("manual", "--format", "markdown"), output("manual")
    assert len(commands()) > 10
    for command in commands():
        part = page.split(f"\n## autopar {command}\n")[1].split("\n## ")[0]
        options = options_of(command)
        assert {"--help", "--quiet", "--verbose"} <= options, (command, options)
        for option in options:
            assert re.search(rf"^- `(-., )?{option}[ `,]", part, re.MULTILINE), (command, option)
            assert option.replace("-", "\\-") in man, (command, option)


def test_every_variable_is_in_the_manual():
    """Names of environment variables stand in the code as whole words of text."""
    page = output("manual", "--format", "markdown")
    names = set()
    for path in (SOURCE / "src").rglob("*.cpp"):
        if path.name not in ("environment.cpp",):
            names |= set(re.findall(r'"(AUTOPAR_[A-Z_]+)"', path.read_text()))
    assert len(names) >= 7, names
    for name in names:
        assert f"\n- `{name}`: " in page, f"{name} is read by the program and is not in src/cli/environment.cpp"


def test_help_is_readable():
    for command in commands():
        text = output(command, "--help")
        assert max(map(len, text.splitlines())) <= 100, command
        assert text.startswith(f"autopar {command}: ") and f"Usage: autopar {command}" in text
    groups = re.findall(r"^([A-Z][\w ]*):$", output("search", "--help"), re.MULTILINE)
    assert groups == ["What to read", "Layout", "Search", "Output", "Training", "Common"], groups


def test_the_man_page_is_troff():
    man = output("manual")
    assert man.startswith(".TH AUTOPAR 1 ") and ".SH ENVIRONMENT" in man and ".SH EXIT STATUS" in man
    assert "`" not in man
    requests = set(re.findall(r"^\.(\S*)", man, re.MULTILINE))
    assert requests == {"TH", "SH", "SS", "TP", "B", "nf", "fi", "sp"}, requests
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=man, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr


def main():
    for test in [f for name, f in sorted(globals().items()) if name.startswith("test_")]:
        test()
        print("ok", test.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
