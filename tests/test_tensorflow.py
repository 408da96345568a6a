"""What is TensorFlow's own: tapes, variables, sparse tensors and tf.function."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

import fastgrl as fg
from fastgrl.errors import DtypeError, FastgrlError, NotFiniteError, ShapeError
from fastgrl.linalg import seam_of

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytestmark = pytest.mark.frameworks

ROWS, COLUMNS, RANK = 12, 9, 4


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def dense(rng):
    return rng.standard_normal((ROWS, COLUMNS))


@pytest.fixture(scope="module")
def stored(rng):
    return sp.random_array((ROWS, COLUMNS), density=0.5, format="csr", rng=rng)


@pytest.fixture(scope="module")
def weights(rng):
    return tf.constant(rng.standard_normal((ROWS, COLUMNS)))


def coordinates(matrix):
    return np.stack(matrix.tocoo().coords, axis=1).astype(np.int64)


def sparse_tensor(matrix, values=None):
    values = matrix.tocoo().data if values is None else values
    return tf.SparseTensor(coordinates(matrix), values, matrix.shape)


def factorised(operator):
    return fg.fsvd(operator, RANK, n_iter=12)


def weighted_scores(operator, weights):
    U, s, Vt = factorised(operator)
    return tf.reduce_sum(((U * s) @ Vt) * weights)


def assert_derivatives(function, *arguments):
    with_tape, measured = tf.test.compute_gradient(function, list(map(tf.constant, arguments)), delta=1e-5)
    for one, other in zip(with_tape, measured, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7 * np.abs(other).max())
        assert np.abs(other).max() > 0.1


def problem(size, dtype, rng):
    """A sparse matrix whose values fall, so that Algorithm 1 converges."""
    pattern = sp.random_array((2 * size, size), density=0.05, format="csr", rng=rng, dtype=dtype)
    return (pattern @ sp.diags_array(0.95 ** np.arange(size, dtype=dtype))).tocsr().astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["tensor", "variable", "sparse"])
def test_algorithm_1_finds_what_it_finds_with_numpy(rng, kind, dtype):
    matrix = problem(300, dtype, rng)
    make = {"tensor": tf.constant, "variable": tf.Variable}
    given = sparse_tensor(matrix) if kind == "sparse" else make[kind](matrix.toarray())
    settings = {"method": "subspace", "n_iter": 20, "block_size": 64}
    ours, theirs = fg.fsvd(given, 32, **settings), fg.fsvd(matrix, 32, **settings)
    eps = np.finfo(dtype).eps
    accuracy = max(1e-8, 100 * eps)  # of the last values, from two random starts
    np.testing.assert_allclose(ours.s, theirs.s, rtol=accuracy)
    certificate = fg.certificate(given, ours)
    assert certificate.complete
    assert certificate.orthogonality < 20 * eps


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_what_comes_out_has_the_type_and_the_device_of_what_went_in(dense, dtype):
    tensor = tf.constant(dense, dtype)
    svd = fg.fsvd(tensor, RANK)
    solution = fg.pinv_apply(svd, tensor)
    for part in (*svd, solution, fg.Matrix(tensor) @ tf.ones((COLUMNS, 2), dtype)):
        assert isinstance(part, tf.Tensor)
        assert part.dtype == dtype
        assert part.device == tensor.device


def test_a_device_other_than_the_host_has_a_name():
    from fastgrl.frameworks.tensorflow import _name

    assert seam_of(tf.ones(1)).name == "TensorFlow"
    assert _name("/job:localhost/replica:0/task:0/device:GPU:1") == "TensorFlow on GPU:1"


def test_singular_values_have_derivatives(dense):
    assert_derivatives(lambda a: factorised(a).s, dense)


def test_scores_have_derivatives(dense, weights):
    assert_derivatives(lambda a: weighted_scores(a, weights), dense)


@pytest.mark.parametrize("order", ["by rows", "any"])
def test_scores_have_derivatives_in_what_a_sparse_tensor_stores(stored, weights, rng, order):
    where, values = coordinates(stored), stored.data
    if order == "any":
        mixed = rng.permutation(len(values))
        where, values = where[mixed], values[mixed]
    assert_derivatives(lambda v: weighted_scores(tf.SparseTensor(where, v, stored.shape), weights), values)


def test_every_factor_of_a_product_has_derivatives(stored, weights, rng):
    def function(d, values):
        return weighted_scores(fg.Matrix(sparse_tensor(stored, values)) @ fg.Diagonal(d), weights)

    assert_derivatives(function, rng.uniform(1, 2, COLUMNS), stored.data)


def test_what_a_function_depends_on_has_derivatives(dense, weights, rng):
    a, w = tf.constant(dense), tf.Variable(rng.uniform(1, 2, COLUMNS))
    operator = fg.Function(
        dense.shape,
        lambda X: a @ (w[:, None] * X),
        lambda Y: w[:, None] * tf.matmul(a, Y, transpose_a=True),
        like=a,
    )
    with tf.GradientTape() as tape:
        scores = weighted_scores(operator, weights)
    gradient, before = tape.gradient(scores, w).numpy(), w.numpy()
    for i, step in enumerate(1e-5 * np.eye(COLUMNS)):
        w.assign(before + step)
        above = weighted_scores(operator, weights)
        w.assign(before - step)
        measured = float(above - weighted_scores(operator, weights)) / 2e-5
        assert gradient[i] == pytest.approx(measured, rel=1e-6, abs=1e-7)


def test_a_variable_is_followed_and_has_derivatives_wherever_the_operator_was_made(dense):
    variable = tf.Variable(dense)
    operator = fg.Matrix(variable)
    variable.assign(2 * dense)
    with tf.GradientTape() as tape:
        s = fg.fsvd(operator, COLUMNS).s
        energy = tf.reduce_sum(s**2)
    np.testing.assert_allclose(s, np.linalg.svd(2 * dense, compute_uv=False), rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(energy, variable), 4 * dense, rtol=1e-9)


def test_a_sparse_product_can_be_differentiated_twice(stored, dense):
    block = tf.constant(dense.T[:, :3])

    def gradient(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            quartic = tf.reduce_sum((fg.Matrix(sparse_tensor(stored, values)) @ block) ** 4)
        return tape.gradient(quartic, values)

    assert_derivatives(gradient, stored.data)


def test_a_second_derivative_is_refused(dense):
    a = tf.constant(dense)
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        outer.watch(a)
        inner.watch(a)
        total = tf.reduce_sum(factorised(a).s)
        with inner.stop_recording():
            gradient = inner.gradient(total, a)
    with pytest.raises(FastgrlError, match="first derivatives only"):
        outer.gradient(gradient, a)


def test_a_jacobian_is_made_row_by_row(dense):
    a = tf.constant(dense)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(a)
        U, s, Vt = factorised(a)
    with pytest.raises(FastgrlError, match="experimental_use_pfor=False"):
        tape.jacobian(s, a)
    found = tape.jacobian(s, a, experimental_use_pfor=False)
    np.testing.assert_allclose(found, np.einsum("ik,kj->kij", U, Vt), atol=1e-12)


def test_a_variable_whose_shape_may_change_is_refused(dense):
    for shape in (tf.TensorShape(None), (None, None)):
        with pytest.raises(ShapeError, match=r"pass its value\(\)"):
            fg.fsvd(tf.Variable(dense, shape=shape), 2)


def test_no_tape_records_the_iteration(dense):
    a, blocks = tf.constant(dense), []

    def forward(X):
        blocks.append(weakref.ref(X))
        return a @ X

    def backward(Y):
        return tf.matmul(a, Y, transpose_a=True)

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(a)
        svd = fg.fsvd(fg.Function(dense.shape, forward, backward, like=a), RANK, n_iter=5)
        gc.collect()
        # What is left is there for the derivative: the right singular vectors.
        alive = [block() for block in blocks if block() is not None]
    assert {tuple(block.shape) for block in alive} <= {(COLUMNS, RANK), (COLUMNS, 1)}
    assert len(alive) < len(blocks) / 2
    assert tape.gradient(svd.s, a) is not None


def test_products_for_the_derivative_are_made_only_under_a_tape_that_watches(dense):
    a, columns = tf.constant(dense), []

    def forward(X):
        columns.append(int(X.shape[1]))
        return a @ X

    def backward(Y):
        return tf.matmul(a, Y, transpose_a=True)

    operator = fg.Function(dense.shape, forward, backward, like=a)
    fg.fsvd(operator, RANK)
    alone = len(columns)
    with tf.GradientTape():
        fg.fsvd(operator, RANK)
    assert len(columns) == 2 * alone
    with tf.GradientTape() as tape:
        tape.watch(a)
        fg.fsvd(operator, RANK)
    assert len(columns) == 3 * alone + 1


def test_a_pseudo_inverse_has_derivatives(dense):
    assert_derivatives(lambda a, y: fg.pinv_apply(factorised(a), y), dense, dense[:, :2])


@pytest.mark.parametrize("autograph", [True, False])
def test_tensors_without_numbers_are_refused(dense, stored, autograph):
    held = tf.constant(dense)
    for argument in (held, tf.Variable(dense), sparse_tensor(stored)):
        with pytest.raises(FastgrlError, match="call fastgrl outside of it"):
            tf.function(lambda x: fg.fsvd(x, 2).s, autograph=autograph)(argument)
    with pytest.raises(FastgrlError, match=r"through tf\.py_function"):
        tf.function(lambda: fg.fsvd(held, 2).s, autograph=autograph)()


def test_a_py_function_gives_numbers_and_derivatives_inside_of_a_tf_function(dense):
    @tf.function
    def energy(a):
        return tf.reduce_sum(tf.py_function(lambda a: fg.fsvd(a, COLUMNS).s, [a], tf.float64) ** 2)

    a = tf.constant(dense)
    with tf.GradientTape() as tape:
        tape.watch(a)
        total = energy(a)
    assert float(total) == pytest.approx((dense**2).sum())
    np.testing.assert_allclose(tape.gradient(total, a), 2 * dense, rtol=1e-9)


@pytest.mark.parametrize(
    ("where", "shape"),
    [
        ([[0, 0], [0, 0], [2, 1]], (3, 2)),  # one place twice
        ([[2, 1], [0, 1], [2, 0], [0, 0]], (3, 2)),  # no order
        (np.zeros((0, 2), np.int64), (3, 2)),
        (np.zeros((0, 2), np.int64), (0, 2)),
        (np.zeros((0, 2), np.int64), (2, 0)),
    ],
)
def test_every_sparse_tensor_is_the_matrix_it_stands_for(where, shape):
    values = np.arange(1.0, len(where) + 1)
    expected = np.zeros(shape)
    np.add.at(expected, tuple(np.asarray(where).reshape(-1, 2).T), values)
    operator = fg.Matrix(tf.SparseTensor(np.asarray(where, np.int64), values, shape))
    np.testing.assert_array_equal(operator @ tf.eye(shape[1], dtype=tf.float64), expected)
    np.testing.assert_array_equal(operator.T @ tf.eye(shape[0], dtype=tf.float64), expected.T)
    np.testing.assert_array_equal(operator.T.T @ tf.eye(shape[1], dtype=tf.float64), expected)
    assert (operator @ tf.zeros((shape[1], 0), tf.float64)).shape == (shape[0], 0)


@pytest.mark.parametrize("place", [[3, 0], [0, 2], [-1, 0]])
def test_a_sparse_tensor_with_an_index_outside_of_it_is_refused(place):
    tensor = tf.SparseTensor([[0, 0], place], [1.0, 2.0], (3, 2))
    with pytest.raises(ShapeError, match="indices outside of it"):
        fg.Matrix(tensor)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (tf.constant([[np.nan, 1.0]]), NotFiniteError),
        (tf.SparseTensor([[0, 0]], [np.inf], (2, 2)), NotFiniteError),
        (tf.constant([[1 + 1j]]), DtypeError),
        (tf.constant([[1.0]], tf.bfloat16), DtypeError),
        (tf.constant([["a"]]), DtypeError),
        (tf.ragged.constant([[1.0], [1.0, 2.0]]), DtypeError),
        (tf.SparseTensor([[0, 0, 0]], [1.0], (2, 2, 2)), ShapeError),
    ],
)
def test_what_is_no_matrix_of_real_numbers_is_refused(wrong, error):
    with pytest.raises(error):
        fg.fsvd(wrong, 1)


def test_a_sparse_vector_is_refused():
    with pytest.raises(ShapeError, match="to_dense"):
        fg.Diagonal(tf.SparseTensor([[0]], [1.0], (2,)))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("block", ["float32", "float64", "int32"])
def test_types_mix_as_they_do_in_numpy(dense, stored, kind, block):
    X = np.arange(2 * COLUMNS).reshape(COLUMNS, 2).astype(block)
    d = np.arange(1, COLUMNS + 1).astype(kind)

    def operators(made, a, s):
        diagonal = fg.Diagonal(made(d))
        return [
            fg.Matrix(a),
            fg.Matrix(s),
            diagonal,
            fg.Matrix(a, column_scale=made(d)),
            diagonal + fg.Ones((9, 9)),
        ]

    ours = operators(tf.constant, tf.constant(dense.astype(kind)), sparse_tensor(stored.astype(kind)))
    theirs = operators(np.asarray, dense.astype(kind), stored.astype(kind))
    for one, other in zip(ours, theirs, strict=True):
        product, expected = (one @ tf.constant(X)).numpy(), other @ X
        assert product.dtype == expected.dtype
        np.testing.assert_allclose(product, expected, rtol=1e-5 if kind == "float32" else 1e-12)


def test_the_same_seed_gives_the_same_bits_and_nothing_global_is_read_or_changed(dense, stored):
    def draws():
        tf.random.set_seed(7)
        return tf.random.normal((3,)).numpy()

    before = draws()
    tf.random.set_seed(7)
    first = [fg.fsvd(given, RANK, seed=3) for given in (tf.constant(dense), sparse_tensor(stored))]
    np.testing.assert_array_equal(tf.random.normal((3,)), before)
    tf.random.set_seed(8)
    again = [fg.fsvd(given, RANK, seed=3) for given in (tf.constant(dense), sparse_tensor(stored))]
    for one, other in zip(first, again, strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, same)
