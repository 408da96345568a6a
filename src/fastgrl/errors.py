"""The exceptions a user can meet.

    FastgrlError           (an Exception)
    ├── ArgumentError      an argument outside its range               (a ValueError)
    ├── ShapeError         shapes that do not fit together             (a ValueError)
    ├── DtypeError         number types that do not fit together       (a TypeError)
    ├── NotFiniteError     NaN or Inf where a number must be           (a ValueError)
    ├── TransposeError     a product and its transpose disagree        (a ValueError)
    ├── InputError         a file or table cannot be read as it is     (a ValueError)
    ├── UnknownIdError     an id that is not in the graph              (a KeyError)
    ├── LeakError          test edges that training has seen           (a ValueError)
    ├── UnavailableError   no network, no disk space, no permission    (an OSError)
    └── MissingExtraError  an optional package is not installed        (an ImportError)

    FastgrlWarning         something odd that was dealt with, and how  (a UserWarning)

Each is one of Python's own as well, so that `except ValueError` works too; `FastgrlError` catches them all.
"""


class FastgrlError(Exception):
    """Anything fastgrl refuses to do; the message says what, where and how to mend it.

    >>> try:
    ...     fg.LinkPredictor(design="wlak").fit([("ann", "bob")])
    ... except fg.FastgrlError as error:
    ...     print(error)
    design must be one of ... got 'wlak'; did you mean 'walk'?
    """


class ArgumentError(FastgrlError, ValueError):
    """An argument has a value outside its range."""


class ShapeError(FastgrlError, ValueError):
    """Two shapes do not fit together."""


class DtypeError(FastgrlError, TypeError):
    """A number type is not supported here, or two of them do not fit together."""


class NotFiniteError(FastgrlError, ValueError):
    """An operand, or a product, contains NaN or Inf."""


class TransposeError(FastgrlError, ValueError):
    """The two products of an operator are not the transpose of each other."""


class InputError(FastgrlError, ValueError):
    """A file or a table cannot be read as it is; the message names the place and the value."""


class UnknownIdError(FastgrlError, KeyError):
    """An id that is not in the graph."""

    def __str__(self) -> str:  # KeyError would print the message quoted
        return str(self.args[0])


class LeakError(FastgrlError, ValueError):
    """Test edges that training has seen, or non-edges that are edges."""


class UnavailableError(FastgrlError, OSError):
    """The surroundings are at fault, not the input: no network, no disk space, no permission."""


class MissingExtraError(FastgrlError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class FastgrlWarning(UserWarning):
    """Something odd in the input that was dealt with, and how."""
