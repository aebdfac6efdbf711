#include "kernels/exact_math.h"

#include "kernels/exact_functions.h"

namespace baton {

double ExactExp(double x) { return exact::Exp(x); }
double ExactLog(double x) { return exact::Log(x); }
double ExactSin(double x) { return exact::Sin(x); }
double ExactCos(double x) { return exact::Cos(x); }

}  // namespace baton
