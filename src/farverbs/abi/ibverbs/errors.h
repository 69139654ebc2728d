// How a Result of the verbs room becomes what libibverbs' manual pages promise: an errno value as
// the return value, or a null pointer with errno set. With FARVERBS_EXPLAIN set in the environment
// each refusal is written to stderr with its reason, since an errno names no field.
#pragma once

#include <cerrno>
#include <cstddef>

#include "farverbs/base/result.h"

namespace farverbs::abi {

// Gives error.code.
int refuse(const char* call, const Error& error);
// Sets errno.
std::nullptr_t refuse_null(const char* call, const Error& error);

}  // namespace farverbs::abi
