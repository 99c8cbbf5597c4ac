"""`python -m topoopt` is the command line `topoopt`."""

from topoopt.cli import main

if __name__ == "__main__":
    main()
