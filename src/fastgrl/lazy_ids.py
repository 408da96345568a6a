"""Node ids that stay on disk: decoded when somebody asks, and only as many as were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np

from fastgrl.checks import Array
from fastgrl.ids import objects
from fastgrl.spilling import release


@final
@dataclass(frozen=True, eq=False, repr=False)
class LazyIds:
    """Sorted, distinct ids: `data` holds them as numbers, or their UTF-8 end to end, where `offsets` cut it.

    A slice is an ordinary array of ids, so that this takes the place of a column in a writer.

    >>> ids = LazyIds(np.frombuffer(b"annbob", np.uint8), np.array([0, 3, 6]))
    >>> len(ids), ids[1:].tolist()
    (2, ['bob'])
    """

    data: Array
    offsets: Array | None = None

    def __repr__(self) -> str:
        return f"<LazyIds: {len(self)} ids>"

    def __len__(self) -> int:
        return len(self.data if self.offsets is None else self.offsets) - (self.offsets is not None)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the arrays that slices are."""
        return self.data.dtype if self.offsets is None else np.dtype(object)

    def __getitem__(self, part: slice) -> Array:
        begin, end, step = part.indices(len(self))
        if step != 1:
            raise IndexError("ids are decoded in runs; take every one of them")
        end = max(begin, end)
        if self.offsets is None:
            numbers: Array = self.data[begin:end].copy()
            release(self.data, begin, end)
            return numbers
        places = self.offsets[begin : end + 1]
        first, last = int(places[0]), int(places[-1])
        texts = decoded_texts(self.data[first:last], places - first)
        release(self.data, first, last)
        release(self.offsets, begin, end)
        return objects(texts)


def decoded_texts(utf8: Array, offsets: Array) -> list[str]:
    """The texts that `offsets` cut UTF-8 into; ValueError if they cannot.

    >>> decoded_texts(np.frombuffer("né".encode(), np.uint8), np.array([0, 1, 3]))
    ['n', 'é']
    """
    text = utf8.tobytes().decode("utf-8", "surrogatepass")
    begins = np.append((utf8 & 0xC0) != 0x80, True)  # where a character begins, or the text ends
    ordered = offsets[0] == 0 and offsets[-1] == len(utf8) and (np.diff(offsets) >= 0).all()
    if not (ordered and begins[offsets].all()):
        raise ValueError("their offsets are out of order")
    if len(text) < len(utf8):
        offsets = np.cumsum(begins)[offsets] - 1  # counted in characters
    return [text[begin:end] for begin, end in pairwise(offsets.tolist())]
