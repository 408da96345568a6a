"""The exceptions a user can meet.

FastgrlError
├── ArgumentError      an argument outside its range          (also a ValueError)
├── ShapeError         shapes that do not fit together        (also a ValueError)
├── DtypeError         number types that do not fit together  (also a TypeError)
├── NotFiniteError     NaN or Inf where a number must be      (also a ValueError)
└── TransposeError     a product and its transpose disagree   (also a ValueError)
"""


class FastgrlError(Exception):
    """Anything fastgrl refuses to do; the message says what, where and how to mend it."""


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
