"""The program `fastgrl`, which is `python -m fastgrl` too: Ctrl-C is answered from the first import on."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    try:
        from fastgrl.cli import main as command_line
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
