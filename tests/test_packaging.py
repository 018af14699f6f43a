"""What is shipped: the wheel holds the five packages and nothing else, and the pins cover what is needed."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import coplay.games

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("agents", "games", "rollout_tree", "scripts", "training")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def pins(name: str) -> dict[str, str]:
    """Package -> version, of a file of exact pins."""
    lines = (ROOT / name).read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


PINS = pins("constraints.txt")
CUDA_LIBRARIES = ("nvidia-", "cuda-", "triton")
"""What a CUDA build of torch brings along; torch pins these itself."""
TESTED = ("browser", "data", "dev", "games", "gguf", "negmas")
"""Extras that CI installs."""


def installed() -> dict[str, str]:
    """The pinned packages that this interpreter and platform need, with their versions."""
    found = {canonicalize_name(d.name): d.version.split("+")[0] for d in metadata.distributions()}
    return {name: found[name] for name in PINS if name in found}


def tracked() -> list[str]:
    """Paths that git knows; tests that need them are skipped where the checkout came without git."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


def shipped() -> set[str]:
    """What belongs in the wheel, by its path there."""
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    for folder in ("configs", "imitations"):
        files |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "scripts" / folder).glob("*.toml")}
    page = (ROOT / "rollout_tree/page").rglob("*")
    files |= {path.relative_to(ROOT).as_posix() for path in page if path.is_file()}
    files |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "games/data").glob("*.jsonl")}
    return {f"coplay/{name}" for name in files}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the checkout in which an old build and an environment lie about."""
    source = tmp_path_factory.mktemp("checkout")
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        copy(ROOT / name, source / name)
    for stray in (".venv/lib/stray.py", "runs/demo/stray.py", "tests/test_stray.py", "models/stray.py"):
        (source / stray).parent.mkdir(parents=True)
        (source / stray).write_text("")
    target = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    done = subprocess.run(
        [*command, "-w", target, "."], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(target.glob("coplay-*.whl")))


def copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.write_bytes(source.read_bytes())
        return
    target.mkdir()
    for path in source.iterdir():
        if path.name != "__pycache__":
            copy(path, target / path.name)


def test_wheel_when_built_then_holds_the_five_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == shipped()


def test_wheel_when_built_then_has_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    info = {name.split("/", 1)[1]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "coplay = coplay.scripts.cli:main" in wheel.read(info["entry_points.txt"]).decode()
    assert "licenses/LICENSE" in info


def test_packages_when_a_folder_holds_code_then_it_is_listed() -> None:
    folders = {
        path.parent.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(
        f"coplay.{folder.as_posix().replace('/', '.')}" for folder in folders
    )


def test_data_files_when_a_package_holds_some_then_they_are_shipped() -> None:
    known = {".py", ".md", ".sh", ".pyc"}
    stray = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in known
    }
    assert {f"coplay/{name}" for name in stray} <= shipped(), "name these in [tool.setuptools.package-data]"


def test_version_when_asked_of_the_installed_package_then_the_declared_one() -> None:
    try:
        version = metadata.version("coplay")
    except metadata.PackageNotFoundError:
        pytest.skip("coplay is on the path, not installed")
    assert version == PROJECT["project"]["version"]


@pytest.mark.skipif(
    os.environ.get("CI") != "true", reason="outside CI a path link to the checkout is allowed"
)
def test_coplay_when_tested_in_ci_then_the_installed_one() -> None:
    assert "site-packages" in Path(coplay.games.__file__).parts
    assert not any(Path(entry).resolve() == ROOT for entry in sys.path), (
        "the checkout root must be off sys.path"
    )


def test_changelog_and_citation_when_read_then_of_the_declared_version() -> None:
    version = PROJECT["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_pins_when_something_is_required_then_exact_and_in_range() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for text in [*PROJECT["project"]["dependencies"], *(r for name in TESTED for r in extras[name])]:
        requirement = Requirement(text)
        assert requirement.name in PINS, f"{requirement.name} has no pin in constraints.txt"
        assert requirement.specifier.contains(PINS[requirement.name]), f"{text} excludes its own pin"


def test_pins_when_a_pinned_package_needs_another_then_that_is_pinned_too() -> None:
    for name in installed():
        assert name == canonicalize_name(name)
        for needed in map(Requirement, metadata.requires(name) or ()):
            applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if applies and not needed.name.startswith(CUDA_LIBRARIES):
                assert canonicalize_name(needed.name) in PINS, f"{name} needs {needed.name}, which has no pin"


def test_pins_when_compared_with_what_is_installed_then_equal() -> None:
    versions = installed()
    assert versions == {name: PINS[name] for name in versions}


def test_pins_of_the_readers_when_they_hold_what_we_need_then_in_our_versions() -> None:
    """What other programs read must be written by the same versions as everywhere else."""
    readers = pins(".ci/readers.txt")
    needed = {Requirement(text).name for text in PROJECT["project"]["dependencies"]} | {
        "pytest",
        "hypothesis",
    }
    assert {"numpy", "pyarrow", "pydantic", "networkx"} <= readers.keys()
    assert {name: readers[name] for name in needed & readers.keys()} == {
        name: PINS[name] for name in needed & readers.keys()
    }


def test_imports_when_of_other_packages_then_declared() -> None:
    declared = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    for extra in PROJECT["project"]["optional-dependencies"].values():
        declared |= {Requirement(text).name for text in extra}
    suppliers = metadata.packages_distributions()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"coplay"}:
                suppliers_of = {canonicalize_name(supplier) for supplier in suppliers.get(name, (name,))}
                assert suppliers_of & declared, (
                    f"{path.relative_to(ROOT)} imports {name}, which is not declared"
                )


def test_commands_when_named_in_the_readme_then_present_and_executable() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"bash ((?:scripts|\.ci)/[\w./]+)", readme))
    assert {"scripts/demo.sh", "scripts/test.sh"} <= named
    for command in named | {".ci/run"}:
        assert os.access(ROOT / command, os.X_OK), f"{command} cannot be executed"


def test_links_when_between_our_own_texts_then_they_lead_somewhere() -> None:
    for name in (name for name in tracked() if name.endswith(".md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text("utf-8")):
            assert ((ROOT / name).parent / link).exists(), f"{name} links to {link}, which does not exist"


def test_tracked_files_when_searched_then_name_no_machine_and_no_registry() -> None:
    words = (
        "/wo" + "rk/",
        "/ro" + "ot/",
        "/ho" + "me/",
        "/opt/wh" + "eels",
        "index" + "-url",
        "pyp" + "i.org",
    )
    pattern = re.compile("|".join(map(re.escape, words)))
    faults = []
    for name in tracked():
        data = (ROOT / name).read_bytes()
        if b"\0" not in data and (found := pattern.search(data.decode("utf-8"))):
            faults.append(f"{name} names {found.group()}")
    assert not faults, "\n".join(faults)


def test_tracked_files_when_of_the_umbrella_then_no_init_at_the_root_and_none_in_tests() -> None:
    assert not (ROOT / "__init__.py").exists()
    assert not [name for name in tracked() if name.startswith("tests/") and name.endswith("__init__.py")]
