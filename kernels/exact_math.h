// Elementary functions in binary64 whose bits do not depend on the machine's libm: additions,
// multiplications, divisions and single-rounding fma in a written order, with fixed term counts.
//
// Argument reduction is Cody and Waite's ("Software Manual for the Elementary Functions", 1980):
// multiples of a constant split in parts are taken off; a Taylor series does the rest. Used where
// NUMERICS.md needs equal bits everywhere (rotary positions, sampling); correct to a few ulp.
//
// Pure functions, safe from any thread.
#pragma once

namespace baton {

// e^x; relative error below 1e-15 for normal results. Overflows to infinity, underflows to 0
// gradually. NaN gives NaN.
double ExactExp(double x);

// Natural logarithm; relative error below 1e-15. Log(0) is -infinity, below 0 NaN.
double ExactLog(double x);

// Angles in radians: absolute error below 1e-15 for |x| < 2^31. Beyond 2^50 and for what is not
// finite: NaN.
double ExactSin(double x);
double ExactCos(double x);

}  // namespace baton
