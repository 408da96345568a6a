// Graphs on disk: edges into buckets of rows, and every byte of a stored graph looked at before it is followed.
//
// Every call works on the calling thread with the GIL released; Python hands out the pieces.

#include "_folders.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

namespace nb = nanobind;

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Add what each node has in these edges to `counts`: a loop counts once, of a directed edge the source alone.
// Returns the number of loops.
int64_t count_ends(In<int32_t> sources, In<int32_t> targets, bool mirrored, Out<int64_t> counts) {
    nb::gil_scoped_release release;
    const int32_t *u = sources.data(), *v = targets.data();
    int64_t *count = counts.data(), loops = 0;
    for (size_t i = 0; i < sources.shape(0); ++i) {
        ++count[u[i]];
        if (u[i] == v[i]) ++loops;
        else if (mirrored) ++count[v[i]];
    }
    return loops;
}

// Place edges (and their mirror images) by bucket of their row, in the order given; bucket b comes to lie in
// starts[b] .. starts[b + 1] - 1.
void scatter_by_bucket(In<int32_t> sources, In<int32_t> targets, std::optional<In<double>> weights, In<int32_t> bucket_of,
                       bool mirrored, Out<int64_t> starts, Out<int32_t> rows, Out<int32_t> columns,
                       std::optional<Out<double>> values) {
    const double *w = weights ? weights->data() : nullptr;
    double *value = values ? values->data() : nullptr;
    nb::gil_scoped_release release;
    const int32_t *u = sources.data(), *v = targets.data(), *bucket = bucket_of.data();
    const size_t count = sources.shape(0), buckets = starts.shape(0) - 1;
    int64_t *start = starts.data();
    int32_t *row = rows.data(), *column = columns.data();
    std::fill(start, start + buckets + 1, 0);
    for (size_t i = 0; i < count; ++i) {
        ++start[bucket[u[i]] + 1];
        if (mirrored && u[i] != v[i]) ++start[bucket[v[i]] + 1];
    }
    for (size_t b = 0; b < buckets; ++b) start[b + 1] += start[b];
    const auto put = [&](int32_t from, int32_t to, size_t i) {
        const int64_t at = start[bucket[from]]++;
        row[at] = from;
        column[at] = to;
        if (value) value[at] = w[i];
    };
    for (size_t i = 0; i < count; ++i) {
        put(u[i], v[i], i);
        if (mirrored && u[i] != v[i]) put(v[i], u[i], i);
    }
    for (size_t b = buckets; b > 0; --b) start[b] = start[b - 1];  // each has moved to the start of the next
    start[0] = 0;
}

uint64_t mix(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

enum Fault : int { kFine, kRange, kOrder, kWeight };

// Entries begin..end-1 of a graph whose row pointers are known to be sound: columns in range and increasing in
// each row, weights finite and not negative. Returns what is wrong and where, the sums of h(row, column, weight)
// and of h(column, row, weight), the loops, and the sum of the weights.
template <typename Index>
nb::tuple check_entries(In<int64_t> indptr, In<Index> indices, std::optional<In<double>> weights, int64_t begin,
                        int64_t end, uint64_t seed) {
    const double *w = weights ? weights->data() : nullptr;
    const int64_t *start = indptr.data();
    const Index *column = indices.data();
    const int64_t rows = int64_t(indptr.shape(0)) - 1;
    uint64_t forward = 0, backward = 0;
    int64_t loops = 0, where = -1;
    double total = 0;
    Fault fault = kFine;
    {
        nb::gil_scoped_release release;
        int64_t row = std::upper_bound(start, start + rows + 1, begin) - start - 1;
        for (int64_t i = begin; i < end && fault == kFine; ++i) {
            while (start[row + 1] <= i) ++row;
            const int64_t c = column[i];
            if (c < 0 || c >= rows) fault = kRange;
            else if (i > start[row] && column[i - 1] >= column[i]) fault = kOrder;
            uint64_t key = seed;
            if (w) {
                if (!(w[i] >= 0) || !std::isfinite(w[i])) fault = kWeight;
                std::memcpy(&key, &w[i], sizeof key);
                key = mix(key, seed);
                total += w[i];
            }
            forward += mix(mix(uint64_t(row), key), uint64_t(c));
            backward += mix(mix(uint64_t(c), key), uint64_t(row));
            loops += c == row;
            if (fault != kFine) where = i;
        }
    }
    return nb::make_tuple(int(fault), where, forward, backward, loops, total);
}

bool valid_utf8(const unsigned char *p, const unsigned char *end) {
    while (p < end) {
        if (*p < 0x80) { ++p; continue; }
        const int extra = *p >= 0xC2 && *p <= 0xDF ? 1 : (*p & 0xF0) == 0xE0 ? 2 : *p >= 0xF0 && *p <= 0xF4 ? 3 : 0;
        if (extra == 0 || end - p <= extra) return false;
        if ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F)) return false;
        if ((*p == 0xF0 && p[1] < 0x90) || (*p == 0xF4 && p[1] > 0x8F)) return false;
        for (int i = 1; i <= extra; ++i)
            if ((p[i] & 0xC0) != 0x80) return false;
        p += extra + 1;
    }
    return true;
}

// The first of the texts begin..end-1 that is not UTF-8, or not above the one before it; −1 if all are sound.
int64_t check_texts(In<uint8_t> bytes, In<int64_t> offsets, int64_t begin, int64_t end) {
    nb::gil_scoped_release release;
    const unsigned char *data = bytes.data();
    const int64_t *at = offsets.data();
    for (int64_t i = begin; i < end; ++i) {
        if (!valid_utf8(data + at[i], data + at[i + 1])) return i;
        if (i == 0) continue;
        const int64_t before = at[i] - at[i - 1], own = at[i + 1] - at[i];
        const int sign = std::memcmp(data + at[i - 1], data + at[i], size_t(std::min(before, own)));
        if (sign > 0 || (sign == 0 && before >= own)) return i;
    }
    return -1;
}

template <typename Index>
void define_check(nb::module_ &m) {
    m.def("check_entries", &check_entries<Index>, nb::arg().noconvert(), nb::arg().noconvert(),
          nb::arg().none().noconvert(), nb::arg(), nb::arg(), nb::arg());
}

}  // namespace

void define_folders(nb::module_ &m) {
    m.def("count_ends", &count_ends, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg(), nb::arg().noconvert());
    m.def("scatter_by_bucket", &scatter_by_bucket, nb::arg().noconvert(), nb::arg().noconvert(),
          nb::arg().none().noconvert(), nb::arg().noconvert(), nb::arg(), nb::arg().noconvert(), nb::arg().noconvert(),
          nb::arg().noconvert(), nb::arg().none().noconvert());
    define_check<int32_t>(m);
    define_check<int64_t>(m);
    m.def("check_texts", &check_texts, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg(), nb::arg());
}
