"""The steps of the GitHub Action, run by their scripts: a duel of two commits, and one comment that is updated."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[1]
_STEPS = {each["name"]: each for each in yaml.safe_load((_ROOT / "action.yml").read_text())["runs"]["steps"]}
_SCRIPT = """
import argparse, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
time.sleep({seconds})
print("val_loss", 0.5 + random.Random(given.seed).random() / 100)
"""


def _step(name: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | variables | {"OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _STEPS[name]["run"]]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


def _commit(folder: Path, seconds: float) -> None:
    (folder / "train.py").write_text(_SCRIPT.format(seconds=seconds))
    for words in (["add", "train.py"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a change"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def test_a_slower_pull_request_fails_with_a_comment(tmp_path: Path) -> None:
    project, variables = tmp_path / "project", {"RUNNER_TEMP": str(tmp_path), "BASE": "HEAD~1", "FAIL_IF": "slower:5%"}
    project.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    for seconds in (0.1, 2.0):
        _commit(project, seconds)
    files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    measured = _step(
        "Measure both commits in turns", project, DUEL="--scalar 'val_loss=val_loss (\\S+)' train.py seed=0,1,2",
        **variables, **files,
    )  # fmt: skip
    assert measured.returncode == 0, measured.stderr
    comment = (tmp_path / "comment.md").read_text()
    assert "`--fail-if slower:5%` failed" in comment and comment in Path(files["GITHUB_STEP_SUMMARY"]).read_text()
    assert Path(files["GITHUB_OUTPUT"]).read_text() == "status=1\n"
    reports = _STEPS["Keep the reports"]["with"]["path"]
    assert len(list(project.glob(reports))) == 2


@pytest.mark.parametrize(("status", "exits", "says"), [("0", 0, ""), ("1", 1, ""), ("3", 0, "::notice::")])
def test_what_is_not_known_is_neutral(tmp_path: Path, status: str, exits: int, says: str) -> None:
    answered = _step("Answer", tmp_path, STATUS=status)
    assert answered.returncode == exits
    assert answered.stdout.startswith(says) and bool(answered.stdout) == bool(says)


def test_a_wrong_command_fails_the_step(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    variables = {"RUNNER_TEMP": str(tmp_path), "BASE": "nothing", "FAIL_IF": "slower:5%", "DUEL": "train.py seed=0,1"}
    assert _step("Measure both commits in turns", tmp_path, **variables, **files).returncode != 0


def test_the_documented_workflow_uses_the_action() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (_ROOT / "docs" / "gate.md").read_text(), re.DOTALL)
    workflow = yaml.safe_load(text)
    *_, last = workflow["jobs"]["duel"]["steps"]
    action = yaml.safe_load((_ROOT / "action.yml").read_text())
    assert "/runmanager@" in last["uses"] and last["with"].keys() <= action["inputs"].keys()
    assert {name for name, each in action["inputs"].items() if each.get("required")} <= last["with"].keys()
    assert workflow["permissions"]["pull-requests"] == "write", "for the comment"


class _Comments(BaseHTTPRequestHandler):
    """GitHub's comments of pull request 7 in `made`, 100 a page, as its REST interface has them."""

    made: list[dict[str, Any]]

    def do_GET(self) -> None:
        assert self.path.startswith("/repos/me/net/issues/7/comments?per_page=100&page=")
        page = int(self.path.rpartition("=")[2])
        self._answer(self.made[100 * (page - 1) : 100 * page])

    def do_POST(self) -> None:
        assert self.path == "/repos/me/net/issues/7/comments"
        self.made.append({"id": 1000 + len(self.made), **self._content()})
        self._answer(self.made[-1])

    def do_PATCH(self) -> None:
        (found,) = (each for each in self.made if self.path == f"/repos/me/net/issues/comments/{each['id']}")
        found |= self._content()
        self._answer(found)

    def _content(self) -> Any:
        assert self.headers["Authorization"] == "Bearer secret"
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, value: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def github() -> Iterator[str]:
    _Comments.made = [{"id": number, "body": "of a person"} for number in range(150)]
    server = HTTPServer(("127.0.0.1", 0), _Comments)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_comment_is_written_once_and_then_updated(tmp_path: Path, github: str) -> None:
    variables = {"GITHUB_API_URL": github, "GITHUB_REPOSITORY": "me/net", "GITHUB_TOKEN": "secret"}
    for text in ("slower", "no difference"):
        (tmp_path / "comment.md").write_text(text)
        done = _step(
            "Comment on the pull request", tmp_path, RUNNER_TEMP=str(tmp_path), PULL_REQUEST="7",
            GITHUB_ACTION_PATH=str(_ROOT), **variables,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert len(_Comments.made) == 151
        assert _Comments.made[-1]["body"].endswith(f"\n{text}")
