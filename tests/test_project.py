"""The packaging says what the folders say."""

import ast
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import errors

from .syntax_trees import syntax_trees

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PARTS = ("isa", "hardware", "compiler", "sim", "runtime", "flows")
MAX_FILE = 1 << 20
"""Maximum number of bytes of a file in the repository."""


def test_every_package_folder_is_listed_and_nothing_else():
    folders = {"tilewright"}
    for part in (*PARTS, "examples"):
        for file in (ROOT / part).rglob("*.py"):
            folders.add(".".join(("tilewright", *file.parent.relative_to(ROOT).parts)))
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(folders)


def test_every_package_has_a_docstring_that_says_what_it_is_for():
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        path = ROOT.joinpath(*package.split(".")[1:], "__init__.py")
        assert path.is_file(), f"`{path}` is missing"
        assert path.read_text().startswith('"""'), f"`{path}` has no docstring"


def files_of(*folders: str) -> list[Path]:
    """Return the files of Python in the root and in folders."""
    return [*ROOT.glob("*.py"), *(file for one in folders for file in (ROOT / one).rglob("*.py"))]


FIRST_WORD = re.compile(r'(?:#.*\n|\s)*[rR]?"""\s*(\S+)')
"""The first word of a module's docstring; thousands of files are not parsed for it."""

QUESTIONS = ("How", "What", "Which", "Who", "Whether", "Where", "When", "Why")


def test_the_compiler_s_docstring_names_its_packages():
    text = (
        ast.get_docstring(ast.parse((ROOT / "compiler" / "__init__.py").read_text("utf-8"))) or ""
    )
    packages = {file.parent.name for file in (ROOT / "compiler").glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)`", text)) - {"compile"} == packages


def test_no_module_docstring_begins_with_a_question_word():
    """It names the contents of the file, as a noun or an imperative."""
    for file in files_of(*PARTS, "examples", "tests"):
        found = FIRST_WORD.match(file.read_text("utf-8"))
        assert not found or found[1] not in QUESTIONS, file


def test_nor_does_that_of_a_class_or_a_constant():
    for file, tree in syntax_trees(files_of(*PARTS, "examples")).items():
        for node in ast.walk(tree):
            body = getattr(node, "body", [])
            texts = [ast.get_docstring(node)] if isinstance(node, ast.ClassDef) else []
            for before, after in pairwise(body if isinstance(body, list) else []):
                if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                    texts.append(getattr(after.value, "value", None))
            for text in texts:
                first, *_ = str(text).split(" ")
                assert first not in QUESTIONS, f"{file}: {text}"


UNDESCRIBED = ("hardware", "compiler/graph/operators")
"""Folders whose methods `elaborate`, `result_type` and `compute` are described by their classes."""


def test_public_methods_of_several_lines_have_docstrings():
    """Ruff's D102 would ask for those of one line too, which could only repeat the name."""
    exempt = tuple(str(ROOT / folder) for folder in UNDESCRIBED)
    for file, tree in syntax_trees(files_of(*PARTS)).items():
        kinds = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for kind in kinds if not str(file).startswith(exempt) else ():
            for method in kind.body if not kind.name.startswith("_") else ():
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                    first, last = method.body[0], method.body[-1]
                    marks = {ast.unparse(one).rpartition(".")[2] for one in method.decorator_list}
                    short = first is last and first.lineno == last.end_lineno
                    known = short or marks & {"override", "overload", "setter"}
                    place = f"{file}:{method.lineno} {method.name}"
                    assert known or ast.get_docstring(method), place


def test_no_large_file_is_in_the_repository():
    """A compiled network, for example, that was written to the root and added by mistake."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        assert not path.is_file() or path.stat().st_size <= MAX_FILE, name


def test_every_dependency_states_its_reason():
    text = (ROOT / "pyproject.toml").read_text()
    listed = PROJECT["project"]["dependencies"] + [
        requirement
        for extra in PROJECT["project"]["optional-dependencies"].values()
        for requirement in extra
    ]
    for requirement in listed:
        line = next(line for line in text.splitlines() if f'"{requirement}"' in line)
        own = requirement.startswith("tilewright[")
        assert own or re.search(r'",\s+# \S', line), f"`{requirement}` has no reason beside it"


def test_the_installed_version_is_the_source_version():
    assert metadata.version("tilewright") == tilewright.__version__


def test_the_citation_names_this_version():
    assert f"\nversion: {tilewright.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_source_that_is_tested_is_this_folder():
    assert Path(tilewright.__file__).parent == ROOT


def test_every_file_that_is_not_python_goes_into_the_wheel():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    packages = {
        ROOT.joinpath(*name.split(".")[1:]) for name in PROJECT["tool"]["setuptools"]["packages"]
    }
    for part in PARTS:
        for file in (ROOT / part).rglob("*"):
            if file.is_file() and file.suffix not in (".py", ".pyc"):
                package = next(folder for folder in file.parents if folder in packages)
                parts = file.relative_to(package).parts
                listed = any(
                    len(parts) == len(Path(pattern).parts)
                    and all(map(fnmatch, parts, Path(pattern).parts))
                    for pattern in patterns
                )
                assert listed, f"`{file}` matches none of {patterns}"


def test_a_skipped_test_fails(pytester):
    """Nothing is skipped silently, neither a test nor a whole file."""
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makepyfile(
        test_one="import pytest\n@pytest.mark.skipif(True, reason='no verilator')\ndef test(): ...",
        test_file="import pytest\npytest.importorskip('no_such_module')",
        test_models="import pytest\n"
        "@pytest.mark.skipif(True, reason='no shared models')\ndef test(): ...",
        test_limit="import pytest\n@pytest.mark.xfail(reason='limit')\ndef test(): assert False",
    )
    result = pytester.runpytest("--continue-on-collection-errors")
    result.stdout.fnmatch_lines(
        ["test_one.py::test failed after * s: a skipped test counts as failed: *"]
    )
    result.stdout.fnmatch_lines("*a skipped test counts as failed: *no verilator*")
    result.assert_outcomes(errors=2, skipped=1, xfailed=1)


def test_what_the_processor_cannot_run_is_reported(pytester, monkeypatch):
    """A missing feature of the processor is no fault, but the summary says so."""
    monkeypatch.setenv("TILEWRIGHT_CPU_LEVEL", "none")
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers = cpu_kernels")
    pytester.makepyfile(
        "import pytest\n"
        "from tilewright.compiler.cpu import RowSoftmax, compile_kernel, generic\n"
        "def test_code(): compile_kernel(RowSoftmax(2, 3), generic('sse2'))\n"
        "@pytest.mark.cpu_kernels\ndef test_kernels(): assert False\n"
        "def test(): ..."
    )
    result = pytester.runpytest_inprocess()
    line = (
        "processor: runs no level, not amx, avx512vnni, avxvnni, avx2, sse2; 2 tests not run; "
        "CPU target: TILEWRIGHT_CPU_LEVEL=none turns CPU kernels off; unset it"
    )
    result.stdout.fnmatch_lines([line, "*1 passed, 2 not run*"])
    assert result.ret == 0


def test_tests_that_name_a_level_run_once(pytester, monkeypatch):
    """CI runs them without a cap, where each level of the processor is tried."""
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.parametrize('level', ['avx2', 'sse2'])\ndef test_code(level): ...\n"
        "@pytest.mark.parametrize('size', [1, 2])\ndef test_other(size): ...\n"
        "def test(): ..."
    )
    pytester.runpytest_inprocess("--collect-only").stdout.fnmatch_lines("*5 tests collected*")
    monkeypatch.setenv("TILEWRIGHT_CPU_LEVEL", "sse2")
    result = pytester.runpytest_inprocess("--collect-only")
    result.stdout.fnmatch_lines("*3/5 tests collected (2 deselected)*")


def test_every_public_name_loads():
    assert sorted(tilewright.__all__) == sorted(tilewright._HOMES)
    for name in tilewright.__all__:
        assert getattr(tilewright, name) is not None
    with pytest.raises(AttributeError, match="no attribute `nothing`"):
        _ = tilewright.nothing


def test_public_names_are_completed():
    assert set(tilewright.__all__) <= set(dir(tilewright))


@pytest.mark.parametrize("has_pip", [True, False])
def test_the_advice_to_install_fits_the_installation(monkeypatch, has_pip):
    """An environment of uv has no pip of its own; a wheel's knows no source folder."""
    monkeypatch.setattr(errors, "find_spec", lambda name: "there" if has_pip else None)
    pip = f"{sys.executable} -m pip" if has_pip else f"python3 -m pip --python {sys.executable}"
    assert errors.install_command("torch") == f"{pip} install -e '{ROOT}[torch]'"
    monkeypatch.setattr(errors, "__file__", "/usr/lib/python3/tilewright/errors.py")
    assert errors.install_command("torch") == f"{pip} install 'tilewright[torch]'"


NOT_FOR_RUNNING = (
    *("onnx", "amaranth", "rich", "llvmlite"),
    *("tilewright.compiler.passes", "tilewright.compiler.importers"),
    *("tilewright.compiler.quantiser", "tilewright.compiler.frontend", "tilewright.flows"),
    *("tilewright.compiler.accelerator", "tilewright.compiler.te", "tilewright.compiler.cpu"),
)
"""Modules that are not imported to load and run an artifact on `sim`."""


def test_an_artifact_runs_without_the_compiler(tmp_path):
    """A second interpreter, since here everything has been imported long ago."""
    digits = ROOT / "examples" / "digits" / "digits_int8_qdq.onnx"
    path = tmp_path / "digits.tw"
    tilewright.save(tilewright.compile_graph(tilewright.import_model(digits)), path)
    code = f"""
import sys
import numpy as np
import tilewright
module = tilewright.load({str(path)!r})
with tilewright.open_device("sim", module.configuration) as sim:
    tilewright.Session(module, sim).run(np.zeros((1, 1, 8, 8), np.float32))
print([name for name in {NOT_FOR_RUNNING!r} if name in sys.modules])
"""
    assert _printed(code) == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["--help"], ["numpy", "onnx", "amaranth", "llvmlite", "rich", "tilewright.isa"]),
        (["--version"], ["onnx", "amaranth", "llvmlite", "rich", "tilewright.compiler"]),
        (["config", "list"], ["onnx", "amaranth", "llvmlite", "tilewright.compiler.graph"]),
        (["config", "show"], ["onnx", "amaranth", "llvmlite", "tilewright.compiler.graph"]),
    ],
)
def test_short_answers_import_little(arguments, unused):
    code = f"""
import sys
from tilewright.flows.cli.main import main
try:
    main({arguments!r})
except SystemExit:
    pass
print([name for name in {unused!r} if name in sys.modules])
"""
    assert _printed(code).splitlines()[-1] == "[]"


def _printed(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_the_python_prompt_shows_is_short():
    graph = tilewright.import_model(ROOT / "examples" / "digits" / "digits_int8_qdq.onnx")
    module = tilewright.compile_graph(graph)
    (segment,) = module.segments
    with tilewright.open_device("sim", module.configuration) as sim:
        session = tilewright.Session(module, sim)
        run = session.run(np.zeros((1, 1, 8, 8), np.float32))
        shown = [graph, module, segment, sim, session, run, run.results[0], run.profile]
        assert max(len(repr(each)) for each in shown) <= 200
