// Edge lists at memory speed: text → node numbers, and pairs of node numbers → compressed sparse rows.
//
// Every call works on the calling thread with the GIL released; Python hands out the pieces. The results do
// not depend on the pieces or on the number of threads: nodes are numbered by where their ids first appear,
// and repeated edges keep the order in which they were given.

#include "_edges.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace nb = nanobind;

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// ---- ids → numbers

struct Token {
    const char *text;
    uint32_t length;
    bool canonical;   // decimal digits without a leading zero, below 10⁹: the number says it all
    uint32_t number;  // if canonical
};

Token canonical_token(const char *text, uint32_t length) {
    Token token{text, length, false, 0};
    if (token.length == 0 || token.length > 9 || (*text == '0' && token.length > 1)) return token;
    for (uint32_t i = 0; i < token.length; ++i) {
        if (text[i] < '0' || text[i] > '9') return token;
        token.number = 10 * token.number + uint32_t(text[i] - '0');
    }
    token.canonical = true;
    return token;
}

bool valid_utf8(const char *text, size_t length) {
    const unsigned char *p = reinterpret_cast<const unsigned char *>(text), *end = p + length;
    while (p < end) {
        if (*p < 0x80) { ++p; continue; }
        int extra = *p >= 0xC2 && *p <= 0xDF ? 1 : (*p & 0xF0) == 0xE0 ? 2 : *p >= 0xF0 && *p <= 0xF4 ? 3 : 0;
        if (extra == 0 || end - p <= extra) return false;
        const unsigned char second = p[1];
        if ((*p == 0xE0 && second < 0xA0) || (*p == 0xED && second > 0x9F)) return false;  // overlong, surrogate
        if ((*p == 0xF0 && second < 0x90) || (*p == 0xF4 && second > 0x8F)) return false;  // overlong, above U+10FFFF
        for (int i = 1; i <= extra; ++i)
            if ((p[i] & 0xC0) != 0x80) return false;
        p += extra + 1;
    }
    return true;
}

uint64_t mix(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Memory that is looked up at random: on large pages where the system has them, or most of the time goes into
// finding out where the pages are.
template <typename T>
struct LargePages {
    using value_type = T;
    static constexpr size_t kPage = size_t(1) << 21;

    LargePages() = default;
    template <typename Other>
    LargePages(const LargePages<Other> &) {}

    T *allocate(size_t count) {
        const size_t bytes = (count * sizeof(T) + kPage - 1) / kPage * kPage;
        void *memory = count * sizeof(T) < kPage ? std::malloc(count * sizeof(T)) : std::aligned_alloc(kPage, bytes);
        if (!memory) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
        if (count * sizeof(T) >= kPage) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
        return static_cast<T *>(memory);
    }
    void deallocate(T *memory, size_t) { std::free(memory); }
    bool operator==(const LargePages &) const { return true; }
    bool operator!=(const LargePages &) const { return false; }
};

// Distinct ids in order of arrival. Ids of up to 15 bytes are compared inside the hash table, integers that
// are not far apart are found in a plain array.
class IdTable {
  public:
    static constexpr int32_t kNone = -1, kNotText = -2, kFull = -3;
    static constexpr size_t kLarge = size_t(1) << 20;

    IdTable() : slots_(1 << 12), offsets_(1, 0) { seed_ = (uint64_t(std::random_device{}()) << 32) | std::random_device{}(); }

    size_t size() const { return first_.size(); }
    const char *text(size_t code) const { return bytes_.data() + offsets_[code]; }
    size_t length(size_t code) const { return offsets_[code + 1] - offsets_[code]; }
    int64_t first(size_t code) const { return first_[code]; }

    // Bytes that the table has asked for.
    size_t memory() const {
        return slots_.capacity() * sizeof(Slot) + direct_.capacity() * sizeof(int32_t) + bytes_.capacity() +
               offsets_.capacity() * sizeof(uint64_t) + first_.capacity() * sizeof(int64_t);
    }

    // Keep the ids, but not what finds them: nothing can be looked up any more.
    void forget_places() {
        decltype(slots_)().swap(slots_);
        decltype(direct_)().swap(direct_);
        std::vector<int64_t>(size()).swap(first_);
    }

    // Where to look for an id. Found out for many ids ahead of looking, so that memory has time to answer.
    struct Place { uint64_t low = 0, high = 0, hash = 0; };

    // `end` is where the text may be read to.
    Place place(const Token &token, const char *end) const {
        if (token.canonical && token.number < direct_.size()) {
            __builtin_prefetch(&direct_[token.number]);
            return {};
        }
        const Place found = key_of(token, end);
        __builtin_prefetch(&slots_[found.hash & (slots_.size() - 1)]);
        return found;
    }

    // The number of an id; `position` is where it stands in the text.
    int32_t number(const Token &token, Place place, int64_t position) {
        if (!token.canonical) return lookup(token, place, position);
        if (token.number >= direct_.size() && !widen(token.number)) return lookup(token, place, position);
        int32_t &code = direct_[token.number];
        return code == kNone ? code = append(token, position) : code;
    }

  private:
    struct Slot { uint64_t low = 0, high = 0; int32_t code = kNone; uint32_t unused[3] = {}; };

    Place key_of(const Token &token, const char *end) const {
        if (token.length > 15) return long_key(token);
        uint64_t key[2] = {0, 0};
        if (token.text + 16 <= end) {
            std::memcpy(key, token.text, 16);
            if (token.length < 8) { key[0] &= ~(~uint64_t(0) << (8 * token.length)); key[1] = 0; }
            else key[1] &= ~(~uint64_t(0) << (8 * (token.length - 8)));
        } else {
            std::memcpy(key, token.text, token.length);
        }
        return hashed(key[0], key[1] | uint64_t(token.length) << 56);
    }

    Place long_key(const Token &token) const {
        uint64_t a = seed_, b = ~seed_;
        const char *p = token.text, *end = token.text + token.length;
        for (; end - p >= 8; p += 8) {
            uint64_t word;
            std::memcpy(&word, p, 8);
            a = mix(a ^ word, b);
            b += word * 0xA0761D6478BD642Fu + (b >> 29);
        }
        uint64_t word = 0;
        std::memcpy(&word, p, end - p);
        a = mix(a ^ word, b ^ token.length);
        return hashed(a, mix(b, a ^ word) | (uint64_t(0xFF) << 56));
    }

    Place hashed(uint64_t low, uint64_t high) const { return {low, high, mix(low ^ seed_, high) | 1u << 31}; }

    int32_t lookup(const Token &token, const Place &key, int64_t position) {
        size_t at = key.hash & (slots_.size() - 1);
        for (; slots_[at].code != kNone; at = (at + 1) & (slots_.size() - 1)) {
            const Slot &slot = slots_[at];
            if (slot.low != key.low || slot.high != key.high) continue;
            if (token.length <= 15 || same(slot.code, token)) return slot.code;
        }
        return insert(key, token, position, at);
    }

    bool same(int32_t code, const Token &token) const {
        return length(code) == token.length && std::memcmp(text(code), token.text, token.length) == 0;
    }

    int32_t insert(const Place &key, const Token &token, int64_t position, size_t at) {
        if (!token.canonical && !valid_utf8(token.text, token.length)) return kNotText;
        const int32_t code = append(token, position);
        if (code == kFull) return code;
        slots_[at] = {key.low, key.high, code};
        ++hashed_count_;
        // Half empty while small; a large table would rather be small.
        if (slots_.size() < kLarge ? 2 * hashed_count_ > slots_.size() : 4 * hashed_count_ > 3 * slots_.size()) grow();
        return code;
    }

    int32_t append(const Token &token, int64_t position) {
        if (size() >= size_t(INT32_MAX)) return kFull;
        bytes_.insert(bytes_.end(), token.text, token.text + token.length);
        offsets_.push_back(bytes_.size());
        first_.push_back(position);
        return static_cast<int32_t>(size() - 1);
    }

    void grow() {
        std::vector<Slot, LargePages<Slot>> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot &slot : old) {
            if (slot.code == kNone) continue;
            size_t at = hashed(slot.low, slot.high).hash & (slots_.size() - 1);
            while (slots_[at].code != kNone) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = slot;
        }
    }

    // An array over all integers up to `number`, as long as it stays in proportion to the ids.
    bool widen(uint32_t number) {
        if (number >= std::max<size_t>(1 << 16, 16 * size())) return false;
        const size_t before = direct_.size();
        direct_.resize(std::max<size_t>(1 << 16, 2 * size_t(number)), kNone);
        for (size_t code = 0; code < size(); ++code) {  // those that were too far off until now
            const Token token = canonical_token(text(code), uint32_t(length(code)));
            if (token.canonical && token.number >= before && token.number < direct_.size())
                direct_[token.number] = int32_t(code);
        }
        return true;
    }

    std::vector<Slot, LargePages<Slot>> slots_;
    std::vector<int32_t, LargePages<int32_t>> direct_;
    std::vector<char> bytes_;
    std::vector<uint64_t> offsets_;
    std::vector<int64_t> first_;
    size_t hashed_count_ = 0;
    uint64_t seed_;
};

// ---- text → edges

struct Dialect {
    char delimiter;      // 0: any run of blanks and tabs
    bool quoting;
    char comment;        // lines that begin with it are skipped; 0: none
    bool ask_about_hash; // a line that begins with # though comments are not known: skip, or ask if it looks like data
    int columns, source, target, weight;  // weight −1: none
    char decimal;
};

enum Fault : int {
    kFine, kColumns, kEmptyId, kNul, kUnclosed, kAfterQuote, kNotText, kNotNumber, kNotFinite, kNegative, kHash, kTooMany
};

struct Report {
    Fault fault = kFine;
    int64_t line = 0;
    int column = 0;
    std::string value;
};

constexpr size_t kShown = 200;

double parsed_number(std::string text, char decimal, Fault &fault) {
    if (decimal != '.') {
        if (text.find('.') != std::string::npos) { fault = kNotNumber; return 0; }
        std::replace(text.begin(), text.end(), decimal, '.');
    }
    const char *p = text.c_str(), *end = p + text.size();
    const char *body = p + (p < end && (*p == '+' || *p == '-'));
    std::string lower(body, end);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == "inf" || lower == "infinity" || lower == "nan") { fault = kNotFinite; return 0; }
    if (body == end || !(std::isdigit(static_cast<unsigned char>(*body)) || *body == '.')) { fault = kNotNumber; return 0; }
    double value = 0;
    const auto result = std::from_chars(body, end, value);
    if (result.ptr != end) { fault = kNotNumber; return 0; }
    if (result.ec == std::errc::result_out_of_range) value = std::strtod(body, nullptr);
    else if (result.ec != std::errc()) { fault = kNotNumber; return 0; }
    if (!std::isfinite(value)) { fault = kNotFinite; return 0; }
    if (*p == '-' && value != 0) fault = kNegative;
    return value;
}

class Scanner {
  public:
    explicit Scanner(const Dialect &dialect) : dialect_(dialect) {
        std::memset(stops_, 0, sizeof(stops_));
        for (unsigned char c : {'\0', '\n', '\r'}) stops_[c] = true;
        if (dialect.delimiter) stops_[static_cast<unsigned char>(dialect.delimiter)] = true;
        else stops_[' '] = stops_['\t'] = true;
    }

    IdTable ids;
    std::vector<int32_t> sources, targets;
    std::vector<double> weights;
    int64_t lines = 0, comments = 0, trimmed = 0;
    Report report;

    // All records of a text that ends where a record ends.
    void scan(const char *text, size_t length, int64_t position) {
        begin_ = p_ = text;
        end_ = text + length;
        position_ = position;
        sources.clear(), targets.clear(), weights.clear();
        sources.reserve(expected_), targets.reserve(expected_);
        if (dialect_.weight >= 0) weights.reserve(expected_);
        lines = comments = trimmed = 0;
        report = Report();
        while (p_ < end_ && report.fault == kFine) record();
        Report later = std::move(report);
        report = Report();
        resolve();
        if (report.fault == kFine) report = std::move(later);
        expected_ = sources.size() + sources.size() / 16;
    }

    // Where the last whole record of a text ends; 0 if there is none.
    size_t last_record_end(const char *text, size_t length) {
        begin_ = p_ = text;
        end_ = text + length;
        size_t whole = 0;
        while (p_ < end_) {
            report = Report();
            skip_record();
            if (report.fault == kUnclosed) break;
            const bool ended = p_ > begin_ && (p_[-1] == '\n' || (p_[-1] == '\r' && p_ < end_));
            if (ended) whole = p_ - begin_;
        }
        report = Report();
        return whole;
    }

  private:
    struct Field { const char *text; size_t length; bool quoted; };
    struct Pending { Token token; int64_t position, line; int column; };

    bool at_end_of_line() const { return p_ == end_ || *p_ == '\n' || *p_ == '\r'; }
    static bool blank(char c) { return c == ' ' || c == '\t'; }

    void end_line() {
        if (p_ == end_) return;
        if (*p_ == '\r' && p_ + 1 < end_ && p_[1] == '\n') ++p_;
        ++p_;
        ++lines;
    }

    void skip_line() {
        while (!at_end_of_line()) ++p_;
        end_line();
    }

    void skip_blanks() {
        while (p_ < end_ && blank(*p_) && *p_ != dialect_.delimiter) ++p_;
    }

    void fail(Fault fault, int column, const char *text, size_t length) {
        if (report.fault != kFine) return;
        report = {fault, lines, column, std::string(text, std::min(length, kShown))};
    }

    // One field; p_ is left on the delimiter, the end of the line or a NUL.
    Field field(int column) {
        const char *before = p_;
        skip_blanks();
        if (dialect_.quoting && p_ < end_ && *p_ == '"') return quoted_field(column);
        const char *start = p_;
        while (p_ < end_ && !stops_[static_cast<unsigned char>(*p_)]) ++p_;
        const char *stop = p_;
        while (stop > start && blank(stop[-1])) --stop;
        if (dialect_.delimiter && (start != before || stop != p_) && stop > start) ++trimmed;
        return {start, size_t(stop - start), false};
    }

    Field quoted_field(int column) {
        const char *opening = p_++, *start = p_;
        const int64_t line = lines;
        bool doubled = false;
        for (;; ++p_) {
            if (p_ == end_) {
                lines = line;
                fail(kUnclosed, column, opening, end_ - opening);
                return {start, 0, true};
            }
            if (*p_ == '\n' || (*p_ == '\r' && !(p_ + 1 < end_ && p_[1] == '\n'))) ++lines;
            if (*p_ == '\0') { fail(kNul, column, start, p_ - start); return {start, 0, true}; }
            if (*p_ != '"') continue;
            if (p_ + 1 < end_ && p_[1] == '"') { doubled = true; ++p_; continue; }
            break;
        }
        Field found{start, size_t(p_ - start), true};
        const char *after = ++p_;
        skip_blanks();
        const bool separated = !dialect_.delimiter && p_ > after;
        if (p_ < end_ && !separated && !stops_[static_cast<unsigned char>(*p_)])
            fail(kAfterQuote, column, opening, p_ + 1 - opening);
        if (doubled) {
            std::string text;
            for (size_t i = 0; i < found.length; ++i) {
                text.push_back(found.text[i]);
                if (found.text[i] == '"') ++i;
            }
            unescaped_.push_back(std::move(text));
            found.text = unescaped_.back().data();
            found.length = unescaped_.back().size();
        }
        return found;
    }

    // Step over the delimiter; false at the end of the record.
    bool next_field() {
        if (dialect_.delimiter) {
            if (p_ == end_ || *p_ != dialect_.delimiter) return false;
            ++p_;
            return true;
        }
        skip_blanks();
        return !at_end_of_line() && *p_ != '\0';
    }

    void skip_record() {
        if (comment_line()) return;
        int column = 0;
        do field(column++);
        while (report.fault == kFine && next_field());
        unescaped_.clear();
        if (report.fault == kUnclosed) return;
        skip_line();
    }

    bool comment_line() {
        const char *start = p_;
        while (p_ < end_ && blank(*p_)) ++p_;
        const bool empty = at_end_of_line();
        if (!empty) { p_ = start; skip_blanks(); }
        const bool comment = !empty && dialect_.comment && *p_ == dialect_.comment;
        const bool hash = !empty && !comment && dialect_.ask_about_hash && *p_ == '#';
        if (hash && (p_ + 1 == end_ || blank(p_[1]) || p_[1] == '#' || !looks_like_data())) { skip_line(); ++comments; return true; }
        if (empty || comment) { skip_line(); comments += comment; return true; }
        p_ = start;
        return false;
    }

    bool looks_like_data() {
        const char *start = p_;
        const int64_t line = lines, blanks = trimmed;
        int count = 0;
        do { field(count); ++count; } while (report.fault == kFine && next_field());
        const bool data = report.fault == kFine && count == dialect_.columns;
        report = Report();
        p_ = start;
        lines = line, trimmed = blanks;
        return data;
    }

    // The common record, two plain fields and a line end, in one pass; false, and nothing done, for any other.
    bool plain_record() {
        if (dialect_.columns != 2 || dialect_.source != 0 || dialect_.target != 1 || !dialect_.delimiter) return false;
        const char *q = p_;
        Token source, target;
        if (!plain_token(q, source) || *q != dialect_.delimiter) return false;
        if (!plain_token(++q, target) || *q != '\n') return false;
        const int64_t position = position_ + (p_ - begin_);
        pend(source, position, lines, 0);
        pend(target, position + 1, lines, 1);
        p_ = q + 1;
        ++lines;
        return true;
    }

    // Moves q to the stop after a field without quotes and without blanks or signs of comments at its ends.
    bool plain_token(const char *&q, Token &token) const {
        const char *start = q;
        uint32_t number = 0;
        while (q < end_ && *q >= '0' && *q <= '9') number = 10 * number + uint32_t(*q++ - '0');
        const bool digits = q > start;
        if (!digits && (q == end_ || blank(*q) || *q == '"' || *q == '#' || *q == dialect_.comment)) return false;
        while (q < end_ && !stops_[static_cast<unsigned char>(*q)]) ++q, number = UINT32_MAX;
        if (q == start || q == end_ || blank(q[-1])) return false;
        const bool canonical = digits && number != UINT32_MAX && q - start <= 9 && (*start != '0' || q - start == 1);
        token = {start, uint32_t(std::min<size_t>(size_t(q - start), UINT32_MAX)), canonical, canonical ? number : 0};
        return true;
    }

    void record() {
        if (plain_record()) return resolve_full_batch();
        if (comment_line()) return;
        const char *start = p_;
        skip_blanks();
        if (dialect_.ask_about_hash && p_ < end_ && *p_ == '#') return fail(kHash, 0, p_, line_end() - p_);
        p_ = start;
        const int64_t line = lines;
        if (!dialect_.delimiter) skip_blanks();
        Pending pair[2];
        double weight = 0;
        int column = 0;
        do {
            if (column == dialect_.source) take_id(pair[0], column, line);
            else if (column == dialect_.target) take_id(pair[1], column, line);
            else if (column == dialect_.weight) weight = take_weight(column, line);
            else field(column);
            ++column;
            if (report.fault != kFine) return at_line(report.fault == kUnclosed ? lines : line);
        } while (next_field());
        if (p_ < end_ && *p_ == '\0') { fail(kNul, column - 1, p_, 0); return at_line(line); }
        if (column != dialect_.columns) { fail(kColumns, column, start, line_end() - start); return at_line(line); }
        end_line();
        pair[0].position = position_ + (start - begin_);  // source before target, whatever the order of columns
        pair[1].position = pair[0].position + 1;
        const Pending &other = dialect_.source == dialect_.target ? pair[0] : pair[1];
        pend(pair[0].token, pair[0].position, line, pair[0].column);
        pend(other.token, other.position, line, other.column);
        if (dialect_.weight >= 0) weights.push_back(weight);
        resolve_full_batch();
    }

    void pend(const Token &token, int64_t position, int64_t line, int column) {
        Pending &item = pending_[count_++];
        item.token.text = token.text;
        item.token.length = token.length;
        item.token.canonical = token.canonical;
        item.token.number = token.number;
        item.position = position;
        item.line = line;
        item.column = column;
    }

    void resolve_full_batch() {
        if (count_ == kBatch) resolve();
    }

    void at_line(int64_t line) { report.line = line; }

    const char *line_end() const {
        const char *p = p_;
        while (p < end_ && *p != '\n' && *p != '\r') ++p;
        return p;
    }

    void take_id(Pending &pending, int column, int64_t line) {
        pending.line = line;
        pending.column = column;
        if (take_number(pending.token)) return;
        const Field found = field(column);
        if (report.fault != kFine) return;
        if (found.length == 0) return fail(p_ < end_ && *p_ == '\0' ? kNul : kEmptyId, column, p_, 0);
        pending.token = {found.text, uint32_t(std::min<size_t>(found.length, UINT32_MAX)), false, 0};
        const char *q = found.text, *stop = q + found.length;
        if (found.length > 9 || (*q == '0' && found.length > 1)) return;
        uint32_t value = 0;
        for (; q < stop && *q >= '0' && *q <= '9'; ++q) value = 10 * value + uint32_t(*q - '0');
        if (q == stop) pending.token.canonical = true, pending.token.number = value;
    }

    // The common case in one pass: a canonical number up to the delimiter or the end of the line.
    bool take_number(Token &token) {
        const char *q = p_, *stop = std::min(end_, p_ + 9);
        uint32_t value = 0;
        for (; q < stop && *q >= '0' && *q <= '9'; ++q) value = 10 * value + uint32_t(*q - '0');
        if (q == p_ || q == end_ || !stops_[static_cast<unsigned char>(*q)] || (*p_ == '0' && q - p_ > 1)) return false;
        token = {p_, uint32_t(q - p_), true, value};
        p_ = q;
        return true;
    }

    double take_weight(int column, int64_t line) {
        const Field found = field(column);
        if (report.fault != kFine) return 0;
        Fault fault = kFine;
        const double value = parsed_number(std::string(found.text, found.length), dialect_.decimal, fault);
        if (fault != kFine) { fail(fault, column, found.text, found.length); at_line(line); }
        return value;
    }

    void resolve() {
        for (size_t i = 0; i < count_; ++i) places_[i] = ids.place(pending_[i].token, safe_end(pending_[i].token));
        int32_t codes[2];
        for (size_t i = 0; i < count_; ++i) {
            const Pending &item = pending_[i];
            const int32_t code = codes[i % 2] = ids.number(item.token, places_[i], item.position);
            if (code < 0) {
                fail(code == IdTable::kFull ? kTooMany : kNotText, item.column, item.token.text, item.token.length);
                at_line(item.line);
                break;
            }
            if (i % 2) { sources.push_back(codes[0]); targets.push_back(codes[1]); }
        }
        count_ = 0;
        unescaped_.clear();
    }

    // Unescaped ids lie in strings of their own, where 16 bytes may be too many to read.
    const char *safe_end(const Token &token) const {
        return token.text >= begin_ && token.text < end_ ? end_ : token.text + token.length;
    }

    static constexpr size_t kBatch = 64;
    size_t expected_ = 0;  // records in a piece like the last one
    Dialect dialect_;
    bool stops_[256];
    const char *begin_ = nullptr, *p_ = nullptr, *end_ = nullptr;
    int64_t position_ = 0;
    size_t count_ = 0;
    Pending pending_[kBatch];
    IdTable::Place places_[kBatch];
    std::deque<std::string> unescaped_;
};

template <typename T>
nb::object as_array(std::vector<T> &&values) {
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

nb::tuple scan(Scanner &scanner, nb::object buffer, int64_t position) {
    Py_buffer view;
    if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    try {
        nb::gil_scoped_release release;
        scanner.scan(static_cast<const char *>(view.buf), size_t(view.len), position);
    } catch (...) {
        PyBuffer_Release(&view);
        throw;
    }
    PyBuffer_Release(&view);
    const Report &report = scanner.report;
    return nb::make_tuple(as_array(std::move(scanner.sources)), as_array(std::move(scanner.targets)),
                          as_array(std::move(scanner.weights)), scanner.lines, scanner.comments, scanner.trimmed,
                          int(report.fault), report.line, report.column,
                          nb::bytes(report.value.data(), report.value.size()));
}

size_t last_record_end(Scanner &scanner, nb::object buffer) {
    Py_buffer view;
    if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    size_t end;
    {
        nb::gil_scoped_release release;
        end = scanner.last_record_end(static_cast<const char *>(view.buf), size_t(view.len));
    }
    PyBuffer_Release(&view);
    return end;
}

Token whole_token(const IdTable &ids, size_t code) { return canonical_token(ids.text(code), uint32_t(ids.length(code))); }

nb::list all_texts(const IdTable &ids) {
    nb::list texts = nb::steal<nb::list>(PyList_New(Py_ssize_t(ids.size())));
    for (size_t code = 0; code < ids.size(); ++code) {
        PyObject *text = PyUnicode_DecodeUTF8(ids.text(code), Py_ssize_t(ids.length(code)), nullptr);
        if (!text) throw nb::python_error();
        PyList_SET_ITEM(texts.ptr(), Py_ssize_t(code), text);
    }
    return texts;
}

// Which of the tables holds the id that appears next; `parts.size()` at the end.
size_t earliest(const std::vector<Scanner *> &parts, const std::vector<size_t> &next) {
    size_t best = parts.size();
    for (size_t i = 0; i < parts.size(); ++i) {
        if (next[i] == parts[i]->ids.size()) continue;
        if (best == parts.size() || parts[i]->ids.first(next[i]) < parts[best]->ids.first(next[best])) best = i;
    }
    return best;
}

void merge_into(IdTable &all, const std::vector<Scanner *> &parts, std::vector<std::vector<int32_t>> &numbers) {
    constexpr size_t kAtOnce = 64;
    struct Next { size_t part, code; Token token; IdTable::Place place; };
    std::vector<size_t> next(parts.size(), 0);
    std::vector<Next> batch;
    for (size_t part; (part = earliest(parts, next)) < parts.size() || !batch.empty();) {
        if (part < parts.size()) {
            const size_t code = next[part]++;
            const Token token = whole_token(parts[part]->ids, code);
            batch.push_back({part, code, token, all.place(token, token.text + token.length)});
            if (batch.size() < kAtOnce) continue;
        }
        for (const Next &item : batch)
            numbers[item.part][item.code] = all.number(item.token, item.place, parts[item.part]->ids.first(item.code));
        batch.clear();
    }
}

// The ids of all scanners in order of first appearance, and for each scanner the new number of each of its own.
nb::tuple merge_ids(nb::list scanners) {
    std::vector<Scanner *> parts;
    for (nb::handle item : scanners) parts.push_back(nb::cast<Scanner *>(item));
    std::vector<std::vector<int32_t>> numbers(parts.size());
    IdTable merged;
    {
        nb::gil_scoped_release release;
        for (size_t i = 0; i < parts.size(); ++i) {
            numbers[i].resize(parts[i]->ids.size());
            for (size_t code = 0; code < numbers[i].size(); ++code) numbers[i][code] = int32_t(code);
        }
        if (parts.size() > 1) merge_into(merged, parts, numbers);
    }
    const IdTable &all = parts.size() == 1 ? parts[0]->ids : merged;
    nb::list texts = all_texts(all);
    nb::list maps;
    for (auto &map : numbers) maps.append(as_array(std::move(map)));
    return nb::make_tuple(texts, maps);
}

// The number of each text of a column, given as Arrow gives it: text i is bytes offsets[i] .. offsets[i+1]-1.
nb::object number_texts(IdTable &ids, In<int64_t> offsets, In<uint8_t> bytes) {
    constexpr size_t kAtOnce = 64;
    const size_t count = offsets.shape(0) ? offsets.shape(0) - 1 : 0;
    const char *data = reinterpret_cast<const char *>(bytes.data()), *end = data + bytes.shape(0);
    std::vector<int32_t> numbers(count);
    Token tokens[kAtOnce];
    IdTable::Place places[kAtOnce];
    nb::gil_scoped_release release;
    for (size_t first = 0; first < count; first += kAtOnce) {
        const size_t size = std::min(kAtOnce, count - first);
        for (size_t i = 0; i < size; ++i) {
            const int64_t a = offsets.data()[first + i], b = offsets.data()[first + i + 1];
            tokens[i] = canonical_token(data + a, uint32_t(b - a));
            places[i] = ids.place(tokens[i], end);
        }
        for (size_t i = 0; i < size; ++i) {
            numbers[first + i] = ids.number(tokens[i], places[i], int64_t(first + i));
            if (numbers[first + i] < 0) throw std::invalid_argument("an id is not UTF-8, or there are more than 2^31");
        }
    }
    nb::gil_scoped_acquire acquire;
    return as_array(std::move(numbers));
}

// The numbers in `all` of a scanner's ids, which it gives away; new ones are added.
nb::object absorb(IdTable &all, Scanner &scanner) {
    constexpr size_t kAtOnce = 64;
    IdTable taken;
    std::swap(taken, scanner.ids);
    std::vector<int32_t> numbers(taken.size());
    {
        nb::gil_scoped_release release;
        if (all.size() == 0) {
            std::swap(all, taken);
            for (size_t code = 0; code < numbers.size(); ++code) numbers[code] = int32_t(code);
        }
        Token tokens[kAtOnce];
        IdTable::Place places[kAtOnce];
        for (size_t begin = 0; begin < taken.size(); begin += kAtOnce) {
            const size_t count = std::min(kAtOnce, taken.size() - begin);
            for (size_t i = 0; i < count; ++i) {
                tokens[i] = whole_token(taken, begin + i);
                places[i] = all.place(tokens[i], tokens[i].text + tokens[i].length);
            }
            for (size_t i = 0; i < count; ++i) {
                numbers[begin + i] = all.number(tokens[i], places[i], taken.first(begin + i));
                if (numbers[begin + i] < 0) throw std::invalid_argument("there are more than 2^31 ids");
            }
        }
    }
    return as_array(std::move(numbers));
}

// The ids' numbers in the order of their texts: bytes of UTF-8 sort as its characters do.
nb::object text_order(IdTable &ids) {
    struct Key { uint64_t prefix; int32_t code; };
    std::vector<int32_t> order(ids.size());
    {
        nb::gil_scoped_release release;
        std::vector<Key> keys(ids.size());
        for (size_t code = 0; code < keys.size(); ++code) {
            unsigned char head[8] = {};
            std::memcpy(head, ids.text(code), std::min<size_t>(8, ids.length(code)));
            uint64_t prefix = 0;
            for (unsigned char byte : head) prefix = prefix << 8 | byte;
            keys[code] = {prefix, int32_t(code)};
        }
        std::sort(keys.begin(), keys.end(), [&](const Key &a, const Key &b) {
            if (a.prefix != b.prefix) return a.prefix < b.prefix;
            const size_t m = ids.length(a.code), n = ids.length(b.code);
            const int sign = std::memcmp(ids.text(a.code), ids.text(b.code), std::min(m, n));
            return sign ? sign < 0 : m < n;
        });
        for (size_t i = 0; i < keys.size(); ++i) order[i] = keys[i].code;
    }
    return as_array(std::move(order));
}

// The bytes of some ids end to end, and the length of each.
nb::tuple joined_texts(IdTable &ids, In<int32_t> codes) {
    const size_t count = codes.shape(0);
    std::vector<int64_t> lengths(count);
    std::vector<uint8_t> bytes;
    {
        nb::gil_scoped_release release;
        size_t total = 0;
        for (size_t i = 0; i < count; ++i) {
            if (size_t(codes.data()[i]) >= ids.size()) throw std::out_of_range("no such id");
            total += size_t(lengths[i] = int64_t(ids.length(codes.data()[i])));
        }
        bytes.reserve(total);
        for (size_t i = 0; i < count; ++i) {
            const char *text = ids.text(codes.data()[i]);
            bytes.insert(bytes.end(), text, text + lengths[i]);
        }
    }
    return nb::make_tuple(as_array(std::move(bytes)), as_array(std::move(lengths)));
}

// Of the ids from `begin` on the one that appeared first.
size_t earliest_id(IdTable &ids, size_t begin) {
    size_t best = begin;
    for (size_t code = begin; code < ids.size(); ++code)
        if (ids.first(code) < ids.first(best)) best = code;
    return best;
}

// ---- pairs → rows

void count_buckets(In<int32_t> sources, In<int32_t> targets, int64_t begin, int64_t end, int shift, bool mirrored,
                   Out<int64_t> counts) {
    nb::gil_scoped_release release;
    const int32_t *u = sources.data(), *v = targets.data();
    int64_t *count = counts.data();
    for (int64_t i = begin; i < end; ++i) {
        ++count[u[i] >> shift];
        if (mirrored && u[i] != v[i]) ++count[v[i] >> shift];
    }
}

void scatter_edges(In<int32_t> sources, In<int32_t> targets, std::optional<In<double>> weights, int64_t begin, int64_t end,
                   int shift, bool mirrored, Out<int64_t> offsets, Out<int32_t> rows, Out<int32_t> columns,
                   std::optional<Out<double>> values) {
    const double *w = weights ? weights->data() : nullptr;
    double *value = values ? values->data() : nullptr;
    nb::gil_scoped_release release;
    const int32_t *u = sources.data(), *v = targets.data();
    int64_t *offset = offsets.data();
    int32_t *row = rows.data(), *column = columns.data();
    const auto put = [&](int32_t from, int32_t to, int64_t i) {
        const int64_t at = offset[from >> shift]++;
        row[at] = from;
        column[at] = to;
        if (value) value[at] = w[i];
    };
    for (int64_t i = begin; i < end; ++i) {
        put(u[i], v[i], i);
        if (mirrored && u[i] != v[i]) put(v[i], u[i], i);
    }
}

// Sort the entries of rows first..last-1, which lie in begin..end-1, by row and column; merge repeats towards
// the beginning; store the length of each row.
void sort_bucket(In<int32_t> rows, Out<int32_t> columns, std::optional<Out<double>> values, int64_t begin, int64_t end,
                 int64_t first, int64_t last, Out<int64_t> lengths) {
    double *value = values ? values->data() : nullptr;
    const int32_t *row = rows.data();
    int32_t *column = columns.data();
    int64_t *length = lengths.data() + 1;
    nb::gil_scoped_release release;
    std::vector<int64_t> start(last - first + 1, 0);
    for (int64_t i = begin; i < end; ++i) ++start[row[i] - first + 1];
    for (size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
    std::vector<int32_t> sorted(value ? 0 : end - begin);
    std::vector<int64_t> cursor(start.begin(), start.end() - 1);
    std::vector<uint64_t> order;  // column, then place among the entries: a stable sort
    if (value) {
        order.resize(end - begin);
        for (int64_t i = begin; i < end; ++i) order[cursor[row[i] - first]++] = uint64_t(column[i]) << 32 | uint64_t(i - begin);
    } else {
        for (int64_t i = begin; i < end; ++i) sorted[cursor[row[i] - first]++] = column[i];
    }
    std::vector<double> old(value ? value + begin : nullptr, value ? value + end : nullptr);
    int64_t out = begin;
    for (int64_t r = first; r < last; ++r) {
        const int64_t a = start[r - first], b = start[r - first + 1], row_start = out;
        if (value) std::sort(order.begin() + a, order.begin() + b);
        else std::sort(sorted.begin() + a, sorted.begin() + b);
        for (int64_t i = a; i < b; ++i) {
            const int32_t c = value ? int32_t(order[i] >> 32) : sorted[i];
            const bool repeat = out > row_start && column[out - 1] == c;
            if (value && repeat) value[out - 1] += old[uint32_t(order[i])];
            if (repeat) continue;
            column[out] = c;
            if (value) value[out] = old[uint32_t(order[i])];
            ++out;
        }
        length[r] = out - row_start;
    }
}

}  // namespace

void define_edges(nb::module_ &m) {
    nb::class_<Scanner>(m, "Scanner")
        .def("__init__",
             [](Scanner *scanner, const std::string &delimiter, bool quoting, const std::string &comment, bool ask_about_hash,
                int columns, int source, int target, int weight, const std::string &decimal) {
                 new (scanner) Scanner(Dialect{delimiter.empty() ? '\0' : delimiter[0], quoting,
                                               comment.empty() ? '\0' : comment[0], ask_about_hash, columns, source, target,
                                               weight, decimal.empty() ? '.' : decimal[0]});
             },
             nb::kw_only(), nb::arg("delimiter"), nb::arg("quoting"), nb::arg("comment"), nb::arg("ask_about_hash"),
             nb::arg("columns"), nb::arg("source"), nb::arg("target"), nb::arg("weight"), nb::arg("decimal"))
        .def("scan", &scan)
        .def("last_record_end", &last_record_end)
        .def("memory", [](Scanner &scanner) { return scanner.ids.memory(); })
        .def("absorb", [](Scanner &scanner, Scanner &other) { return absorb(scanner.ids, other); })
        .def("__len__", [](Scanner &scanner) { return scanner.ids.size(); });
    m.def("merge_ids", &merge_ids);
    nb::class_<IdTable>(m, "IdTable")
        .def(nb::init<>())
        .def("number", &number_texts, nb::arg().noconvert(), nb::arg().noconvert())
        .def("texts", &all_texts)
        .def("absorb", &absorb)
        .def("order", &text_order)
        .def("joined", &joined_texts, nb::arg().noconvert())
        .def("earliest", &earliest_id)
        .def("memory", &IdTable::memory)
        .def("forget_places", &IdTable::forget_places)
        .def("__len__", &IdTable::size);
    m.def("count_buckets", &count_buckets, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg(), nb::arg().noconvert());
    m.def("scatter_edges", &scatter_edges, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().none().noconvert(),
          nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert(),
          nb::arg().none().noconvert());
    m.def("sort_bucket", &sort_bucket, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().none().noconvert(), nb::arg(),
          nb::arg(), nb::arg(), nb::arg(), nb::arg().noconvert());
}
