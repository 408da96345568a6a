// Forward push, and what is computed from its rows. Python hands out ranges of rows to its threads; every
// function here works on one range, without the interpreter's lock, and writes to memory of its own.
#include "_push.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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

// What a node holds during a push: beside its residual the threshold, so that both come with one cache line.
struct Cell {
    float residual;
    float threshold;
};

class Pusher {
  public:
    Pusher(const int64_t *indptr, const int32_t *indices, const float *shares, const float *thresholds,
           int64_t nodes, float damping, int64_t keep)
        : indptr_(indptr), indices_(indices), shares_(shares), damping_(damping), keep_(keep),
          cells_(nodes), settled_(nodes, 0.0f) {
        for (int64_t node = 0; node < nodes; ++node) cells_[node] = {0.0f, thresholds[node]};
    }

    // The largest entries of row `source`, in the order of their columns; returns how many.
    int64_t row(int32_t source, int32_t *columns, float *values) {
        touched_.assign(1, source);
        frontier_.clear();
        cells_[source].residual = 1.0f;
        if (1.0f > cells_[source].threshold) frontier_.push_back(source);
        while (!frontier_.empty()) {
            settle_frontier();
            for (size_t i = 0; i < amounts_.size(); ++i) spread(pushed_[i], amounts_[i]);
        }
        return collect(columns, values);
    }

  private:
    // All of a round's residuals are taken before any is spread: the outcome does not depend on the order of nodes.
    void settle_frontier() {
        pushed_.swap(frontier_);
        frontier_.clear();
        amounts_.resize(pushed_.size());
        for (size_t i = 0; i < pushed_.size(); ++i) {
            float &residual = cells_[pushed_[i]].residual;
            amounts_[i] = damping_ * residual;
            settled_[pushed_[i]] += (1.0f - damping_) * residual;
            residual = 0.0f;
        }
    }

    void spread(int32_t node, float amount) {
        const int64_t begin = indptr_[node], end = indptr_[node + 1];
        if (shares_) {
            for (int64_t e = begin; e < end; ++e) receive(indices_[e], amount * shares_[e]);
        } else if (end > begin) {
            const float share = amount / static_cast<float>(end - begin);
            for (int64_t e = begin; e < end; ++e) receive(indices_[e], share);
        }
    }

    void receive(int32_t node, float amount) {
        Cell &cell = cells_[node];
        const float before = cell.residual, after = before + amount;
        cell.residual = after;
        if (before == 0.0f && after > 0.0f && settled_[node] == 0.0f) touched_.push_back(node);
        if (after > cell.threshold && before <= cell.threshold) frontier_.push_back(node);
    }

    int64_t collect(int32_t *columns, float *values) {
        best_.clear();
        for (int32_t node : touched_) {
            const float value = settled_[node] + (1.0f - damping_) * cells_[node].residual;
            if (value > 0.0f) best_.emplace_back(-value, node);
            settled_[node] = cells_[node].residual = 0.0f;
        }
        if (static_cast<int64_t>(best_.size()) > keep_) {
            std::nth_element(best_.begin(), best_.begin() + keep_, best_.end());
            best_.resize(keep_);
        }
        std::sort(best_.begin(), best_.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
        for (size_t i = 0; i < best_.size(); ++i) {
            columns[i] = best_[i].second;
            values[i] = -best_[i].first;
        }
        return static_cast<int64_t>(best_.size());
    }

    const int64_t *indptr_;
    const int32_t *indices_;
    const float *shares_;
    const float damping_;
    const int64_t keep_;
    std::vector<Cell> cells_;
    std::vector<float> settled_;
    std::vector<int32_t> touched_, frontier_, pushed_;
    std::vector<float> amounts_;
    std::vector<std::pair<float, int32_t>> best_;
};

void push_rows(Vector<int64_t> indptr, Vector<int32_t> indices, std::optional<Vector<float>> shares,
               Vector<float> thresholds, Vector<int32_t> sources, float damping, Output<int64_t> counts,
               OutputBlock<int32_t> columns, OutputBlock<float> values) {
    const int64_t nodes = static_cast<int64_t>(thresholds.shape(0));
    const int64_t keep = static_cast<int64_t>(columns.shape(1)), count = static_cast<int64_t>(sources.shape(0));
    nb::gil_scoped_release release;
    Pusher pusher(indptr.data(), indices.data(), shares ? shares->data() : nullptr, thresholds.data(), nodes,
                  damping, keep);
    for (int64_t i = 0; i < count; ++i)
        counts.data()[i] = pusher.row(sources.data()[i], columns.data() + i * keep, values.data() + i * keep);
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

// The union of rows a and b without the diagonal, entry by entry, each to be seen once.
template <typename Visit>
void each_in_union(const Rows &a, const Rows &b, int64_t row, Visit visit) {
    int64_t i = a.indptr[row], j = b.indptr[row];
    const int64_t i_end = a.indptr[row + 1], j_end = b.indptr[row + 1];
    while (i < i_end || j < j_end) {
        const int64_t from_a = i < i_end ? a.indices[i] : INT64_MAX, from_b = j < j_end ? b.indices[j] : INT64_MAX;
        const int64_t column = std::min(from_a, from_b);
        const float in_a = from_a == column ? a.values[i++] : 0.0f, in_b = from_b == column ? b.values[j++] : 0.0f;
        if (column != row) visit(static_cast<int32_t>(column), in_a, in_b);
    }
}

void count_union(Vector<int64_t> a_indptr, Vector<int32_t> a_indices, Vector<float> a_values,
                 Vector<int64_t> b_indptr, Vector<int32_t> b_indices, Vector<float> b_values, Output<int64_t> counts,
                 int64_t begin, int64_t end) {
    const Rows a{a_indptr.data(), a_indices.data(), a_values.data()};
    const Rows b{b_indptr.data(), b_indices.data(), b_values.data()};
    nb::gil_scoped_release release;
    for (int64_t row = begin; row < end; ++row) {
        int64_t count = 0;
        each_in_union(a, b, row, [&](int32_t, float, float) { ++count; });
        counts.data()[row] = count;
    }
}

// values = log(1 + max(a_row a a_column, b_row b b_column)) over the union of a and b, the diagonal left out.
void merge_logs(Vector<int64_t> a_indptr, Vector<int32_t> a_indices, Vector<float> a_values, Vector<float> a_row,
                Vector<float> a_column, Vector<int64_t> b_indptr, Vector<int32_t> b_indices, Vector<float> b_values,
                Vector<float> b_row, Vector<float> b_column, Vector<int64_t> indptr, Output<int32_t> indices,
                Output<float> values, int64_t begin, int64_t end) {
    const Rows a{a_indptr.data(), a_indices.data(), a_values.data()};
    const Rows b{b_indptr.data(), b_indices.data(), b_values.data()};
    nb::gil_scoped_release release;
    for (int64_t row = begin; row < end; ++row) {
        int64_t at = indptr.data()[row];
        each_in_union(a, b, row, [&](int32_t column, float in_a, float in_b) {
            const float x = in_a * a_row.data()[row] * a_column.data()[column];
            const float y = in_b * b_row.data()[row] * b_column.data()[column];
            indices.data()[at] = column;
            values.data()[at++] = std::log1p(std::max(x, y));
        });
    }
}

}  // namespace

void define_push(nb::module_ &m) {
    // No conversions: a converted output would be a copy, and the result would be lost with it.
    const auto exact = [](const char *name) { return nb::arg(name).noconvert(); };
    m.def("push_rows", &push_rows, exact("indptr"), exact("indices"), exact("shares").none(), exact("thresholds"),
          exact("sources"), nb::arg("damping"), exact("counts"), exact("columns"), exact("values"));
    m.def("overlap_pairs", &overlap_pairs, exact("left_indptr"), exact("left_indices"), exact("left_values"),
          exact("right_indptr"), exact("right_indices"), exact("right_values"), exact("u"), exact("v"), exact("out"),
          nb::arg("columns"));
    m.def("overlap_block", &overlap_block, exact("left_indptr"), exact("left_indices"), exact("left_values"),
          exact("indptr"), exact("indices"), exact("values"), exact("u"), exact("out"), nb::arg("first"));
    m.def("count_union", &count_union, exact("a_indptr"), exact("a_indices"), exact("a_values"), exact("b_indptr"),
          exact("b_indices"), exact("b_values"), exact("counts"), nb::arg("begin"), nb::arg("end"));
    m.def("merge_logs", &merge_logs, exact("a_indptr"), exact("a_indices"), exact("a_values"), exact("a_row"),
          exact("a_column"), exact("b_indptr"), exact("b_indices"), exact("b_values"), exact("b_row"),
          exact("b_column"), exact("indptr"), exact("indices"), exact("values"), nb::arg("begin"), nb::arg("end"));
}
