"""Checks that a module includes only modules that it may use, third-party headers only where they belong, that no two types share a name,
and that unnamed namespaces of a module do not clash (its files are compiled as one, see src/meson.build).

A module's code is src/<module>/ and include/autopar/<module>.hpp (and the headers in HEADER_OF). It may include the modules in its row below, what those
may include, and itself.
"""
import os
import pathlib
import re
import sys

MAY_USE = {
    "support": [],
    "json": ["support"],
    "step": ["support"],
    "pipeline": ["step"],
    "ir": ["support"],
    "mesh": ["support"],
    "layout": ["ir", "mesh"],
    "ops": ["ir", "layout"],
    "grad": ["ops"],
    "recompute": ["ops"],
    "comm": ["layout", "mesh"],
    "strategy": ["ops", "comm"],
    "stages": ["strategy"],
    "solve": ["support"],
    "cost": ["strategy", "solve"],
    "mindspore": ["cost"],
    "cost_models": ["mindspore"],
    "search": ["cost_models", "solve"],
    "partition": ["strategy", "step"],
    "exec": ["partition"],
    "io": ["json", "ir", "mesh", "layout", "ops", "grad", "comm", "strategy", "cost", "search",
           "partition"],
    "weights": ["json", "partition", "io"],
    "report": ["json", "cost", "search"],
    "frameworks": ["json"],
    "planning": ["json", "grad", "recompute", "stages", "pipeline", "search", "io", "weights", "report"],
    "cli": ["planning", "partition", "exec", "frameworks"],
}

# Modules that only these may include, whatever they build on.
ONLY_FOR = {"mindspore": {"cost_models"}}

# Public headers that are not named like their module.
HEADER_OF = {"fit": "cost", "profile_file": "io", "kernels": "cost", "streams": "cost", "step_events": "cost", "profile": "mesh", "sha256": "support", "allowance": "support", "pattern": "support", "errors": "support", "builder": "ir", "gradient": "ops", "memory": "strategy", "problem": "solve", "hub_ops": "search", "phase_ops": "search", "import": "io", "export": "io", "files": "io", "npz": "io", "unfinished": "io", "program_bytes": "io", "step_file": "io", "file_facts": "io", "strategy_lines": "io", "rank_plans": "weights", "iopddl": "io", "timeline": "exec", "calibrate": "exec", "machine": "exec", "given_weights": "weights", "training_roles": "io", "memory_parts": "report", "phases": "strategy", "rebatch": "strategy", "copies": "partition"}

# Header prefix -> the modules that may include it.
THIRD_PARTY = {
    "google/protobuf/": {"io"},
    "onnx/": {"io"},
    "onnxruntime": {"exec"},
    "mpi.h": {"exec"},
    "nlohmann/": {"json", "io", "weights", "report", "frameworks", "planning", "cli"},
    "zip.h": {"io"},
    "unzip.h": {"io"},
    "CLI/": {"cli"},
    "spdlog/": {"planning", "cli"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def closure(module):
    reachable, pending = {module}, list(MAY_USE[module])
    while pending:
        used = pending.pop()
        if used not in reachable:
            reachable.add(used)
            pending += MAY_USE[used]
    return reachable


def module_of(path):
    """The module that a path such as autopar/ir.hpp, src/ir/x.hpp or ir/x.hpp belongs to; None if it names none."""
    parts = pathlib.PurePosixPath(path).parts
    if len(parts) == 2 and parts[0] == "autopar":
        stem = pathlib.PurePosixPath(parts[1]).stem
        return HEADER_OF.get(stem, stem)
    return parts[0] if len(parts) > 1 and parts[0] in MAY_USE else None


def errors_of(module, name, text):
    for match in INCLUDE.finditer(text):
        header = match[1] or match[2]
        where = f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        for prefix, owners in THIRD_PARTY.items():
            if header.startswith(prefix) and module not in owners:
                yield f"{where}: {module} may not include <{header}>; only {', '.join(sorted(owners))} may"
        used = module_of(header)
        if used is not None and used not in closure(module):
            yield f"{where}: {module} may not include {used} ({header}); it may use {', '.join(sorted(closure(module)))}"
        if used in ONLY_FOR and module != used and module not in ONLY_FOR[used]:
            yield f"{where}: {module} may not include {used} ({header}); only {', '.join(sorted(ONLY_FOR[used]))} may"


TYPE = re.compile(r"(?:template <.*> ?)?(?:struct|class|enum class) (\w+)(?: final)?(?: :.*)?(?: \{.*)?$")


def types_of(text):
    """The types that a file defines in named namespaces, with the innermost namespace."""
    spaces = []
    for line in text.splitlines():
        if line.startswith("namespace"):
            spaces.append(line.strip(" {"))
        elif line.startswith("}  // namespace"):
            spaces.pop()
        elif spaces and "namespace" not in spaces and (found := TYPE.match(line)):
            yield spaces[-1].removeprefix("namespace ") + "::" + found[1]


def twice_defined(files):
    """Two types of one name in one program are undefined behaviour that no compiler tells."""
    first = {}
    for name, text in files:
        for defined in types_of(text):
            if first.setdefault(defined, name) != name:
                yield f"{name}: {defined} is defined in {first[defined]} too; in a program a name is one type"


ALIAS = re.compile(r"using (?:(\w+) = (.*)|((?:\w+::)+(\w+)));$")
VARIABLE = re.compile(r"(?:inline |static )*(?:constexpr|const) [^()=]*?(\w+)(?:\[\w*\])?(?: =.*|\{.*|;)?$")
FUNCTION = re.compile(r"(?:(?:constexpr|inline|static) )*[\w:][\w:<>,&* ]*[ &*>](\w+)\((.*)$")

# Compiled alone, see src/meson.build.
ALONE = {"src/exec/mpi/mpi_shim.cpp"}


def parameter_types(text):
    """The types in a list of parameters, as far as its closing bracket."""
    types, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "(<{[") - (letter in ")>}]")
        if depth < 0 or (depth == 0 and letter == ","):
            types.append(re.sub(r"(?<=[&*> ])\w+$", "", text[start:i].split(" = ")[0].strip()).strip())
            start = i + 1
        if depth < 0:
            break
    return ", ".join(types)


def hidden_names(text):
    """What a file defines at the top of its unnamed namespaces: its full name, of a function with the types that it takes, and what an alias is of."""
    spaces, lines = [], text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("namespace") and line.endswith("{"):
            spaces.append(line.removeprefix("namespace").strip(" {"))
        elif line.startswith("}  // namespace"):
            spaces.pop()
        elif spaces and spaces[-1] == "":
            name = alias_of = None
            if found := TYPE.match(line) or VARIABLE.match(line):
                name = found[1]
            elif found := ALIAS.match(line):
                name, alias_of = found[1] or found[4], found[2] or found[3]
            elif found := FUNCTION.match(line):
                rest = " ".join([found[2]] + [more.strip() for more in lines[i + 1:i + 8]])
                name = f"{found[1]}({parameter_types(rest)})"
            if name is not None:
                yield "::".join(spaces[:-1] + [name]), alias_of


def clashes(files):
    """Names for which files of a module cannot be compiled as one. What a `using namespace` brings is left to the compiler."""
    types = {defined: name for name, text in files for defined in types_of(text)}
    first = {}
    for name, text in files:
        module = module_of(name.split("/", 1)[1])
        if module == "cli" or name in ALONE:
            continue
        for hidden, alias_of in hidden_names(text):
            other, other_alias = first.setdefault((module, hidden), (name, alias_of))
            if other != name and (alias_of is None or alias_of != other_alias):
                yield f"{name}: {hidden} is in an unnamed namespace of {other} too; files of a module are compiled as one under the sanitisers: share it in a header, or give it another name"
            elif hidden in types and module_of(types[hidden].split("/", 1)[1]) in closure(module):
                yield f"{name}: {hidden} is a type of {types[hidden]} too; files of a module are compiled as one under the sanitisers: give it another name"


def check_the_checker():
    def refused(module, include):
        return bool(list(errors_of(module, "x", f"#include {include}\n")))

    one, other = "namespace a {\nstruct S {\n};\n}  // namespace a\n", "namespace a {\nnamespace {\nstruct S {\n};\n}  // namespace\n}  // namespace a\n"
    assert list(twice_defined([("x", one), ("y", one)])) and not list(twice_defined([("x", one), ("y", other)]))
    assert not list(twice_defined([("x", one), ("y", one.replace(" {\n};", ";")), ("z", one.replace("struct S", "struct S::T"))]))

    def clash(one, other, module="io"):
        files = [(f"src/{module}/{name}.cpp", f"namespace a {{\nnamespace {{\n{text}\n}}  // namespace\n}}  // namespace a\n") for name, text in (("x", one), ("y", other))]
        return bool(list(clashes(files)))

    assert clash("constexpr int kA = 1;", "constexpr double kA = 2;") and not clash("constexpr int kA = 1;", "constexpr int kB = 1;")
    assert clash("struct S {\n};", "class S {\n};") and not clash("struct S {\n};", "struct S {\n};", "cli")
    assert clash("int f(int a,\n      B* b) {", "int f(int c, B* d) { return 1; }") and not clash("int f(int a) {", "int f(double a) {")
    assert clash("using J = x::j;", "using J = x::k;") and not clash("using J = x::j;", "using J = x::j;")
    assert clash("using x::kA;", "using y::kA;") and list(clashes([("src/ir/x.hpp", one), ("src/ops/x.cpp", other)]))
    assert not list(clashes([("src/ops/x.hpp", one), ("src/ir/x.cpp", other)]))

    assert refused("layout", '"autopar/ops.hpp"') and refused("partition", '"cost/model.hpp"')
    assert refused("search", '"autopar/mindspore.hpp"') and refused("cost", '"mindspore/ops.hpp"')
    assert not refused("cost_models", '"autopar/mindspore.hpp"') and not refused("mindspore", '"mindspore/ops.hpp"')
    assert refused("report", '"autopar/io.hpp"') and refused("ir", "<onnx/onnx_pb.h>")
    assert not refused("cost", '"autopar/ir.hpp"') and not refused("io", "<onnx/onnx_pb.h>")
    assert not refused("ops", '"ops/table.hpp"') and not refused("exec", "<onnxruntime_cxx_api.h>")


def main():
    check_the_checker()
    root = pathlib.Path(os.environ["AUTOPAR_SOURCE"])
    errors, files = [], []
    for folder in (root / "src", root / "include"):
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".hpp", ".cpp", ".h", ".inc")):
            module = module_of(path.relative_to(folder).as_posix())
            name = path.relative_to(root).as_posix()
            if name.startswith("src/pch/"):  # precompiled headers are of no module
                continue
            if module not in MAY_USE:
                errors.append(f"{name}: belongs to no module; the modules are {', '.join(MAY_USE)}")
            else:
                files.append((name, path.read_text(encoding="utf-8")))
                errors += errors_of(module, *files[-1])
    errors += twice_defined(files)
    errors += clashes(files)
    print("\n".join(errors) or f"{len(files)} files, every include is allowed, every type has a name of its own, no names clash within a module")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main())
