// Result<T>: a value, or an Error of the environment (a refused request, a failed system call). The
// code is an errno value because the verbs report errors so (man ibv_modify_qp and others); the
// message says what was asked, why it failed and what to do.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "farverbs/base/check.h"

namespace farverbs {

struct Error {
  int code = EINVAL;    // errno value, never 0
  std::string message;  // one line without a final full stop, names the field or the object

  // "message: strerror(code)", for a system call that failed.
  static Error from_errno(std::string what, int code = errno) {
    what += ": ";
    what += std::strerror(code);
    return {code, std::move(what)};
  }
};

inline Error invalid(std::string message) { return {EINVAL, std::move(message)}; }

template <typename T, typename E = Error>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    FV_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    FV_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    FV_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const E& error() const& {
    FV_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }
  E&& error() && {
    FV_CHECK(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, E> state_;
};

template <typename E>
class [[nodiscard]] Result<void, E> {
 public:
  Result() = default;
  Result(E error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  void value() const { FV_CHECK(ok_); }
  const E& error() const& {
    FV_CHECK(!ok_);
    return error_;
  }
  E&& error() && {
    FV_CHECK(!ok_);
    return std::move(error_);
  }

 private:
  E error_{};
  bool ok_ = true;
};

}  // namespace farverbs

// Evaluates an expression that gives a Result; leaves the function with its error if there is one.
#define FV_TRY(expression)                                \
  do {                                                    \
    if (auto fv_result = (expression); !fv_result.ok()) { \
      return std::move(fv_result).error();                \
    }                                                     \
  } while (0)

#define FV_CONCAT_(a, b) a##b
#define FV_CONCAT(a, b) FV_CONCAT_(a, b)

// FV_ASSIGN(auto x, expression): declares or assigns x from a Result's value, or leaves with its
// error.
#define FV_ASSIGN(target, expression) \
  FV_ASSIGN_(FV_CONCAT(fv_result_, __LINE__), target, expression)
#define FV_ASSIGN_(temporary, target, expression)           \
  auto temporary = (expression);                            \
  if (!temporary.ok()) return std::move(temporary).error(); \
  target = std::move(temporary).value()
