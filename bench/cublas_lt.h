// The functions of cuBLASLt that the benchmark of the cost of exactness calls, loaded at run time.
// The types repeat parts of cublasLt.h; tests/abi/cublas_lt_abi_test.cc compares them with it.
//
// Thread safety: plain data; the functions are those of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/shared_library.h"
#include "common/status_macros.h"
#include "kernels/cuda/cuda_driver.h"

namespace baton {

using CublasLtHandle = void*;  // cublasLtHandle_t; so are the next three
using CublasLtProduct = void*;
using CublasLtLayout = void*;
using CublasLtPreference = void*;
enum CublasStatus : int { kCublasSuccess = 0 };
enum CublasComputeType : int { kCublasComputeF32 = 68 };
enum CublasDataType : int { kCublasF32 = 0, kCublasBF16 = 14 };
enum CublasLtProductAttribute : int { kCublasLtTransposeA = 3 };
enum CublasLtPreferenceAttribute : int { kCublasLtMostWorkspaceBytes = 1 };
inline constexpr int32_t kCublasTransposed = 1;

struct CublasLtAlgorithm {
  uint64_t data[8];
};
struct CublasLtHeuristic {
  CublasLtAlgorithm algorithm;
  size_t workspace_bytes;
  CublasStatus state;
  float waves;
  int reserved[4];
};

struct CublasLt {
  CublasStatus (*Create)(CublasLtHandle* handle) = nullptr;
  CublasStatus (*Destroy)(CublasLtHandle handle) = nullptr;
  CublasStatus (*ProductCreate)(CublasLtProduct* product, CublasComputeType compute,
                                CublasDataType scale) = nullptr;
  CublasStatus (*ProductDestroy)(CublasLtProduct product) = nullptr;
  CublasStatus (*ProductSetAttribute)(CublasLtProduct product, CublasLtProductAttribute attribute,
                                      const void* value, size_t bytes) = nullptr;
  CublasStatus (*LayoutCreate)(CublasLtLayout* layout, CublasDataType type, uint64_t rows,
                               uint64_t cols, int64_t stride) = nullptr;
  CublasStatus (*LayoutDestroy)(CublasLtLayout layout) = nullptr;
  CublasStatus (*PreferenceCreate)(CublasLtPreference* preference) = nullptr;
  CublasStatus (*PreferenceDestroy)(CublasLtPreference preference) = nullptr;
  CublasStatus (*PreferenceSetAttribute)(CublasLtPreference preference,
                                         CublasLtPreferenceAttribute attribute, const void* value,
                                         size_t bytes) = nullptr;
  CublasStatus (*GetHeuristic)(CublasLtHandle handle, CublasLtProduct product, CublasLtLayout a,
                               CublasLtLayout b, CublasLtLayout c, CublasLtLayout d,
                               CublasLtPreference preference, int wanted,
                               CublasLtHeuristic* results, int* found) = nullptr;
  CublasStatus (*Multiply)(CublasLtHandle handle, CublasLtProduct product, const void* alpha,
                           const void* a, CublasLtLayout of_a, const void* b, CublasLtLayout of_b,
                           const void* beta, const void* c, CublasLtLayout of_c, void* d,
                           CublasLtLayout of_d, const CublasLtAlgorithm* algorithm, void* workspace,
                           size_t workspace_bytes, CuStream stream) = nullptr;
};

// Unavailable: there is no library of CUDA 12 or 13.
inline absl::StatusOr<CublasLt> LoadCublasLt(const std::vector<std::string>& names = {
                                                 "libcublasLt.so.13", "libcublasLt.so.12",
                                                 "/usr/local/cuda/lib64/libcublasLt.so.13",
                                                 "/usr/local/cuda/lib64/libcublasLt.so.12"}) {
  SharedLibrary library(names);
  CublasLt table;
  library.Find("cublasLtCreate", table.Create);
  library.Find("cublasLtDestroy", table.Destroy);
  library.Find("cublasLtMatmulDescCreate", table.ProductCreate);
  library.Find("cublasLtMatmulDescDestroy", table.ProductDestroy);
  library.Find("cublasLtMatmulDescSetAttribute", table.ProductSetAttribute);
  library.Find("cublasLtMatrixLayoutCreate", table.LayoutCreate);
  library.Find("cublasLtMatrixLayoutDestroy", table.LayoutDestroy);
  library.Find("cublasLtMatmulPreferenceCreate", table.PreferenceCreate);
  library.Find("cublasLtMatmulPreferenceDestroy", table.PreferenceDestroy);
  library.Find("cublasLtMatmulPreferenceSetAttribute", table.PreferenceSetAttribute);
  library.Find("cublasLtMatmulAlgoGetHeuristic", table.GetHeuristic);
  library.Find("cublasLtMatmul", table.Multiply);
  RETURN_IF_ERROR(library.status());
  return table;
}

}  // namespace baton
