"""``python -m fiveshot`` is the ``fiveshot`` command."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the folder that it was started in, which the command fiveshot does not import from, either

from fiveshot.cli.app import main

if __name__ == "__main__":
    main()
