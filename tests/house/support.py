"""Runs the contract's tests on the oldest or the newest versions of what limelight builds on.

    python tests/house/support.py oldest
    python tests/house/support.py newest
    python tests/house/support.py oldest dist/limelight-….whl

Of this checkout, or of a wheel that was built from it, in an environment of its own from the
interpreter that runs this: build/support/oldest-3.11. The oldest versions are the floors in
pyproject.toml, read from there, so that a floor is never only a claim.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[2]
TESTS = ("tests/test_health.py", "tests/test_heads.py", "tests/test_journal.py",
         "tests/test_properties.py", "tests/masks/test_crop.py", "tests/masks/test_text.py",
         "tests/looking/test_pyramid.py", "tests/worked", "tests/learn", "tests/capture",
         "tests/cli", "tests/engines/test_native.py", "tests/engines/test_row_gradients.py",
         "tests/pictures", "tests/studio/test_api.py")  # fmt: skip
TOOLS = ("pytest>=8", "pytest-timeout", "hypothesis>=6.130", "httpx", "ml-dtypes", "safetensors")


def floors() -> list[str]:
    """Each requirement of the core and the studio at the oldest version it allows."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["studio"]]
    named = [each.split(">=") for each in asked]
    return [f"{name}=={version}" for name, version in named]


def main(versions: str = "", built: str = str(ROOT)) -> int:
    if versions not in ("oldest", "newest"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = ROOT / "build/support" / "{}-{}.{}".format(versions, *sys.version_info[:2])
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    pinned = floors() if versions == "oldest" else ["--upgrade"]
    subprocess.run([*pip, *pinned, *TOOLS, f"{built}[studio]"], check=True)
    subprocess.run([*pip[:-1], "check"], check=True)
    listed = "import importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in %r), sep=', ')"
    names = [re.split("[=>]", each)[0] for each in floors()]
    subprocess.run([str(python), "-c", listed % names], check=True)
    here = [str(ROOT / test) for test in TESTS]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider",
               "--hypothesis-profile=ci", *here]  # fmt: skip
    if versions == "oldest":  # among themselves, old packages and new ones warn: not of us
        command += ["-W", "ignore::DeprecationWarning"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
