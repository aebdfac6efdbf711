// Marks a function that host code and CUDA kernels both call.
#pragma once

#ifdef __CUDACC__
#define BATON_HOST_DEVICE __host__ __device__
#else
#define BATON_HOST_DEVICE
#endif
