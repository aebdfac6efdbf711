// Macros that return early on an error absl::Status. Expected failures travel as Status; bugs are
// CHECKs (glog).
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)

// Returns the status from the enclosing function if `expr` is not OK.
#define RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                  \
    if (absl::Status baton_status_ = (expr); !baton_status_.ok()) return baton_status_; \
  } while (false)

// Declares `lhs` with the value of a StatusOr, or returns its error.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(BATON_CONCAT(baton_statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr)   \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()
