"""What a user gets: the README, the types and the files."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import python

import fencelock

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_readme_run(tmp_path, number):
    readme = (ROOT / "README.md").read_text()
    example = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[number]
    ended = python(example, FENCELOCK_URL=f"file:{tmp_path}")
    assert ended.returncode == 0 and "with token" in ended.stdout, ended.stderr


def test_the_first_lines_of_the_readme_are_the_first_example():
    first = (ROOT / "README.md").read_text().splitlines()[:10]
    assert "import fencelock" in first and "```" in first


USE = """
import asyncio
import fencelock

client = fencelock.Client()
with client.lock("k", wait=5, ttl=30, on_lost=lambda held: held.check()) as held:
    reveal_type(held.token)
    reveal_type(client.try_lock(["a", "b"], shared=True))

async def main() -> None:
    async with fencelock.AsyncClient() as client, client.lock("k") as held:
        reveal_type(held)
        reveal_type(await client.lock("k"))

client.lock("k", waitt=5)
client.lock("k", ttl="30")
"""


def test_the_types_say_what_fits(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull, "use.py"]
    environment = {**os.environ, "MYPYPATH": str(pathlib.Path(fencelock.__file__).parent.parent)}
    if "site-packages" in environment["MYPYPATH"]:  # installed: mypy finds it, if it has its mark
        del environment["MYPYPATH"]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    shown = [re.search('"(.*)"', line).group(1) for line in said.splitlines() if "Revealed" in line]
    held = re.sub(r"Union\[(.*), None\]", r"\1 | None", shown[1])  # as older versions of mypy write it
    assert shown[0].replace("builtins.", "") == "int" and held == "fencelock._client.Held | None", said
    assert shown[2:] == ["fencelock._aio.AsyncHeld"] * 2, said
    errors = [line for line in said.splitlines() if "error:" in line]
    assert len(errors) == 2 and "waitt" in errors[0] and 'Argument "ttl"' in errors[1], said


def test_the_package_itself_has_no_error_of_types():
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull, str(ROOT / "src")]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_metadata_are_complete():
    metadata = importlib.metadata.metadata("fencelock")
    assert metadata["Version"] == fencelock.__version__ == "0.1.0"
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.9"
    assert importlib.metadata.requires("fencelock") is None
    files = {str(file) for file in importlib.metadata.files("fencelock")}
    assert {"fencelock/py.typed", "fencelock/contrib/__init__.py"} <= files
    assert any(file.endswith("licenses/LICENSE-MIT") for file in files)
