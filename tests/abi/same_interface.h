// Compares our declarations of a library's functions with those of its own header, at compile time.
#pragma once

#include <type_traits>

namespace baton {

// True if a call passes values of the two types alike: enums and structures of equal size, pointers
// of equal constness, and all else if the types are equal.
template <typename Ours, typename Real>
constexpr bool PassedAlike() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Real>) {
    return std::is_const_v<std::remove_pointer_t<Ours>> ==
           std::is_const_v<std::remove_pointer_t<Real>>;
  } else if constexpr ((std::is_enum_v<Ours> && std::is_enum_v<Real>) ||
                       (std::is_class_v<Ours> && std::is_class_v<Real>)) {
    return sizeof(Ours) == sizeof(Real) && alignof(Ours) == alignof(Real);
  } else {
    return std::is_same_v<Ours, Real>;
  }
}

template <typename Ours, typename Real>
struct SameFunction : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
requires(sizeof...(A1) == sizeof...(A2)) struct SameFunction<R1 (*)(A1...), R2 (*)(A2...)>
    : std::bool_constant<PassedAlike<R1, R2>() && (PassedAlike<A1, A2>() && ...)> {
};
template <typename Ours, typename Real>
inline constexpr bool IsSameFunction = SameFunction<Ours, Real>::value;

}  // namespace baton
