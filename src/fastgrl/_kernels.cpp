// Sparse rows times a dense row-major block: the one loop that Python cannot run at memory speed.
//
//     Y[i, :] = scale[i] * sum_e values[e] * X[indices[e], :],   e = indptr[i] .. indptr[i+1]-1
//
// and, in the same pass, one step of Horner's rule for a polynomial in the matrix:
//
//     Y[i, :] = post[i] * (scale[i] * sum_e … + (coefficient + extra[i]) * B[i, :]) + shift
//
// A call does a range of rows on the calling thread with the GIL released; kernels.py hands ranges to
// threads. Every entry of Y is one sum in CSR order whatever the ranges are, so threads never change a bit.

#include "_edges.h"
#include "_filters.h"
#include "_folders.h"
#include "_push.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace nb = nanobind;

#if defined(__GNUC__) || defined(__clang__)
#define INLINE __attribute__((always_inline)) inline
#define PREFETCH(address) __builtin_prefetch(address)
#define UNROLL _Pragma("GCC unroll 8")
#else
#error "the kernel is written for GCC and Clang; without it fastgrl multiplies through SciPy"
#endif

#if defined(__x86_64__)
#define HAVE_AVX2_VARIANT 1
#define AVX2 __attribute__((target("avx2,fma")))
#else
#define HAVE_AVX2_VARIANT 0
#define AVX2
#endif

namespace {

// Gathers of X are latency-bound once X outgrows the cache; indices run on across rows, so looking this
// many entries ahead also covers the next, possibly short, rows.
constexpr int64_t kAhead = 16;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kRowsAtOnce = 32;
constexpr int kPackBytes = 32;

template <typename Index, typename Value, typename Scalar>
struct Task {
    const int64_t *indptr;
    const Index *indices;
    const Value *values;  // null: every stored entry is 1
    const Scalar *scale;  // null: no row scaling
    const Scalar *x;
    Scalar *y;
    int64_t x_stride, y_stride, begin, end;
    int64_t last;  // last entry that may be fetched ahead
    // What is added in the same pass; null: nothing.
    const Scalar *b, *extra, *post, *shift;
    int64_t b_stride;
    Scalar coefficient;
};

// A register of columns. Compilers left to vectorise plain loops kept the sums in memory now and then.
template <typename Scalar, int Lanes>
struct Pack {
    typedef Scalar type __attribute__((vector_size(Lanes * sizeof(Scalar))));
};

// `Width` columns of a register that holds more: what is left over at the right edge. It goes through the same
// instructions as all others, because compilers fuse products and sums of single numbers in another way than those of
// packs, and a column would have other bits there.
template <int Width, typename Register, typename Scalar>
INLINE Register load(const Scalar *from) {
    Register pack = {};
    std::memcpy(&pack, from, Width * sizeof(Scalar));
    return pack;
}

template <int Lanes, int Packs, int Width, typename Task, typename Register, typename Scalar>
INLINE void finish(const Task &task, int64_t row, int64_t column, Register *sum, Scalar *y) {
    if (task.post || task.shift) {
        const Scalar post = task.post ? task.post[row] : Scalar(1);
        UNROLL for (int p = 0; p < Packs; ++p) {
            Register shift = {};
            if (task.shift) shift = load<Width, Register>(task.shift + column + p * Lanes);
            sum[p] = post * sum[p] + shift;
        }
    }
    UNROLL for (int p = 0; p < Packs; ++p) std::memcpy(y + p * Lanes, &sum[p], Width * sizeof(Scalar));
}

// `Packs` registers of `Lanes` columns from `column` on, all sums held in registers.
template <int Lanes, int Packs, int Width, bool Valued, bool Added, typename Index, typename Value, typename Scalar>
INLINE void panel(const Task<Index, Value, Scalar> &task, int64_t column) {
    using Register = typename Pack<Scalar, Lanes>::type;
    const Scalar *x = task.x + column;
    for (int64_t row = task.begin; row < task.end; ++row) {
        Register sum[Packs] = {};
        const int64_t end = task.indptr[row + 1];
        for (int64_t e = task.indptr[row]; e < end; ++e) {
            const int64_t ahead = e + kAhead < task.last ? e + kAhead : task.last;
            const char *next = reinterpret_cast<const char *>(x + task.indices[ahead] * task.x_stride);
            UNROLL for (int64_t byte = 0; byte < int64_t(sizeof(sum)); byte += kCacheLine) PREFETCH(next + byte);
            const Scalar *gathered = x + task.indices[e] * task.x_stride;
            UNROLL for (int p = 0; p < Packs; ++p) {
                const Register part = load<Width, Register>(gathered + p * Lanes);
                if constexpr (Valued) sum[p] += static_cast<Scalar>(task.values[e]) * part;
                else sum[p] += part;
            }
        }
        Scalar *y = task.y + row * task.y_stride + column;
        const Scalar scale = task.scale ? task.scale[row] : Scalar(1);
        if constexpr (Added) {
            const Scalar *b = task.b + row * task.b_stride + column;
            const Scalar coefficient = task.coefficient + (task.extra ? task.extra[row] : Scalar(0));
            UNROLL for (int p = 0; p < Packs; ++p) {
                const Register part = load<Width, Register>(b + p * Lanes);
                sum[p] = scale * sum[p] + coefficient * part;
            }
            finish<Lanes, Packs, Width>(task, row, column, sum, y);
        } else {
            UNROLL for (int p = 0; p < Packs; ++p) sum[p] = scale * sum[p];
            finish<Lanes, Packs, Width>(task, row, column, sum, y);
        }
    }
}

template <bool Valued, bool Added, typename Index, typename Value, typename Scalar>
INLINE void all_panels(const Task<Index, Value, Scalar> &task, int64_t columns) {
    constexpr int kLanes = kPackBytes / sizeof(Scalar);
    int64_t column = 0;
    for (; columns - column >= 8 * kLanes; column += 8 * kLanes) panel<kLanes, 8, kLanes, Valued, Added>(task, column);
    if (columns - column >= 4 * kLanes) { panel<kLanes, 4, kLanes, Valued, Added>(task, column); column += 4 * kLanes; }
    if (columns - column >= 2 * kLanes) { panel<kLanes, 2, kLanes, Valued, Added>(task, column); column += 2 * kLanes; }
    if (columns - column >= kLanes) { panel<kLanes, 1, kLanes, Valued, Added>(task, column); column += kLanes; }
    if (columns - column >= 4) { panel<kLanes, 1, 4, Valued, Added>(task, column); column += 4; }
    if (columns - column >= 2) { panel<kLanes, 1, 2, Valued, Added>(task, column); column += 2; }
    if (columns - column >= 1) panel<kLanes, 1, 1, Valued, Added>(task, column);
}

// Few rows at a time, so that all panels of a wide X row are read while its page is at hand.
template <bool Valued, bool Added, typename Index, typename Value, typename Scalar>
INLINE void all_rows(Task<Index, Value, Scalar> task, int64_t columns) {
    const int64_t end = task.end;
    for (; task.begin < end; task.begin = task.end) {
        task.end = task.begin + kRowsAtOnce < end ? task.begin + kRowsAtOnce : end;
        all_panels<Valued, Added>(task, columns);
    }
}

template <bool Valued, bool Added, typename Index, typename Value, typename Scalar>
void portable(const Task<Index, Value, Scalar> &task, int64_t columns) {
    all_rows<Valued, Added>(task, columns);
}

template <bool Valued, bool Added, typename Index, typename Value, typename Scalar>
AVX2 void avx2(const Task<Index, Value, Scalar> &task, int64_t columns) {
    all_rows<Valued, Added>(task, columns);
}

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Block = nb::ndarray<const T, nb::ndim<2>, nb::device::cpu>;
template <typename T>
using Output = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

template <typename T>
const T *data_or_null(const std::optional<Vector<T>> &vector) {
    return vector ? vector->data() : nullptr;
}

template <bool Valued, bool Added, typename Index, typename Value, typename Scalar>
void run_rows(const Task<Index, Value, Scalar> &task, int64_t columns, bool use_avx2) {
    if (use_avx2) avx2<Valued, Added>(task, columns);
    else portable<Valued, Added>(task, columns);
}

template <typename Index, typename Value, typename Scalar>
void run(const Task<Index, Value, Scalar> &task, int64_t columns, bool use_avx2) {
    if (task.values && task.b) run_rows<true, true>(task, columns, use_avx2);
    else if (task.values) run_rows<true, false>(task, columns, use_avx2);
    else if (task.b) run_rows<false, true>(task, columns, use_avx2);
    else run_rows<false, false>(task, columns, use_avx2);
}

// One pass over a range of rows.
template <typename Index, typename Value, typename Scalar>
void multiply_rows(Vector<int64_t> indptr, Vector<Index> indices, std::optional<Vector<Value>> values,
                   std::optional<Vector<Scalar>> scale, Block<Scalar> x, Output<Scalar> y, int64_t begin, int64_t end,
                   bool use_avx2, std::optional<Block<Scalar>> b, double coefficient,
                   std::optional<Vector<Scalar>> extra, std::optional<Vector<Scalar>> post,
                   std::optional<Vector<Scalar>> shift) {
    const Task<Index, Value, Scalar> task{indptr.data(), indices.data(), data_or_null(values), data_or_null(scale),
                                          x.data(), y.data(), x.stride(0), y.stride(0), begin, end,
                                          indptr.data()[end] - 1, b ? b->data() : nullptr, data_or_null(extra),
                                          data_or_null(post), data_or_null(shift), b ? b->stride(0) : 0,
                                          static_cast<Scalar>(coefficient)};
    const int64_t columns = static_cast<int64_t>(x.shape(1));
    nb::gil_scoped_release release;
    run(task, columns, use_avx2);
}

// Rows `begin` to `end` of the matrix with rows in another order and columns under other names; the entries of a row stay
// in their order, so that their sum stays the same.
void relabel_rows(Vector<int64_t> indptr, Vector<int32_t> indices, Vector<int64_t> order, Vector<int32_t> names,
                  Vector<int64_t> new_indptr, nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> out,
                  int64_t begin, int64_t end) {
    const int64_t *from = indptr.data(), *rows = order.data(), *to = new_indptr.data();
    const int32_t *columns = indices.data(), *name = names.data();
    int32_t *renamed = out.data();
    nb::gil_scoped_release release;
    for (int64_t row = begin; row < end; ++row) {
        int64_t place = to[row];
        for (int64_t e = from[rows[row]]; e < from[rows[row] + 1]; ++e) renamed[place++] = name[columns[e]];
    }
}

// out[c, r] = x[r, c]: a block stored by rows into one stored by columns, a few cache lines of either at a time.
template <typename Scalar>
void transpose_block(Block<Scalar> x, Output<Scalar> out) {
    const int64_t rows = static_cast<int64_t>(x.shape(0)), columns = static_cast<int64_t>(x.shape(1));
    const int64_t from = x.stride(0), to = out.stride(0);
    const Scalar *source = x.data();
    Scalar *target = out.data();
    nb::gil_scoped_release release;
    for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
        const int64_t last = first + kRowsAtOnce < rows ? first + kRowsAtOnce : rows;
        for (int64_t column = 0; column < columns; ++column)
            for (int64_t row = first; row < last; ++row) target[column * to + row] = source[row * from + column];
    }
}

// Each column's sum, row after row in double precision, whatever the other columns are.
template <typename Scalar>
void column_sums(Block<Scalar> x, nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu> sums) {
    const int64_t rows = static_cast<int64_t>(x.shape(0)), columns = static_cast<int64_t>(x.shape(1));
    const int64_t stride = x.stride(0);
    const Scalar *data = x.data();
    double *out = sums.data();
    nb::gil_scoped_release release;
    constexpr int64_t kAtOnce = 8;
    for (int64_t first = 0; first < columns; first += kAtOnce) {
        const int64_t width = columns - first < kAtOnce ? columns - first : kAtOnce;
        double sum[kAtOnce] = {};
        if (width == kAtOnce)
            for (int64_t row = 0; row < rows; ++row)
                UNROLL for (int64_t c = 0; c < kAtOnce; ++c) sum[c] += double(data[row * stride + first + c]);
        else
            for (int64_t row = 0; row < rows; ++row)
                for (int64_t c = 0; c < width; ++c) sum[c] += double(data[row * stride + first + c]);
        for (int64_t c = 0; c < width; ++c) out[first + c] = sum[c];
    }
}

template <typename Index, typename Value, typename Scalar>
void define(nb::module_ &m) {
    // No conversions: a converted y would be a copy, and the product would be lost with it.
    m.def("multiply_rows", &multiply_rows<Index, Value, Scalar>, nb::arg("indptr").noconvert(),
          nb::arg("indices").noconvert(), nb::arg("values").none().noconvert(), nb::arg("scale").none().noconvert(),
          nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("begin"), nb::arg("end"), nb::arg("use_avx2"),
          nb::arg("b").none().noconvert() = nb::none(), nb::arg("coefficient") = 0.0,
          nb::arg("extra").none().noconvert() = nb::none(), nb::arg("post").none().noconvert() = nb::none(),
          nb::arg("shift").none().noconvert() = nb::none());
}

}  // namespace

NB_MODULE(_kernels, m) {
    define<int32_t, float, float>(m);
    define<int32_t, double, double>(m);
    define<int32_t, float, double>(m);
    define<int64_t, float, float>(m);
    define<int64_t, double, double>(m);
    define<int64_t, float, double>(m);
    define_edges(m);
    define_filters(m);
    define_folders(m);
    define_push(m);
    m.def("relabel_rows", &relabel_rows, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert(),
          nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert(), nb::arg(), nb::arg());
    m.def("transpose_block", &transpose_block<float>, nb::arg("x").noconvert(), nb::arg("out").noconvert());
    m.def("transpose_block", &transpose_block<double>, nb::arg("x").noconvert(), nb::arg("out").noconvert());
    m.def("column_sums", &column_sums<float>, nb::arg("x").noconvert(), nb::arg("sums").noconvert());
    m.def("column_sums", &column_sums<double>, nb::arg("x").noconvert(), nb::arg("sums").noconvert());
    m.def("has_avx2", [] {
#if HAVE_AVX2_VARIANT
        return bool(__builtin_cpu_supports("avx2")) && bool(__builtin_cpu_supports("fma"));
#else
        return false;
#endif
    });
}
