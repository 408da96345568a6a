"""What the parts of a fit cost, by formula: one factorisation, and the rows of a diffusion.

n is the number of nodes, k the rank, b the columns of a block, q the rounds after the first. Krylov keeps
(q + 1) b columns on the left and (q + 2) b on the right, subspace one block of 2 k. Blocks above about 8 MB
are multiplied in panels, and a few panels more are held while a product is made. The rows of a diffusion are
those of the compiled kernel; where it was not built, SciPy takes about three times their memory.
"""

from __future__ import annotations

from dataclasses import dataclass

# How `fsvd` cuts wide blocks, and how many rounds it does unless told; a test holds these to what it does.
PANEL_BYTES, PANEL_COLUMNS = 8 << 20, 16
ROUNDS = {"krylov": 8, "subspace": 10}

# Panels alive inside one product with a walk matrix, and blocks while columns are made orthonormal, some of
# them taken apart; Krylov keeps some single columns beside its bases.
PRODUCT_PANELS, ORTHONORMAL_BLOCKS, SINGLE_COLUMNS = 4, 3.4, 20
# A product that is a sum of several, as the released program's is, leaves panels with the allocator as well.
SUM_PANELS = 5
# With everything tall on disk: panels alive inside a product, single columns, and the chunks in work.
SPILLED_PANELS, SPILLED_COLUMNS, SPILLED_BUFFERS = 4, 6, 2 << 20

# A diffusion keeps at most so many entries of a row, 4 bytes for the column and 4 for the value; the
# logarithm of both directions has up to twice as many, on graphs that were tried 1.2 to 1.85 times.
LONGEST_ROW, ENTRY_BYTES, BOTH_DIRECTIONS = 400, 8, 1.7
# It is made in parts, of which each thread holds one twice while it is put in its place.
PART_IN_FLIGHT = 1 / 8
DIFFUSION_ROUNDS, DEGREE_COLUMNS = 10, 2

# Selection fits two hold-outs for each damping, one after another.
HOLD_OUTS, DAMPINGS, USUAL_DAMPING = 2, (0.5, 0.7, 0.85, 0.92), 0.85

_FLOAT64 = 8


def diffusion_block(rank: int) -> int:
    """Columns of a block in the factorisation of a log matrix: a quarter of the rank, in packs of eight.

    Its spectrum is flat, so that many rounds of a narrow block find more than a few of a wide one.
    """
    return 8 * max(1, round(rank / 32))


@dataclass(frozen=True)
class Factorisation:
    """One call of `fsvd` for an n×n matrix."""

    num_nodes: int
    rank: int
    method: str
    n_iter: int
    block_size: int
    itemsize: int
    panel_columns: int | None = None
    spilled: bool = False
    product_panels: int = PRODUCT_PANELS

    @property
    def work_bytes(self) -> int:
        """What is held in memory at the peak, the answer included unless it is spilled."""
        if self.spilled:
            columns = SPILLED_PANELS * self.panel + SPILLED_COLUMNS
            return columns * self._column_bytes + SPILLED_BUFFERS
        return self._tall_bytes

    @property
    def scratch_bytes(self) -> int:
        """What is held on disk at the peak: everything tall but the panels of a product."""
        return self._tall_bytes + self.rank * self._column_bytes if self.spilled else 0

    @property
    def _tall_bytes(self) -> int:
        return max(self._product_bytes, self._orthonormal_bytes, self._answer_bytes)

    @property
    def products(self) -> int:
        """Products with the matrix and its transpose, a block at a time."""
        return 2 * (self.n_iter + 1)

    @property
    def columns(self) -> int:
        """Columns multiplied by the matrix or its transpose, over the whole run."""
        return self.products * self.block_size

    @property
    def passes(self) -> int:
        """Times that the matrix is read from end to end."""
        return self.products * -(-self.block_size // self.panel)

    @property
    def panel(self) -> int:
        """Columns that go through one product together."""
        column = max(self._column_bytes * PANEL_COLUMNS, 1)
        usual = PANEL_COLUMNS * max(1, PANEL_BYTES // column)
        return min(self.block_size, usual, self.panel_columns or usual)

    @property
    def _basis_columns(self) -> int:
        """Columns kept on both sides between products."""
        if self.method == "subspace":
            return 0
        kept = (self.n_iter + 1) * self.block_size
        return min(self.num_nodes, kept) + min(self.num_nodes, kept + self.block_size) + SINGLE_COLUMNS

    @property
    def _column_bytes(self) -> int:
        return self.num_nodes * self.itemsize

    @property
    def _product_bytes(self) -> int:
        # Panels are put together in a block of their own.
        blocks = (2 if self.method == "krylov" else 1) + (self.panel < self.block_size)
        columns = blocks * self.block_size + self.product_panels * self.panel
        return (self._basis_columns + columns) * self._column_bytes

    @property
    def _orthonormal_bytes(self) -> int:
        columns = self._basis_columns + ORTHONORMAL_BLOCKS * self.block_size
        return int(columns * self._column_bytes)

    @property
    def _answer_bytes(self) -> int:
        """The bases (or two blocks) with the small matrix, its two factors, and one side of the answer."""
        small = self._basis_columns // 2 or self.block_size
        held = self._basis_columns or 2 * self.block_size
        return (held + 2 * self.rank) * self._column_bytes + 3 * small**2 * _FLOAT64


@dataclass(frozen=True)
class DiffusionCost:
    """Forward push of every node, the logarithm of both directions, and its factorisation."""

    row_length: float
    directed: bool
    select: bool
    svd: Factorisation

    @property
    def work_bytes(self) -> int:
        """The most that is held at a time: while the logarithm is made, or while it is factorised."""
        logarithm = self._entries_bytes(self.log_entries)
        # The logarithm takes a transposed copy of the rows, a directed factorisation one of the logarithm.
        beside = self._entries_bytes(self._entries) + logarithm + int(logarithm * PART_IN_FLIGHT)
        factorising = logarithm * (1 + self.directed) + self.svd.work_bytes
        return self.rows_bytes + max(beside, factorising)

    @property
    def rows_bytes(self) -> int:
        """The rows, in both directions if they differ."""
        return self._entries_bytes(self._entries) * (1 + self.directed)

    @property
    def log_entries(self) -> float:
        """Entries of the logarithm."""
        return min(BOTH_DIRECTIONS * self._entries, float(self.svd.num_nodes) ** 2)

    @property
    def fits(self) -> int:
        """Times that all of this is done: once, and for each setting that is tried."""
        return 1 + self.select * HOLD_OUTS * len(DAMPINGS)

    @property
    def _entries(self) -> float:
        return self.svd.num_nodes * self.row_length

    def _entries_bytes(self, entries: float) -> int:
        """Columns and values, and 64-bit row pointers."""
        return int(ENTRY_BYTES * entries) + _FLOAT64 * (self.svd.num_nodes + 1)
