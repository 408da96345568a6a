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
    b: NDArray[Any] | None = None,
    coefficient: float = 0.0,
    extra: NDArray[Any] | None = None,
    post: NDArray[Any] | None = None,
    shift: NDArray[Any] | None = None,
) -> None: ...
def transpose_block(x: NDArray[Any], out: NDArray[Any]) -> None: ...
def relabel_rows(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    order: NDArray[Any],
    names: NDArray[Any],
    new_indptr: NDArray[Any],
    out: NDArray[Any],
    begin: int,
    end: int,
    /,
) -> None: ...
def column_sums(x: NDArray[Any], sums: NDArray[Any]) -> None: ...
def has_avx2() -> bool: ...

class Scanner:
    def __init__(
        self,
        *,
        delimiter: str,
        quoting: bool,
        comment: str,
        ask_about_hash: bool,
        columns: int,
        source: int,
        target: int,
        weight: int,
        decimal: str,
    ) -> None: ...
    def scan(self, buffer: bytes, position: int, /) -> tuple[Any, ...]: ...
    def last_record_end(self, buffer: bytes, /) -> int: ...
    def memory(self) -> int: ...
    def absorb(self, other: Scanner, /) -> NDArray[Any]: ...
    def __len__(self) -> int: ...

class IdTable:
    def __init__(self) -> None: ...
    def number(self, offsets: NDArray[Any], data: NDArray[Any], /) -> NDArray[Any]: ...
    def texts(self) -> list[str]: ...
    def absorb(self, scanner: Scanner, /) -> NDArray[Any]: ...
    def order(self) -> NDArray[Any]: ...
    def joined(self, codes: NDArray[Any], /) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def earliest(self, begin: int, /) -> int: ...
    def memory(self) -> int: ...
    def forget_places(self) -> None: ...
    def __len__(self) -> int: ...

def merge_ids(scanners: list[Scanner], /) -> tuple[list[str], list[NDArray[Any]]]: ...
def count_buckets(
    sources: NDArray[Any],
    targets: NDArray[Any],
    begin: int,
    end: int,
    shift: int,
    mirrored: bool,
    counts: NDArray[Any],
    /,
) -> None: ...
def scatter_edges(
    sources: NDArray[Any],
    targets: NDArray[Any],
    weights: NDArray[Any] | None,
    begin: int,
    end: int,
    shift: int,
    mirrored: bool,
    offsets: NDArray[Any],
    rows: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any] | None,
    /,
) -> None: ...
def sort_bucket(
    rows: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any] | None,
    begin: int,
    end: int,
    first: int,
    last: int,
    lengths: NDArray[Any],
    /,
) -> None: ...
def push_rows(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    shares: NDArray[Any] | None,
    thresholds: NDArray[Any],
    sources: NDArray[Any],
    damping: float,
    keep: int,
    counts: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any],
) -> None: ...
def overlap_pairs(
    left_indptr: NDArray[Any],
    left_indices: NDArray[Any],
    left_values: NDArray[Any],
    right_indptr: NDArray[Any],
    right_indices: NDArray[Any],
    right_values: NDArray[Any],
    u: NDArray[Any],
    v: NDArray[Any],
    out: NDArray[Any],
    columns: int,
) -> None: ...
def overlap_block(
    left_indptr: NDArray[Any],
    left_indices: NDArray[Any],
    left_values: NDArray[Any],
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    u: NDArray[Any],
    out: NDArray[Any],
    first: int,
) -> None: ...
def merge_logs(
    a_indptr: NDArray[Any],
    a_indices: NDArray[Any],
    a_values: NDArray[Any],
    a_row: NDArray[Any],
    a_column: NDArray[Any],
    b_indptr: NDArray[Any],
    b_indices: NDArray[Any],
    b_values: NDArray[Any],
    b_row: NDArray[Any],
    b_column: NDArray[Any],
    counts: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    begin: int,
    end: int,
) -> None: ...
def count_columns(indices: NDArray[Any], counts: NDArray[Any], begin: int, end: int) -> None: ...
def scatter_columns(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    offsets: NDArray[Any],
    rows: NDArray[Any],
    out: NDArray[Any],
    begin: int,
    end: int,
) -> None: ...
def log_rows(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    row_scale: NDArray[Any],
    column_scale: NDArray[Any],
    out: NDArray[Any],
    sums: NDArray[Any],
    squares: NDArray[Any],
    begin: int,
    end: int,
) -> None: ...
def filter_panel(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any] | None,
    rate: NDArray[Any],
    b: NDArray[Any],
    x: NDArray[Any],
    y: NDArray[Any],
    keep: float,
    begin: int,
    end: int,
    steps: int,
    use_avx2: bool,
) -> None: ...
def load_panel(
    block: NDArray[Any], scale: NDArray[Any] | None, panel: NDArray[Any], begin: int, end: int
) -> None: ...
def store_panel(
    panel: NDArray[Any], scale: NDArray[Any] | None, block: NDArray[Any], begin: int, end: int
) -> None: ...
def count_ends(
    sources: NDArray[Any], targets: NDArray[Any], mirrored: bool, counts: NDArray[Any], /
) -> int: ...
def scatter_by_bucket(
    sources: NDArray[Any],
    targets: NDArray[Any],
    weights: NDArray[Any] | None,
    bucket_of: NDArray[Any],
    mirrored: bool,
    starts: NDArray[Any],
    rows: NDArray[Any],
    columns: NDArray[Any],
    values: NDArray[Any] | None,
    /,
) -> None: ...
def check_entries(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    weights: NDArray[Any] | None,
    begin: int,
    end: int,
    seed: int,
    /,
) -> tuple[int, int, int, int, int, float]: ...
def check_texts(data: NDArray[Any], offsets: NDArray[Any], begin: int, end: int, /) -> int: ...
