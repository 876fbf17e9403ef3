"""Write a file as the one comment of this tool on a pull request: a new one, or in place of the earlier one.

The repository, the pull request and the token are in the environment, as GitHub Actions sets them, and PULL_REQUEST.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

MARK = "<!-- runmanager duel -->"
_PER_PAGE = 100


def ask(method: str, path: str, content: Any = None) -> Any:
    """Call GitHub's REST interface, and return its answer. Raises `URLError`."""
    request = urllib.request.Request(
        f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues/{path}",
        data=None if content is None else json.dumps(content).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def earlier_comment(number: str) -> int | None:
    """Return the number of the comment that this tool has written on a pull request, if it is there."""
    page = 1
    while comments := ask("GET", f"{number}/comments?per_page={_PER_PAGE}&page={page}"):
        for each in comments:
            if each["body"].startswith(MARK):
                return int(each["id"])
        page += 1
    return None


def main() -> None:
    """Write the file that is named on the command line."""
    content = {"body": f"{MARK}\n{Path(sys.argv[1]).read_text()}"}
    number = os.environ["PULL_REQUEST"]
    if (earlier := earlier_comment(number)) is None:
        ask("POST", f"{number}/comments", content)
    else:
        ask("PATCH", f"comments/{earlier}", content)


if __name__ == "__main__":
    main()
