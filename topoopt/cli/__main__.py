"""`python -m topoopt.cli`: the command line without its installed script."""

from topoopt.cli import main

if __name__ == "__main__":
    main()
