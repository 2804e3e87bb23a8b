"""``python -m fiveshot`` is the ``fiveshot`` command."""

from fiveshot.cli.app import main

if __name__ == "__main__":
    main()
