// Elementary functions in binary64 that give the same bits on every machine. They do not use libm:
// only additions, multiplications, divisions and single-rounding fma, in a fixed order with fixed
// term counts.
//
// Argument reduction follows Cody and Waite ("Software Manual for the Elementary Functions", 1980):
// subtract multiples of a constant that is split into parts, then sum a Taylor series. NUMERICS.md
// uses these functions where results must be equal everywhere (rotary positions, sampling). Results
// are correct to a few ulp.
//
// Thread safety: pure functions, safe from any thread.
#pragma once

namespace baton {

// e^x with relative error below 1e-15 for normal results. Overflows to infinity; underflows to 0
// gradually. NaN gives NaN.
double ExactExp(double x);

// Natural logarithm with relative error below 1e-15. ExactLog(0) is -infinity; a negative x gives
// NaN.
double ExactLog(double x);

// Angles are in radians. Absolute error is below 1e-15 for |x| < 2^31. NaN for |x| >= 2^50,
// infinity and NaN.
double ExactSin(double x);
double ExactCos(double x);

}  // namespace baton
