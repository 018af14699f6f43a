"""How the code is cut, read from its source: who imports whom, what is banned, how long things may be."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).resolve().parent.parent
LINE = ("games", "agents", "rollout_tree", "training", "scripts")
"""Each package may import those before it."""
WEIGHTS = (
    "adapters base_model building common_attention critic kv_cache linear loading local_engine merged policy"
    " policy_strategies reader replies sampling tabular tabular_decoder tree_attention tree_rows trunk weights"
)
TORCH_HALF = {f"coplay.agents.{name}" for name in WEIGHTS.split()}
"""The modules of `agents` that hold weights; the others, all games and all trees work without torch."""
TORCH_LIBRARIES = {"torch", "transformers", "peft", "accelerate"}
CATCH_ALL = {"Exception", "BaseException"}
BOUNDARY = "rollout_tree/collect.py"
"""The one place where any exception becomes a recorded failure."""
MEASURED = {"scripts/bench_storage.py": {"pickle"}}
"""The one exemption from law 10: the benchmark of storage writes and reads a pickle of its own to time it."""
MAX_FILE, MAX_FUNCTION = 300, 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, ast.Module]:
    """Path relative to the checkout -> syntax tree, for every module of the five packages."""
    paths = sorted(path for package in LINE for path in (ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


def dotted(path: str) -> str:
    """`games/base.py` -> `coplay.games.base`."""
    return "coplay." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, at any depth; relative imports start with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def at_import(tree: ast.Module) -> ast.Module:
    """The statements that run on import: no function bodies, nothing under TYPE_CHECKING."""

    class Pruned(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return Pruned().visit(ast.parse(ast.unparse(tree)))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def without_torch() -> list[str]:
    """Modules that must be importable where torch is not installed."""
    packages = ("games/", "agents/", "rollout_tree/")
    return [p for p in modules() if p.startswith(packages) and dotted(p) not in TORCH_HALF]


def assert_none(faults: list[str]) -> None:
    assert not faults, "\n" + "\n".join(faults)


def test_packages_when_they_import_one_another_then_only_to_the_left() -> None:
    faults = []
    for path, tree in modules().items():
        allowed = LINE[: LINE.index(path.split("/")[0]) + 1]
        for line, name in imports(tree):
            if name.startswith("coplay.") and name.split(".")[1] not in allowed:
                faults.append(f"{path}:{line} imports {name}, expected only {', '.join(allowed)}")
    assert_none(faults)


def test_imports_when_of_our_own_code_then_by_full_name() -> None:
    tests = {
        p.relative_to(ROOT).as_posix(): ast.parse(p.read_text("utf-8")) for p in ROOT.glob("tests/**/*.py")
    }
    bare = {*LINE, ""}
    assert_none(
        [
            f"{path}:{line} imports {name}, expected coplay.{name.lstrip('.')}"
            for path, tree in (modules() | tests).items()
            for line, name in imports(tree)
            if name.split(".")[0] in bare
        ]
    )


def test_files_when_they_import_one_another_then_never_in_a_circle() -> None:
    """Imports inside functions and for types alone count too: what needs each other belongs together."""
    files = {dotted(path): tree for path, tree in modules().items() if not path.endswith("__init__.py")}
    graph = networkx.DiGraph()
    for name, tree in files.items():
        for _, imported in imports(tree):
            target = imported if imported in files else imported.rpartition(".")[0]
            if target in files:
                graph.add_edge(name, target)
    circles = [sorted(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1]
    assert_none([f"{', '.join(circle)} import one another" for circle in circles])


def test_torch_when_a_module_is_of_the_torch_free_half_then_not_imported_with_it() -> None:
    """An agent may reach for a model inside a function; a game or a tree has no use for one anywhere."""
    faults = []
    for path in without_torch():
        tree = modules()[path]
        anywhere = tree if not path.startswith("agents/") else at_import(tree)
        for _, name in imports(anywhere):
            half = name in TORCH_HALF or name.rpartition(".")[0] in TORCH_HALF
            if half or name.split(".")[0] in TORCH_LIBRARIES:
                faults.append(f"{path} imports {name}, expected no torch outside agents/ {WEIGHTS}")
    assert_none(faults)


def test_torch_when_the_torch_free_half_is_really_imported_then_not_loaded() -> None:
    names = ", ".join(sorted(map(dotted, without_torch())))
    loaded = run_python(
        f"import {names}, sys; print([m for m in {sorted(TORCH_LIBRARIES)!r} if m in sys.modules])"
    )
    assert loaded == "[]", f"importing the torch-free half loaded {loaded}"


@pytest.mark.parametrize("package", ["coplay.games", "coplay.rollout_tree"])
def test_import_when_nothing_is_loaded_then_under_a_second(package: str) -> None:
    code = (
        f"import time, sys; start = time.process_time(); import {package}; "
        "assert 'torch' not in sys.modules; print(time.process_time() - start)"
    )
    seconds = min(float(run_python(code)) for _ in range(3))
    assert seconds < 1.0, f"import {package} took {seconds:.2f} s of CPU time, expected under 1"


def run_python(code: str) -> str:
    """What a new interpreter prints, started outside the checkout so that nothing of it is on the path."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(sys.prefix)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_code_from_data_when_looked_for_then_absent() -> None:
    """Law 10."""
    faults = []
    banned = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    for path, tree in modules().items():
        allowed = MEASURED.get(path, set())
        faults += [
            f"{path}:{n} imports {name}"
            for n, name in imports(tree)
            if name.split(".")[0] in banned - allowed
        ]
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called in {"eval", "exec", "compile", "__import__"}:
                faults.append(f"{path}:{node.lineno} calls {called}")
            if called == "torch.load" and options.get("weights_only") != "True":
                faults.append(f"{path}:{node.lineno} calls torch.load, expected weights_only=True")
            if options.get("allow_pickle") == "True" or options.get("trust_remote_code") == "True":
                faults.append(f"{path}:{node.lineno} lets data bring code along")
    assert_none(faults)


def test_handlers_when_they_catch_everything_then_only_at_the_boundary() -> None:
    faults = []
    for path, tree in modules().items():
        if path == BOUNDARY:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = {"Exception"} if node.type is None else names_in(node.type)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
                caught = {name for argument in node.args for name in names_in(argument)}
            else:
                continue
            if caught & CATCH_ALL:
                faults.append(f"{path}:{node.lineno} catches everything, expected only in {BOUNDARY}")
    assert_none(faults)


def names_in(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def test_files_when_measured_then_at_most_300_lines() -> None:
    sizes = {path: len((ROOT / path).read_text("utf-8").splitlines()) for path in modules()}
    assert_none(
        [f"{path} has {n} lines, expected at most {MAX_FILE}" for path, n in sizes.items() if n > MAX_FILE]
    )


def test_functions_when_measured_then_at_most_60_lines_without_docstring() -> None:
    faults = []
    for path, tree in modules().items():
        for function in functions(tree):
            size = (function.end_lineno or function.lineno) - function.lineno + 1
            if ast.get_docstring(function) is not None:
                docstring = function.body[0]
                size -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
            if size > MAX_FUNCTION:
                faults.append(
                    f"{path}:{function.lineno} {function.name} has {size} lines, expected at most 60"
                )
    assert_none(faults)


def test_docstrings_when_a_name_is_public_then_present() -> None:
    """A method may go without where another class documents the contract that both fulfil."""
    classes = [
        node for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    contracts = {m.name for c in classes for m in c.body if isinstance(m, Function) and ast.get_docstring(m)}
    faults = []
    for path, tree in modules().items():
        public = [
            n for n in tree.body if isinstance(n, Function | ast.ClassDef) and not n.name.startswith("_")
        ]
        faults += [
            f"{path}:{n.lineno} {n.name} has no docstring" for n in public if ast.get_docstring(n) is None
        ]
        for owner in (node for node in public if isinstance(node, ast.ClassDef)):
            for method in (node for node in owner.body if isinstance(node, Function)):
                if not method.name.startswith("_") and method.name not in contracts:
                    faults.append(f"{path}:{method.lineno} {owner.name}.{method.name} has no docstring")
    assert_none(faults)


def test_python_files_when_searched_then_nothing_is_left_to_do() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error")
    assert_none(
        [
            f"{path}:{number} says {word}"
            for path in modules()
            for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1)
            for word in words
            if word in line
        ]
    )
