"""Entry point of `python -m runmanager`."""

import sys

from runmanager.records.host.import_path import search_current_folder

if __name__ == "__main__":
    search_current_folder()  # before further imports, which a file in the current folder could take the place of

from runmanager.app.hydra_main import main

if __name__ == "__main__":
    sys.exit(main())
