// Forward push, and what is computed from its rows. Python hands out ranges of rows to its threads; every
// function here works on one range, without the interpreter's lock, and writes to memory of its own.
#include "_push.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

namespace nb = nanobind;

namespace {

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Output = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using OutputBlock = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

struct Rows {
    const int64_t *indptr;
    const int32_t *indices;
    const float *values;
};

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

// What a node holds during a push, in one piece that never lies across two cache lines.
struct alignas(16) Cell {
    float residual;  // negative: not reached yet
    float threshold;
    float settled;
};

constexpr float kUnreached = -1.0f;
constexpr int64_t kMostMarks = 1 << 13;
// Nodes of a list whose cells are asked for ahead: about as many as memory can have under way.
constexpr int64_t kAhead = 12;

class Pusher {
  public:
    Pusher(const int64_t *indptr, const int32_t *indices, const float *shares, const float *thresholds,
           int64_t nodes, float damping, int64_t keep)
        : indptr_(indptr), indices_(indices), shares_(shares), damping_(damping), keep_(keep),
          cells_(new Cell[nodes]), reached_(new int32_t[nodes + 1]), frontier_(new int32_t[nodes + 1]),
          pushed_(new int32_t[nodes + 1]), amounts_(new float[nodes + 1]) {
        for (int64_t node = 0; node < nodes; ++node) cells_[node] = {kUnreached, thresholds[node], 0.0f};
        if (nodes / 64 < kMostMarks) marks_.resize(nodes / 64 + 1, 0);
    }

    // The largest entries of row `source`, in the order of their columns; returns how many.
    int64_t row(int32_t source, int32_t *columns, float *values) {
        num_reached_ = num_frontier_ = 0;
        reached_[num_reached_++] = source;
        cells_[source].residual = 1.0f;
        if (1.0f > cells_[source].threshold) frontier_[num_frontier_++] = source;
        while (num_frontier_ > 0) {
            settle_frontier();
            if (shares_) spread([this](int64_t entry, float amount) { return amount * shares_[entry]; });
            else spread([](int64_t, float amount) { return amount; });
        }
        return collect(columns, values);
    }

  private:
    // All of a round's residuals are taken before any is spread: the outcome does not depend on the order of nodes.
    void settle_frontier() {
        pushed_.swap(frontier_);
        num_pushed_ = num_frontier_;
        num_frontier_ = 0;
        for (int64_t i = 0; i < num_pushed_; ++i) {
            if (i + kAhead < num_pushed_) {
                PREFETCH(&cells_[pushed_[i + kAhead]]);
                PREFETCH(indptr_ + pushed_[i + kAhead]);
            }
            const int32_t node = pushed_[i];
            Cell &cell = cells_[node];
            const float residual = cell.residual;
            cell.residual = 0.0f;
            cell.settled += (1.0f - damping_) * residual;
            const int64_t neighbours = indptr_[node + 1] - indptr_[node];
            PREFETCH(indices_ + indptr_[node]);
            amounts_[i] = shares_ ? damping_ * residual : damping_ * residual / static_cast<float>(neighbours);
        }
    }

    // Without branches: a list is written to always, and grows only if it should. Whether a node is reached for
    // the first time, or is now above its threshold, cannot be foreseen, and a wrong guess costs more than a store.
    template <typename Share>
    void spread(Share share) {
        Cell *const cells = cells_.get();
        int32_t *const reached = reached_.get(), *const frontier = frontier_.get();
        int64_t num_reached = num_reached_, num_frontier = 0;
        for (int64_t i = 0; i < num_pushed_; ++i) {
            const float amount = amounts_[i];
            const int64_t end = indptr_[pushed_[i] + 1];
            for (int64_t entry = indptr_[pushed_[i]]; entry < end; ++entry) {
                const int32_t node = indices_[entry];
                const float residual = cells[node].residual, threshold = cells[node].threshold;
                const float before = std::max(residual, 0.0f), after = before + share(entry, amount);
                cells[node].residual = after;
                reached[num_reached] = frontier[num_frontier] = node;
                num_reached += residual < 0.0f;
                num_frontier += (after > threshold) & (before <= threshold);
            }
        }
        num_reached_ = num_reached;
        num_frontier_ = num_frontier;
    }

    int64_t collect(int32_t *columns, float *values) {
        sizes_.clear();
        for (int64_t i = 0; i < num_reached_; ++i) {
            if (i + kAhead < num_reached_) PREFETCH(&cells_[reached_[i + kAhead]]);
            Cell &cell = cells_[reached_[i]];
            cell.settled += (1.0f - damping_) * cell.residual;
            cell.residual = kUnreached;
            sizes_.push_back(cell.settled);
        }
        const float least = smallest_kept();
        int64_t kept = 0, tied = 0;
        // Above the cut first; of those exactly at it as many as there is room for, the smaller nodes.
        for (int64_t i = 0; i < num_reached_; ++i) {
            const int32_t node = reached_[i];
            const float value = cells_[node].settled;
            if (value > least) columns[kept++] = node;
            else if (value == least && value > 0.0f) reached_[tied++] = node;
            else cells_[node].settled = 0.0f;
        }
        std::sort(reached_.get(), reached_.get() + tied);
        for (int64_t i = 0; i < tied; ++i) {
            if (kept < keep_) columns[kept++] = reached_[i];
            else cells_[reached_[i]].settled = 0.0f;
        }
        sort_columns(columns, kept);
        for (int64_t i = 0; i < kept; ++i) {
            Cell &cell = cells_[columns[i]];
            values[i] = cell.settled;
            cell.settled = 0.0f;
        }
        return kept;
    }

    // By a mark for each column, read from the first to the last, while that is shorter than sorting.
    void sort_columns(int32_t *columns, int64_t count) {
        if (marks_.empty()) {
            std::sort(columns, columns + count);
            return;
        }
        for (int64_t i = 0; i < count; ++i) marks_[columns[i] >> 6] |= uint64_t{1} << (columns[i] & 63);
        for (size_t word = 0; word < marks_.size(); ++word) {
            for (uint64_t left = marks_[word]; left; left &= left - 1)
                *columns++ = static_cast<int32_t>(word * 64 + lowest_bit(left));
            marks_[word] = 0;
        }
    }

    static int lowest_bit(uint64_t word) {
#if defined(__GNUC__)
        return __builtin_ctzll(word);
#else
        int place = 0;
        while (!(word >> place & 1)) ++place;
        return place;
#endif
    }

    float smallest_kept() {
        if (static_cast<int64_t>(sizes_.size()) <= keep_) return 0.0f;
        std::nth_element(sizes_.begin(), sizes_.begin() + (keep_ - 1), sizes_.end(), std::greater<float>());
        return sizes_[keep_ - 1];
    }

    const int64_t *indptr_;
    const int32_t *indices_;
    const float *shares_;
    const float damping_;
    const int64_t keep_;
    std::unique_ptr<Cell[]> cells_;
    // One place more than there are nodes: `spread` writes before it knows whether it should. Not filled with
    // zeros: of a large graph a row touches little, and what is not touched takes neither time nor memory.
    std::unique_ptr<int32_t[]> reached_, frontier_, pushed_;
    std::unique_ptr<float[]> amounts_;
    std::vector<float> sizes_;
    std::vector<uint64_t> marks_;
    int64_t num_reached_ = 0, num_frontier_ = 0, num_pushed_ = 0;
};

// The rows of `sources` one after another in `columns` and `values`; counts[i] says how long the i-th is.
void push_rows(Vector<int64_t> indptr, Vector<int32_t> indices, std::optional<Vector<float>> shares,
               Vector<float> thresholds, Vector<int32_t> sources, float damping, int64_t keep,
               Output<int64_t> counts, Output<int32_t> columns, Output<float> values) {
    const int64_t nodes = static_cast<int64_t>(thresholds.shape(0)), count = static_cast<int64_t>(sources.shape(0));
    nb::gil_scoped_release release;
    Pusher pusher(indptr.data(), indices.data(), shares ? shares->data() : nullptr, thresholds.data(), nodes,
                  damping, keep);
    int64_t at = 0;
    for (int64_t i = 0; i < count; ++i)
        at += counts.data()[i] = pusher.row(sources.data()[i], columns.data() + at, values.data() + at);
}

// out[i] = ⟨row u_i of left, row v_i of right⟩. Pairs with the same u stand together: its row is scattered once.
void overlap_pairs(Vector<int64_t> left_indptr, Vector<int32_t> left_indices, Vector<float> left_values,
                   Vector<int64_t> right_indptr, Vector<int32_t> right_indices, Vector<float> right_values,
                   Vector<int64_t> u, Vector<int64_t> v, Output<float> out, int64_t columns) {
    const Rows left{left_indptr.data(), left_indices.data(), left_values.data()};
    const Rows right{right_indptr.data(), right_indices.data(), right_values.data()};
    const int64_t pairs = static_cast<int64_t>(u.shape(0));
    nb::gil_scoped_release release;
    std::vector<float> dense(columns, 0.0f);
    int64_t current = -1;
    for (int64_t i = 0; i < pairs; ++i) {
        if (u.data()[i] != current) {
            if (current >= 0)
                for (int64_t e = left.indptr[current]; e < left.indptr[current + 1]; ++e) dense[left.indices[e]] = 0.0f;
            current = u.data()[i];
            for (int64_t e = left.indptr[current]; e < left.indptr[current + 1]; ++e)
                dense[left.indices[e]] = left.values[e];
        }
        const int64_t begin = right.indptr[v.data()[i]], end = right.indptr[v.data()[i] + 1];
        double sum = 0.0;
        for (int64_t e = begin; e < end; ++e) sum += static_cast<double>(dense[right.indices[e]]) * right.values[e];
        out.data()[i] = static_cast<float>(sum);
    }
}

// out[i, v - first] = Σ_x left[u_i, x] · transposed[x, v] for first ≤ v < last: one row of left against many of right.
void overlap_block(Vector<int64_t> left_indptr, Vector<int32_t> left_indices, Vector<float> left_values,
                   Vector<int64_t> indptr, Vector<int32_t> indices, Vector<float> values, Vector<int64_t> u,
                   OutputBlock<float> out, int64_t first) {
    const Rows left{left_indptr.data(), left_indices.data(), left_values.data()};
    const Rows transposed{indptr.data(), indices.data(), values.data()};
    const int64_t rows = static_cast<int64_t>(u.shape(0)), width = static_cast<int64_t>(out.shape(1));
    nb::gil_scoped_release release;
    std::fill(out.data(), out.data() + rows * width, 0.0f);
    for (int64_t i = 0; i < rows; ++i) {
        float *row = out.data() + i * width;
        for (int64_t e = left.indptr[u.data()[i]]; e < left.indptr[u.data()[i] + 1]; ++e) {
            const int32_t *begin = transposed.indices + transposed.indptr[left.indices[e]];
            const int32_t *end = transposed.indices + transposed.indptr[left.indices[e] + 1];
            const int32_t *at = first > 0 ? std::lower_bound(begin, end, first) : begin;
            for (; at != end && *at - first < width; ++at)
                row[*at - first] += left.values[e] * transposed.values[at - transposed.indices];
        }
    }
}

// log(1 + x) for x ≥ 0, to a few units of the last place; in a form that the compiler turns into wide instructions.
inline float log_of_one_plus(float x) {
    const float y = 1.0f + x;
    uint32_t bits;
    std::memcpy(&bits, &y, sizeof bits);
    // y = 2^e m with m from √½ to √2.
    const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
    bits -= static_cast<uint32_t>(e) << 23;
    float m;
    std::memcpy(&m, &bits, sizeof m);
    // What 1 + x lost of a small x is put back to first order.
    const float lost = (x - (y - 1.0f)) / y;
    const float f = m - 1.0f, s = f / (2.0f + f), z = s * s;
    const float series = z * (0.66666662693f + z * (0.40000972152f + z * (0.28498786688f + z * 0.24279078841f)));
    const float half = 0.5f * f * f;
    return static_cast<float>(e) * 0.69314718056f + (f - (half - s * (half + series))) + lost;
}

// Rows `begin` to `end` of log(1 + max(a_row a a_column, b_row b b_column)) over the union of a and b, without the
// diagonal, one after another from `indices` and `values` on; counts says how long each is.
void merge_logs(Vector<int64_t> a_indptr, Vector<int32_t> a_indices, Vector<float> a_values, Vector<float> a_row,
                Vector<float> a_column, Vector<int64_t> b_indptr, Vector<int32_t> b_indices, Vector<float> b_values,
                Vector<float> b_row, Vector<float> b_column, Output<int64_t> counts, Output<int32_t> indices,
                Output<float> values, int64_t begin, int64_t end) {
    const Rows a{a_indptr.data(), a_indices.data(), a_values.data()};
    const Rows b{b_indptr.data(), b_indices.data(), b_values.data()};
    nb::gil_scoped_release release;
    int32_t *column = indices.data();
    float *value = values.data();
    for (int64_t row = begin; row < end; ++row) {
        int64_t i = a.indptr[row], j = b.indptr[row], count = 0;
        const int64_t i_end = a.indptr[row + 1], j_end = b.indptr[row + 1];
        while (i < i_end || j < j_end) {
            const int32_t in_a = i < i_end ? a.indices[i] : INT32_MAX, in_b = j < j_end ? b.indices[j] : INT32_MAX;
            const int32_t next = std::min(in_a, in_b);
            const float x = in_a == next ? a.values[i] * a_row.data()[row] * a_column.data()[next] : 0.0f;
            const float y = in_b == next ? b.values[j] * b_row.data()[row] * b_column.data()[next] : 0.0f;
            i += in_a == next;
            j += in_b == next;
            column[count] = next;
            value[count] = std::max(x, y);
            count += next != row;
        }
        for (int64_t k = 0; k < count; ++k) value[k] = log_of_one_plus(value[k]);
        counts.data()[row] = count;
        column += count;
        value += count;
    }
}

// out = log(1 + row_scale values column_scale) of rows `begin` to `end`, and the sum and the squares' sum of each row.
void log_rows(Vector<int64_t> indptr, Vector<int32_t> indices, Vector<float> values, Vector<float> row_scale,
              Vector<float> column_scale, Output<float> out, Output<double> sums, Output<double> squares, int64_t begin,
              int64_t end) {
    nb::gil_scoped_release release;
    const float *const columns = column_scale.data(), *const value = values.data();
    float *const log = out.data();
    for (int64_t row = begin; row < end; ++row) {
        const int64_t first = indptr.data()[row], last = indptr.data()[row + 1];
        const float scale = row_scale.data()[row];
        for (int64_t entry = first; entry < last; ++entry) log[entry] = scale * value[entry] * columns[indices.data()[entry]];
        for (int64_t entry = first; entry < last; ++entry) log[entry] = log_of_one_plus(log[entry]);
        double sum = 0.0, square = 0.0;
        for (int64_t entry = first; entry < last; ++entry) {
            sum += log[entry];
            square += static_cast<double>(log[entry]) * log[entry];
        }
        sums.data()[row] = sum;
        squares.data()[row] = square;
    }
}

// counts[column] += 1 for the entries from `begin` to `end`.
void count_columns(Vector<int32_t> indices, Output<int64_t> counts, int64_t begin, int64_t end) {
    nb::gil_scoped_release release;
    for (int64_t entry = begin; entry < end; ++entry) ++counts.data()[indices.data()[entry]];
}

// Puts the entries of rows `begin` to `end` where `offsets`, one for each column, says, and moves the offsets on.
void scatter_columns(Vector<int64_t> indptr, Vector<int32_t> indices, Vector<float> values, Output<int64_t> offsets,
                     Output<int32_t> rows, Output<float> out, int64_t begin, int64_t end) {
    nb::gil_scoped_release release;
    for (int64_t row = begin; row < end; ++row) {
        for (int64_t entry = indptr.data()[row]; entry < indptr.data()[row + 1]; ++entry) {
            const int64_t at = offsets.data()[indices.data()[entry]]++;
            rows.data()[at] = static_cast<int32_t>(row);
            out.data()[at] = values.data()[entry];
        }
    }
}

}  // namespace

void define_push(nb::module_ &m) {
    // No conversions: a converted output would be a copy, and the result would be lost with it.
    const auto exact = [](const char *name) { return nb::arg(name).noconvert(); };
    m.def("push_rows", &push_rows, exact("indptr"), exact("indices"), exact("shares").none(), exact("thresholds"),
          exact("sources"), nb::arg("damping"), nb::arg("keep"), exact("counts"), exact("columns"), exact("values"));
    m.def("overlap_pairs", &overlap_pairs, exact("left_indptr"), exact("left_indices"), exact("left_values"),
          exact("right_indptr"), exact("right_indices"), exact("right_values"), exact("u"), exact("v"), exact("out"),
          nb::arg("columns"));
    m.def("overlap_block", &overlap_block, exact("left_indptr"), exact("left_indices"), exact("left_values"),
          exact("indptr"), exact("indices"), exact("values"), exact("u"), exact("out"), nb::arg("first"));
    m.def("merge_logs", &merge_logs, exact("a_indptr"), exact("a_indices"), exact("a_values"), exact("a_row"),
          exact("a_column"), exact("b_indptr"), exact("b_indices"), exact("b_values"), exact("b_row"),
          exact("b_column"), exact("counts"), exact("indices"), exact("values"), nb::arg("begin"), nb::arg("end"));
    m.def("count_columns", &count_columns, exact("indices"), exact("counts"), nb::arg("begin"), nb::arg("end"));
    m.def("scatter_columns", &scatter_columns, exact("indptr"), exact("indices"), exact("values"), exact("offsets"),
          exact("rows"), exact("out"), nb::arg("begin"), nb::arg("end"));
    m.def("log_rows", &log_rows, exact("indptr"), exact("indices"), exact("values"), exact("row_scale"),
          exact("column_scale"), exact("out"), exact("sums"), exact("squares"), nb::arg("begin"), nb::arg("end"));
}
