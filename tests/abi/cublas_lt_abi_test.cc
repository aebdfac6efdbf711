// Compares bench/cublas_lt.h with the real cublasLt.h. Built where CUDA is installed.

#include <cublasLt.h>

#include <cstddef>

#include "bench/cublas_lt.h"
#include "gtest/gtest.h"
#include "tests/abi/same_interface.h"

namespace baton {
namespace {

#define BATON_SAME_FUNCTION(member, real) \
  static_assert(IsSameFunction<decltype(CublasLt::member), decltype(&::real)>)

BATON_SAME_FUNCTION(Create, cublasLtCreate);
BATON_SAME_FUNCTION(Destroy, cublasLtDestroy);
BATON_SAME_FUNCTION(ProductCreate, cublasLtMatmulDescCreate);
BATON_SAME_FUNCTION(ProductDestroy, cublasLtMatmulDescDestroy);
BATON_SAME_FUNCTION(ProductSetAttribute, cublasLtMatmulDescSetAttribute);
BATON_SAME_FUNCTION(LayoutCreate, cublasLtMatrixLayoutCreate);
BATON_SAME_FUNCTION(LayoutDestroy, cublasLtMatrixLayoutDestroy);
BATON_SAME_FUNCTION(PreferenceCreate, cublasLtMatmulPreferenceCreate);
BATON_SAME_FUNCTION(PreferenceDestroy, cublasLtMatmulPreferenceDestroy);
BATON_SAME_FUNCTION(PreferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute);
BATON_SAME_FUNCTION(GetHeuristic, cublasLtMatmulAlgoGetHeuristic);
BATON_SAME_FUNCTION(Multiply, cublasLtMatmul);
#undef BATON_SAME_FUNCTION

static_assert(int{kCublasSuccess} == int{CUBLAS_STATUS_SUCCESS} &&
              int{kCublasComputeF32} == int{CUBLAS_COMPUTE_32F} &&
              int{kCublasF32} == int{CUDA_R_32F} && int{kCublasBF16} == int{CUDA_R_16BF} &&
              int{kCublasLtTransposeA} == int{CUBLASLT_MATMUL_DESC_TRANSA} &&
              int{kCublasLtMostWorkspaceBytes} == int{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES} &&
              int{kCublasTransposed} == int{CUBLAS_OP_T});
static_assert(sizeof(CublasLtAlgorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(CublasLtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(CublasLtHeuristic, workspace_bytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(CublasLtHeuristic, state) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              offsetof(CublasLtHeuristic, waves) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

TEST(CublasLtAbi, AMissingLibraryIsUnavailable) {
  EXPECT_EQ(LoadCublasLt({"/no/such/libcublasLt.so"}).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
