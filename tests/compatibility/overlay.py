"""Create an environment that has other versions of some packages than this one, and everything else from this one.

python tests/compatibility/overlay.py FOLDER PACKAGE==VERSION …

Unlike PYTHONPATH it holds in every process that its interpreter starts, whatever their folder and variables.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def create(folder: Path) -> Path:
    """Create the environment, or keep that of an earlier call; return the folder of its own packages."""
    venv.create(folder, symlinks=True)
    base = str(folder.resolve())
    own = Path(sysconfig.get_path("purelib", vars={"base": base, "installed_base": base}))
    here = sysconfig.get_path("purelib")
    (own / "zz_other_packages.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return own


def main() -> None:
    folder, *packages = sys.argv[1:]
    own = create(Path(folder))
    options = ["--quiet", "--upgrade", "--no-deps", "--target", str(own)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *packages], check=True)


if __name__ == "__main__":
    main()
