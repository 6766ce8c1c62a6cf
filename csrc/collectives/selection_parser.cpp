// Reads override strings. The grammar stands in selection.hpp.
#include <array>
#include <charconv>
#include <string>

#include "collectives/selection.hpp"
#include "core/error.hpp"

namespace hpcomm {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<SelectionRule> rules() {
    std::vector<SelectionRule> result;
    for (;;) {
      while (accept(';')) {
      }
      if (at_end()) return result;
      result.push_back(rule());
      if (!at_end() && !accept(';')) fail("';' or the end");
    }
  }

 private:
  SelectionRule rule() {
    SelectionRule result{.kind = collective(), .origin = "override"};
    expect(':', "':' after the collective");
    if (peek() != '-') result.min_bytes = bytes();
    expect('-', "'-' between the two sizes (both may be left out)");
    if (peek() != ':') result.max_bytes = bytes();
    if (result.min_bytes > result.max_bytes) fail("a largest size that is not below the smallest");
    expect(':', "':' after the sizes");
    if (is_digit(peek())) {
      result.min_ranks = result.max_ranks = static_cast<int>(number(1'000'000'000));
      if (accept('-')) result.max_ranks = static_cast<int>(number(1'000'000'000));
      if (result.min_ranks < 1 || result.max_ranks < result.min_ranks)
        fail("a number of ranks from 1 on");
      if (word() != "ranks") fail("the word 'ranks' after the number of ranks");
      expect(':', "':' after the ranks");
    }
    const std::size_t start = position_;
    const std::string_view name = word();
    result.algorithm = find_algorithm(result.kind, name);
    if (result.algorithm == nullptr) {
      position_ = start;
      fail("an algorithm of " + std::string(name_of(result.kind)) + " (" +
           algorithm_names(result.kind) + ")");
    }
    return result;
  }

  Collective collective() {
    const std::size_t start = position_;
    const std::string_view name = word();
    std::string known;
    for (int i = 0; i < kNumCollectives; ++i) {
      const Collective kind = static_cast<Collective>(i);
      if (name == name_of(kind)) return kind;
      known += (i == 0 ? "" : ", ") + std::string(name_of(kind));
    }
    position_ = start;
    fail("a collective (" + known + ")");
  }

  std::size_t bytes() {
    unsigned shift = 0;
    const std::size_t value = number(std::numeric_limits<std::size_t>::max());
    if (accept('k') || accept('K'))
      shift = 10;
    else if (accept('m') || accept('M'))
      shift = 20;
    else if (accept('g') || accept('G'))
      shift = 30;
    if (value > std::numeric_limits<std::size_t>::max() >> shift) fail("a smaller size");
    return value << shift;
  }

  std::size_t number(std::size_t largest) {
    skip_spaces();
    std::size_t value = 0;
    const char* begin = text_.data() + position_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc{} || value > largest) fail("a number");
    position_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string_view word() {
    skip_spaces();
    const std::size_t start = position_;
    while (position_ < text_.size() && (is_digit(text_[position_]) || text_[position_] == '_' ||
                                        (text_[position_] >= 'a' && text_[position_] <= 'z')))
      ++position_;
    return text_.substr(start, position_ - start);
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  void skip_spaces() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n'))
      ++position_;
  }
  bool at_end() {
    skip_spaces();
    return position_ == text_.size();
  }
  char peek() { return at_end() ? '\0' : text_[position_]; }
  bool accept(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }
  void expect(char c, std::string_view what) {
    if (!accept(c)) fail(what);
  }

  [[noreturn]] void fail(std::string_view expected) {
    skip_spaces();
    std::string found(text_.substr(position_, 20));
    found = found.empty() ? "the end" : "'" + found + "'";
    detail::throw_error(
        Errc::invalid_argument, -1, "HPCOMM_TUNE: expected ", expected, " at character ",
        position_ + 1, ", found ", found, " in '", text_,
        "'; an example is 'allreduce:0-64k:recursive_doubling;allreduce:64k-:ring'");
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace

std::vector<SelectionRule> parse_rules(std::string_view text) { return Parser(text).rules(); }

}  // namespace hpcomm
