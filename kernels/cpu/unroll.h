// Unrolls loops at compile time. Indices are constants, so arrays indexed by them live in
// registers.
//
// Compilers stop unrolling long bodies and then keep such arrays in memory. The functions have
// internal linkage, because files for different instruction sets include this header.
#pragma once

#include <type_traits>
#include <utility>

namespace baton {
namespace {

template <typename Body, int... kIndex>
[[gnu::always_inline]] inline void Unroll(std::integer_sequence<int, kIndex...>, const Body& body) {
  (body(std::integral_constant<int, kIndex>()), ...);
}
// Calls body(0), body(1), …, body(kCount − 1) with the numbers as integral constants. REQUIRES: the
// body is an always_inline lambda.
template <int kCount, typename Body>
[[gnu::always_inline]] inline void Unroll(const Body& body) {
  Unroll(std::make_integer_sequence<int, kCount>(), body);
}

}  // namespace
}  // namespace baton
