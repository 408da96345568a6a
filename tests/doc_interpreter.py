"""The interpreter of one page: blocks come in, what they printed goes out, one line of JSON for each."""

from __future__ import annotations

import builtins
import io
import json
import os
import sys
import traceback
import types


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a page writes by other means than print is no answer
    page = types.ModuleType("__main__")
    printed: list[tuple[int, str]] = []

    def recorded_print(*values: object, file: object = None, **options: object) -> None:
        if file is not None:
            builtins.print(*values, file=file, **options)
            return
        text = io.StringIO()
        builtins.print(*values, file=text, **options)
        printed.append((sys._getframe(1).f_lineno, text.getvalue()))

    page.__dict__["print"] = recorded_print
    sys.modules["__main__"] = page
    sys.path.insert(0, "")
    for request in sys.stdin:
        path, line, code = json.loads(request)
        printed.clear()
        error = None
        try:
            # Lines are those of the page, so that a traceback shows them.
            exec(compile("\n" * (line - 1) + code, path, "exec"), page.__dict__)
        except BaseException as problem:  # whatever happens is told
            frames = problem.__traceback__ and problem.__traceback__.tb_next
            error = "".join(traceback.format_exception(type(problem), problem, frames))
        answers.write(json.dumps({"printed": printed, "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
