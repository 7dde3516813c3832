"""`python -m dromos` is the command `dromos`."""

from dromos.cli import main

if __name__ == "__main__":
    main()
