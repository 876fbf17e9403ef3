"""Install into this environment by uv, several times as fast as pip; by pip where uv does not succeed.

python tools/install.py REQUIREMENT …

The arguments are those of `pip install`, of which `--no-compile` saves the time to compile all modules, which the first
imports then take. uv does not read pip's configuration, so it is told what pip is: indexes, folders of wheels,
certificates. uv's own variables win.
"""

import ast
import os
import subprocess
import sys

_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
"""The settings of pip that uv has as well, with uv's variables for them."""

_PIP = (sys.executable, "-m", "pip")
_UV = (sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable)


def uv_variables(listed: str) -> dict[str, str]:
    """Return uv's variables for the output of `pip config list`; pip's own variables win there, then `install.…`."""
    lines = [line.partition("=")[::2] for line in listed.splitlines() if "=" in line]
    lines.sort(key=lambda line: (line[0].startswith(":env:"), line[0].startswith("install.")))
    found = {key.rpartition(".")[2]: str(ast.literal_eval(value)).split() for key, value in lines}
    return {
        variable: ("," if name == "find-links" else " ").join(found[name])
        for name, variable in _VARIABLES.items()
        if name in found
    }


def install(arguments: list[str]) -> int:
    """Install, and return the exit status."""
    listed = subprocess.run([*_PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match", **uv_variables(listed), **os.environ}  # pip's strategy
    constraints = arguments[arguments.index("--constraint") :] if "--constraint" in arguments else []
    got = subprocess.run([*_PIP, "install", "--quiet", "uv", *constraints], check=False)
    of_uv = [each for each in arguments if each != "--no-compile"]
    if of_uv == arguments:
        of_uv.append("--compile-bytecode")  # pip's default
    if got.returncode == 0 and subprocess.run([*_UV, *of_uv], env=environment, check=False).returncode == 0:
        return 0
    print("note: uv could not install; pip does, which takes longer", file=sys.stderr, flush=True)
    return subprocess.run([*_PIP, "install", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))
