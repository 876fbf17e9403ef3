"""A stand-in for the package apprise, written where a process finds it: it writes each message to a file."""

from pathlib import Path

__all__ = ["write_standin"]

_CODE = """
import json, os
from pathlib import Path

class Apprise:
    def __init__(self):
        self.urls = []
    def add(self, url):
        self.urls.append(url)
        return url.startswith("json://")
    def notify(self, title, body):
        if any("broken" in url for url in self.urls):
            raise OSError("no route")
        with Path(os.environ["SENT"]).open("a") as file:
            file.write(json.dumps([self.urls, title, body]) + "\\n")
        return True
"""


def write_standin(folder: Path) -> str:
    """Write the package into `folder`; return the folder for PYTHONPATH."""
    (folder / "apprise").mkdir(parents=True)
    (folder / "apprise" / "__init__.py").write_text(_CODE)
    return str(folder)
