"""Entry point of `python -m runmanager`."""

import sys

from runmanager.app.hydra_main import main

if __name__ == "__main__":
    sys.exit(main())
