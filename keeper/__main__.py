"""Runs the `keeper` command as `python -m keeper`."""

from keeper.cli.entry import main

if __name__ == "__main__":
    main()
