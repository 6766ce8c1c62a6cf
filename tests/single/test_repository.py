"""Rules about the repository as a whole: sizes, what documents name, cost of import, directions."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import DOCUMENTS, FENCE, ROOT, project_files

SOURCE_SUFFIXES = {".py", ".cpp", ".hpp", ".h", ".cu", ".cuh", ".pyx"}
LINE_LIMIT = 450

# Layers of the Python package from the bottom up. A file may import its own layer and lower ones.
PYTHON_LAYERS = (
    (
        "errors",
        "choices",
        "config",
        "environment",
        "log",
        "trace",
        "timeline",
        "layer_graph",
        "_core",
    ),
    ("buffers", "checks", "work"),
    ("collectives", "point_to_point", "objects", "grid", "communicator", "bootstrap", "launch"),
    ("datasets", "memory", "tensorflow", "torch", "models", "progress"),
    ("hyparflow",),
    ("verify", "plots", "bench"),
    ("cli",),
)
FRAMEWORKS = {"tensorflow", "keras", "torch"}
# Where a framework may be imported at all; anywhere else it is asked for through an adapter.
FRAMEWORK_FOLDERS = ("tensorflow", "torch", "models", "verify")
# Folders of csrc from the bottom up, with the same rule for #include.
CXX_LAYERS = (("core",), ("transport", "reduce"), ("collectives",), ("runtime",))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_source_files_are_short() -> None:
    sizes = {
        relative(path): len(path.read_text().splitlines())
        for path in project_files()
        if path.suffix in SOURCE_SUFFIXES
    }
    assert sizes, "no source file found"
    too_long = {name: lines for name, lines in sizes.items() if lines > LINE_LIMIT}
    assert not too_long, f"more than {LINE_LIMIT} lines; which second idea is in there? {too_long}"


def expand_braces(text: str) -> list[str]:
    """``a/{b,c}/d`` → ``a/b/d``, ``a/c/d``."""
    match = re.search(r"\{([^{}]*)\}", text)
    if match is None:
        return [text]
    heads = (text[: match.start()] + part + text[match.end() :] for part in match[1].split(","))
    return list(itertools.chain.from_iterable(expand_braces(head) for head in heads))


def named_paths(text: str) -> Iterator[str]:
    """Yield what looks like a path of the project in backticks, links and code blocks."""
    pieces = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    pieces += [body for _, body in FENCE.findall(text)]
    pieces += re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    path = re.compile(r"(?<![\w/.{<$-])[\w.{},/-]*[\w}]/?(?![\w/])")
    suffix = re.compile(r"\.(py|pyi|cpp|hpp|cu|md|toml|ya?ml)$")
    tops = re.compile(r"(\./)?(\.ci|bench|bindings|csrc|docs|examples|hpcomm|tests|tools)/")
    for token in itertools.chain.from_iterable(path.findall(piece) for piece in pieces):
        for name in expand_braces(token):
            if suffix.search(name) or tops.match(name):
                yield name.removeprefix("./").rstrip("/")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: relative(path))
def test_paths_named_in_documents_exist(document: Path) -> None:
    known = {"/" + relative(path) for path in project_files()}
    known |= {
        "/" + relative(parent)
        for path in project_files()
        for parent in path.parents
        if parent.is_relative_to(ROOT)
    }
    # `my_…` is what the reader writes; `hpcomm/cli` and such are found as the end of a known path.
    missing = [
        name
        for name in named_paths(document.read_text())
        if not name.rpartition("/")[2].startswith("my_")
        and not any(path.endswith("/" + name.removeprefix("../")) for path in known)
    ]
    assert not missing, f"{document.name} names what does not exist: {missing}"


def test_a_missing_path_would_be_found() -> None:
    text = "see `csrc/no/such.cpp`, `nothing.py`, [x](docs/gone.md), `hpcomm/{a,b}.py`, `a.b`"
    assert list(named_paths(text)) == [
        "csrc/no/such.cpp",
        "nothing.py",
        "hpcomm/a.py",
        "hpcomm/b.py",
        "docs/gone.md",
    ]


def test_architecture_stays_two_pages() -> None:
    words = len((ROOT / "ARCHITECTURE.md").read_text().split())
    assert words <= 1300, f"ARCHITECTURE.md has {words} words; two pages hold about 1300"


IMPORT_PROBE = """
import json, os, sys, time
import numpy  # its BLAS starts threads of its own
threads_before = len(os.listdir("/proc/self/task"))
modules_before = set(sys.modules)
begin = time.process_time()
import hpcomm
seconds = time.process_time() - begin
heavy = {"mpi4py.MPI", "tensorflow", "keras", "torch", "matplotlib", "sklearn", "scipy", "jax"}
print(json.dumps({
    "seconds": seconds,
    "threads": len(os.listdir("/proc/self/task")) - threads_before,
    "heavy": sorted(heavy & (set(sys.modules) - modules_before)),
}))
"""


def test_import_is_light() -> None:
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", IMPORT_PROBE], check=True, capture_output=True, timeout=60
            ).stdout
        )
        for _ in range(3)
    ]
    assert runs[0]["heavy"] == []
    assert runs[0]["threads"] == 0
    # Processor time of the best of three: what the import costs, not what else the machine does.
    assert min(run["seconds"] for run in runs) < 0.3


def dynamic_section() -> str:
    spec = importlib.util.find_spec("hpcomm._core")
    assert spec is not None
    assert spec.origin is not None
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf (binutils) is not installed")
    command = [readelf, "-d", "-W", spec.origin]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_extension_needs_only_the_system() -> None:
    section = dynamic_section()
    needed = set(re.findall(r"NEEDED\).*\[(.*?)\]", section))
    allowed = re.compile(r"(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux.*)$")
    assert needed, section
    assert not [name for name in needed if not allowed.match(name)]


def test_extension_holds_no_search_path() -> None:
    assert not re.findall(r"\((?:RPATH|RUNPATH)\).*", dynamic_section())


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (absolute module name, whether only for type checking) for every import of a file."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    tree = ast.parse(path.read_text())
    guarded = {
        node
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.dump(test.test)
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in guarded
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module or "").split("."))).strip(".")
            if module == "hpcomm":
                for alias in node.names:
                    yield f"hpcomm.{alias.name}", node in guarded
            else:
                yield module, node in guarded


def layer_of(module: str) -> int | None:
    """Return the layer of ``hpcomm.<name>…``, None for the package itself and unlisted names."""
    name = module.split(".")[1] if "." in module else ""
    return next((i for i, names in enumerate(PYTHON_LAYERS) if name in names), None)


def python_files() -> list[Path]:
    return sorted(path for path in (ROOT / "hpcomm").rglob("*.py") if "build" not in path.parts)


def test_every_module_has_a_layer() -> None:
    modules = {
        path.relative_to(ROOT / "hpcomm").parts[0].removesuffix(".py") for path in python_files()
    }
    unknown = modules - {name for names in PYTHON_LAYERS for name in names}
    assert unknown <= {"__init__", "__main__"}, f"add to PYTHON_LAYERS: {sorted(unknown)}"


def test_python_dependencies_run_one_way() -> None:
    wrong = []
    for path in python_files():
        own_module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        own = layer_of(own_module)
        for module, only_types in imports(path):
            other = layer_of(module) if module.startswith("hpcomm.") else None
            if own is not None and other is not None and other > own and not only_types:
                wrong.append(f"{relative(path)} imports {module}")
    assert not wrong


def test_frameworks_are_imported_only_by_their_adapters() -> None:
    wrong = []
    for path in python_files():
        folder = path.relative_to(ROOT / "hpcomm").parts[0]
        for module, only_types in imports(path):
            framework = module.split(".")[0]
            if framework not in FRAMEWORKS or only_types:
                continue
            crossed = folder in FRAMEWORKS and {folder, framework} in (
                {"tensorflow", "torch"},
                {"torch", "keras"},
            )
            if folder not in FRAMEWORK_FOLDERS or crossed:
                wrong.append(f"{relative(path)} imports {module}")
    assert not wrong


def test_adapters_do_not_import_each_other() -> None:
    wrong = [
        f"{relative(path)} imports {module}"
        for here, there in (("tensorflow", "torch"), ("torch", "tensorflow"))
        for path in (ROOT / "hpcomm" / here).rglob("*.py")
        for module, _ in imports(path)
        if module.startswith(f"hpcomm.{there}")
    ]
    assert not wrong


def test_mpi_is_imported_only_when_a_group_is_made() -> None:
    wrong = []
    for path in python_files():
        if "bootstrap" in path.parts:
            continue
        wrong += [relative(path) for module, _ in imports(path) if module.startswith("mpi4py.MPI")]
    assert not wrong, f"mpi4py.MPI belongs to hpcomm/bootstrap: {wrong}"


def test_cxx_includes_run_one_way() -> None:
    level = {name: i for i, names in enumerate(CXX_LAYERS) for name in names}
    wrong = []
    for path in (ROOT / "csrc").rglob("*.?pp"):
        own = path.relative_to(ROOT / "csrc").parts[0]
        assert own in level, f"add csrc/{own} to CXX_LAYERS"
        for include in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            folder = include.split("/")[0]
            if level.get(folder, -1) > level[own]:
                wrong.append(f"{relative(path)} includes {include}")
        if re.search(r"^#include <mpi", path.read_text(), re.MULTILINE):
            wrong.append(f"{relative(path)} includes MPI's header")
    assert not wrong
