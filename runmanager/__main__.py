"""Entry point of `python -m runmanager`: the command, and without one the built-in job as a Hydra application."""

import sys

from runmanager.records.host.import_path import search_current_folder

if __name__ == "__main__":
    search_current_folder()  # before further imports, which a file in the current folder could take the place of


def main() -> int:
    """Run the process's command line and return its exit status."""
    first = "".join(sys.argv[1:2])
    if first == "--version" or first.replace("_", "").isalpha():
        from runmanager.cli import main as cli

        if first == "--version" or first in cli.COMMANDS:
            cli.main()
    from runmanager.app.hydra_main import main as run_job

    return run_job()


if __name__ == "__main__":
    sys.exit(main())
