// Parameters of the sample kernels, which test the emulator.
#pragma once

#include <cstdint>

namespace baton {

struct SampleSumParams {
  const int* values;  // [count]
  int count;
  int* partials;       // [blocks]
  unsigned* arrivals;  // [1], zero before the launch
  int* sum;            // [1]
};

struct SampleTransposeParams {
  const float* from;  // [rows, cols]
  float* to;          // [cols, rows]
  int rows;
  int cols;
};

struct SampleMatMulParams {
  const int8_t* a;  // [rows, depth]
  const int8_t* b;  // [cols, depth]
  int* c;           // [rows, cols]
  int rows;         // any
  int cols;         // multiple of 8
  int depth;        // multiple of 32
};

}  // namespace baton
