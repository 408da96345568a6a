// Sparse rows times a dense row-major block: the one loop that Python cannot run at memory speed.
//
//     Y[i, :] = scale[i] * sum_e values[e] * X[indices[e], :],   e = indptr[i] .. indptr[i+1]-1
//
// A call does a range of rows on the calling thread with the GIL released; kernels.py hands ranges to
// threads. Every entry of Y is one sum in CSR order whatever the ranges are, so threads never change a bit.

#include "_edges.h"
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
};

// A register of columns. Compilers left to vectorise plain loops kept the sums in memory now and then.
template <typename Scalar, int Lanes>
struct Pack {
    typedef Scalar type __attribute__((vector_size(Lanes * sizeof(Scalar))));
};
template <typename Scalar>
struct Pack<Scalar, 1> {
    typedef Scalar type;
};

// `Packs` registers of `Lanes` columns from `column` on, all sums held in registers.
template <int Lanes, int Packs, bool Valued, typename Index, typename Value, typename Scalar>
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
                Register part;
                std::memcpy(&part, gathered + p * Lanes, sizeof(Register));
                if constexpr (Valued) sum[p] += static_cast<Scalar>(task.values[e]) * part;
                else sum[p] += part;
            }
        }
        Scalar *y = task.y + row * task.y_stride + column;
        const Scalar scale = task.scale ? task.scale[row] : Scalar(1);
        UNROLL for (int p = 0; p < Packs; ++p) {
            const Register scaled = scale * sum[p];
            std::memcpy(y + p * Lanes, &scaled, sizeof(Register));
        }
    }
}

template <bool Valued, typename Index, typename Value, typename Scalar>
INLINE void all_panels(const Task<Index, Value, Scalar> &task, int64_t columns) {
    constexpr int kLanes = kPackBytes / sizeof(Scalar);
    int64_t column = 0;
    for (; columns - column >= 8 * kLanes; column += 8 * kLanes) panel<kLanes, 8, Valued>(task, column);
    if (columns - column >= 4 * kLanes) { panel<kLanes, 4, Valued>(task, column); column += 4 * kLanes; }
    if (columns - column >= 2 * kLanes) { panel<kLanes, 2, Valued>(task, column); column += 2 * kLanes; }
    if (columns - column >= kLanes) { panel<kLanes, 1, Valued>(task, column); column += kLanes; }
    for (; column < columns; ++column) panel<1, 1, Valued>(task, column);
}

// Few rows at a time, so that all panels of a wide X row are read while its page is at hand.
template <bool Valued, typename Index, typename Value, typename Scalar>
INLINE void all_rows(Task<Index, Value, Scalar> task, int64_t columns) {
    const int64_t end = task.end;
    for (; task.begin < end; task.begin = task.end) {
        task.end = task.begin + kRowsAtOnce < end ? task.begin + kRowsAtOnce : end;
        all_panels<Valued>(task, columns);
    }
}

template <bool Valued, typename Index, typename Value, typename Scalar>
void portable(const Task<Index, Value, Scalar> &task, int64_t columns) {
    all_rows<Valued>(task, columns);
}

template <bool Valued, typename Index, typename Value, typename Scalar>
AVX2 void avx2(const Task<Index, Value, Scalar> &task, int64_t columns) {
    all_rows<Valued>(task, columns);
}

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Block = nb::ndarray<const T, nb::ndim<2>, nb::device::cpu>;
template <typename T>
using Output = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

template <typename Index, typename Value, typename Scalar>
void multiply_rows(Vector<int64_t> indptr, Vector<Index> indices, const Value *values, const Scalar *scale,
                   Block<Scalar> x, Output<Scalar> y, int64_t begin, int64_t end, bool use_avx2) {
    const Task<Index, Value, Scalar> task{indptr.data(), indices.data(), values,      scale, x.data(),
                                          y.data(),      x.stride(0),    y.stride(0), begin, end,
                                          indptr.data()[end] - 1};
    const int64_t columns = static_cast<int64_t>(x.shape(1));
    nb::gil_scoped_release release;
    if (values && use_avx2) avx2<true>(task, columns);
    else if (values) portable<true>(task, columns);
    else if (use_avx2) avx2<false>(task, columns);
    else portable<false>(task, columns);
}

template <typename Index, typename Value, typename Scalar>
void define(nb::module_ &m) {
    m.def(
        "multiply_rows",
        [](Vector<int64_t> indptr, Vector<Index> indices, std::optional<Vector<Value>> values,
           std::optional<Vector<Scalar>> scale, Block<Scalar> x, Output<Scalar> y, int64_t begin, int64_t end,
           bool use_avx2) {
            multiply_rows<Index, Value, Scalar>(indptr, indices, values ? values->data() : nullptr,
                                                scale ? scale->data() : nullptr, x, y, begin, end, use_avx2);
        },
        // No conversions: a converted y would be a copy, and the product would be lost with it.
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("values").none().noconvert(),
        nb::arg("scale").none().noconvert(), nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("begin"),
        nb::arg("end"), nb::arg("use_avx2"));
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
    define_push(m);
    m.def("has_avx2", [] {
#if HAVE_AVX2_VARIANT
        return bool(__builtin_cpu_supports("avx2")) && bool(__builtin_cpu_supports("fma"));
#else
        return false;
#endif
    });
}
