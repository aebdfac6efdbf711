// Parser: turns a template's source into a syntax tree.
//
// Supported tags: for (else, if), if (elif, else), set (inline, block, attributes of a namespace),
// macro (at the top level), generation, break, continue, raw. Comments are supported too. Other
// jinja2 constructs are refused as Unimplemented, with name and line.
// Thread safety: pure; the tree is immutable.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"

namespace baton {

// Errors start with "line N: ": InvalidArgument for wrong syntax or damaged UTF-8, Unimplemented
// for a construct that is not supported, ResourceExhausted for a limit.
absl::StatusOr<JinjaBlock> ParseJinja(std::string_view source, const JinjaLimits& limits);

}  // namespace baton
