// Low-pass filters of a graph, one panel of columns at a time:
//
//     y[i, :] = rate[i] * (x[i, :] + sum_e values[e] * x[indices[e], :]) + keep * b[i, :]
//
// Panels are contiguous and a row of one is a cache line at most: what a gather fetches is what it uses, and as
// many rows as can be stay in the cache. The pattern is the graph's own, so a filter needs no second copy of it.
// Every entry is one sum in CSR order, whatever the ranges of rows are, so threads never change a bit.

#include "_filters.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace nb = nanobind;

#define UNROLL _Pragma("GCC unroll 8")
#define INLINE __attribute__((always_inline)) inline
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#else
#define AVX2
#endif

namespace {

constexpr int64_t kAhead = 24;
constexpr int kPackBytes = 32, kLine = 64;

template <typename Scalar>
struct Pack {
    typedef Scalar type __attribute__((vector_size(kPackBytes)));
};

template <typename Index, typename Value, typename Scalar>
struct Filter {
    const int64_t *indptr;
    const Index *indices;
    const Value *values;  // null: every stored entry is 1
    const Scalar *rate;
    const Scalar *b;
    Scalar keep;
    int64_t begin, end;
    int64_t last;  // last entry that may be fetched ahead
};

// One step for a range of rows; a row of a panel is `Packs` registers.
template <int Packs, bool Valued, typename Index, typename Value, typename Scalar>
INLINE void step(const Filter<Index, Value, Scalar> &f, const Scalar *x, Scalar *y) {
    using Register = typename Pack<Scalar>::type;
    constexpr int kLanes = kPackBytes / sizeof(Scalar), kWidth = Packs * kLanes;
    for (int64_t row = f.begin; row < f.end; ++row) {
        Register sum[Packs], part;
        std::memcpy(sum, x + row * kWidth, sizeof(sum));
        const int64_t end = f.indptr[row + 1];
        for (int64_t e = f.indptr[row]; e < end; ++e) {
            const int64_t ahead = e + kAhead < f.last ? e + kAhead : f.last;
            const char *next = reinterpret_cast<const char *>(x + int64_t(f.indices[ahead]) * kWidth);
            UNROLL for (int byte = 0; byte < Packs * kPackBytes; byte += kLine) __builtin_prefetch(next + byte);
            const Scalar *gathered = x + int64_t(f.indices[e]) * kWidth;
            UNROLL for (int p = 0; p < Packs; ++p) {
                std::memcpy(&part, gathered + p * kLanes, sizeof(part));
                if constexpr (Valued) sum[p] += static_cast<Scalar>(f.values[e]) * part;
                else sum[p] += part;
            }
        }
        const Scalar rate = f.rate[row], keep = f.keep;
        UNROLL for (int p = 0; p < Packs; ++p) {
            std::memcpy(&part, f.b + row * kWidth + p * kLanes, sizeof(part));
            const Register out = rate * sum[p] + keep * part;
            std::memcpy(y + row * kWidth + p * kLanes, &out, sizeof(out));
        }
    }
}

template <int Packs, bool Valued, typename Index, typename Value, typename Scalar>
void portable(const Filter<Index, Value, Scalar> &f, const Scalar *x, Scalar *y) {
    step<Packs, Valued>(f, x, y);
}

template <int Packs, bool Valued, typename Index, typename Value, typename Scalar>
AVX2 void avx2(const Filter<Index, Value, Scalar> &f, const Scalar *x, Scalar *y) {
    step<Packs, Valued>(f, x, y);
}

template <int Packs, typename Index, typename Value, typename Scalar>
void run(const Filter<Index, Value, Scalar> &f, Scalar *x, Scalar *y, int64_t steps, bool use_avx2) {
    for (; steps > 0; --steps, std::swap(x, y)) {
        if (f.values && use_avx2) avx2<Packs, true>(f, x, y);
        else if (f.values) portable<Packs, true>(f, x, y);
        else if (use_avx2) avx2<Packs, false>(f, x, y);
        else portable<Packs, false>(f, x, y);
    }
}

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Panel = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Block = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

template <typename Index, typename Value, typename Scalar>
void define_steps(nb::module_ &m) {
    m.def(
        "filter_panel",
        [](Vector<int64_t> indptr, Vector<Index> indices, std::optional<Vector<Value>> values, Vector<Scalar> rate,
           Panel<Scalar> b, Panel<Scalar> x, Panel<Scalar> y, double keep, int64_t begin, int64_t end, int64_t steps,
           bool use_avx2) {
            const Filter<Index, Value, Scalar> f{indptr.data(), indices.data(), values ? values->data() : nullptr,
                                                 rate.data(),   b.data(),       Scalar(keep),
                                                 begin,         end,            indptr.data()[end] - 1};
            const size_t packs = x.shape(1) * sizeof(Scalar) / kPackBytes;
            Scalar *from = x.data(), *to = y.data();
            nb::gil_scoped_release release;
            if (packs == 8) run<8>(f, from, to, steps, use_avx2);
            else if (packs == 4) run<4>(f, from, to, steps, use_avx2);
            else if (packs == 2) run<2>(f, from, to, steps, use_avx2);
            else run<1>(f, from, to, steps, use_avx2);
        },
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("values").none().noconvert(),
        nb::arg("rate").noconvert(), nb::arg("b").noconvert(), nb::arg("x").noconvert(), nb::arg("y").noconvert(),
        nb::arg("keep"), nb::arg("begin"), nb::arg("end"), nb::arg("steps"), nb::arg("use_avx2"));
}

// Columns of a block into a panel, each row times its scale, zeros in what is left of the panel.
template <typename Scalar>
void define_copies(nb::module_ &m) {
    m.def(
        "load_panel",
        [](Block<const Scalar> block, std::optional<Vector<Scalar>> scale, Panel<Scalar> panel, int64_t begin,
           int64_t end) {
            const int64_t width = panel.shape(1), columns = block.shape(1), stride = block.stride(0);
            const Scalar *from = block.data(), *scales = scale ? scale->data() : nullptr;
            Scalar *to = panel.data();
            nb::gil_scoped_release release;
            for (int64_t row = begin; row < end; ++row) {
                const Scalar factor = scales ? scales[row] : Scalar(1);
                for (int64_t c = 0; c < columns; ++c) to[row * width + c] = factor * from[row * stride + c];
                for (int64_t c = columns; c < width; ++c) to[row * width + c] = 0;
            }
        },
        nb::arg("block").noconvert(), nb::arg("scale").none().noconvert(), nb::arg("panel").noconvert(),
        nb::arg("begin"), nb::arg("end"));
    m.def(
        "store_panel",
        [](Panel<const Scalar> panel, std::optional<Vector<Scalar>> scale, Block<Scalar> block, int64_t begin,
           int64_t end) {
            const int64_t width = panel.shape(1), columns = block.shape(1), stride = block.stride(0);
            const Scalar *from = panel.data(), *scales = scale ? scale->data() : nullptr;
            Scalar *to = block.data();
            nb::gil_scoped_release release;
            for (int64_t row = begin; row < end; ++row) {
                const Scalar divisor = scales ? scales[row] : Scalar(1);
                for (int64_t c = 0; c < columns; ++c) to[row * stride + c] = from[row * width + c] / divisor;
            }
        },
        nb::arg("panel").noconvert(), nb::arg("scale").none().noconvert(), nb::arg("block").noconvert(),
        nb::arg("begin"), nb::arg("end"));
}

}  // namespace

void define_filters(nb::module_ &m) {
    define_steps<int32_t, float, float>(m);
    define_steps<int64_t, float, float>(m);
    define_steps<int32_t, double, double>(m);
    define_steps<int64_t, double, double>(m);
    define_copies<float>(m);
    define_copies<double>(m);
}
