from typing import Any

from numpy.typing import NDArray

def multiply_rows(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any] | None,
    scale: NDArray[Any] | None,
    x: NDArray[Any],
    y: NDArray[Any],
    begin: int,
    end: int,
    use_avx2: bool,
) -> None: ...
def has_avx2() -> bool: ...
