"""`python -m fastgrl` is the same program as `fastgrl`."""

from fastgrl.cli import main

if __name__ == "__main__":
    main()
