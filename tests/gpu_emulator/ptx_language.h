// The functions of kernels/cuda/ptx.cuh for kernels that are compiled as host C++.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/half.h"
#include "kernels/tensor_core/half_operands.h"
#include "tests/gpu_emulator/copy_operations.h"
#include "tests/gpu_emulator/device_language.h"
#include "tests/gpu_emulator/tensor_operations.h"

namespace baton {

inline void MmaM16N8K32S8(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                          BATON_PLACE) {
  gpu_emulator::MmaInt8K32(d, a, b, place);
}
inline void MmaM16N8K16S8(int (&d)[4], const unsigned (&a)[2], unsigned b, BATON_PLACE) {
  gpu_emulator::MmaInt8K16(d, a, &b, place);
}
inline void MmaM16N8K16Bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                            BATON_PLACE) {
  gpu_emulator::MmaBf16K16(d, a, b, place);
}
inline void MmaM16N8K16F16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                           BATON_PLACE) {
  gpu_emulator::MmaF16K16(d, a, b, place);
}
BATON_MEMORY_CALL void LdMatrixX2(unsigned (&r)[2], const void* shared_row, BATON_PLACE) {
  gpu_emulator::LoadMatrices(r, 2, false, shared_row, place);
}
BATON_MEMORY_CALL void LdMatrixX4(unsigned (&r)[4], const void* shared_row, BATON_PLACE) {
  gpu_emulator::LoadMatrices(r, 4, false, shared_row, place);
}
BATON_MEMORY_CALL void LdMatrixX2Transposed(unsigned (&r)[2], const void* shared_row, BATON_PLACE) {
  gpu_emulator::LoadMatrices(r, 2, true, shared_row, place);
}
BATON_MEMORY_CALL void LdMatrixX4Transposed(unsigned (&r)[4], const void* shared_row, BATON_PLACE) {
  gpu_emulator::LoadMatrices(r, 4, true, shared_row, place);
}

BATON_MEMORY_CALL void CopyAsync16(void* shared, const void* global, bool valid, BATON_PLACE) {
  gpu_emulator::CopyAsync(shared, global, valid, place);
}
BATON_MEMORY_CALL void CopyAsync16(void* shared, const void* global, BATON_PLACE) {
  gpu_emulator::CopyAsync(shared, global, true, place);
}
inline void CommitCopies() { gpu_emulator::CommitAsyncCopies(); }
template <int kGroups>
BATON_MEMORY_CALL void WaitCopies(BATON_PLACE) {
  gpu_emulator::WaitAsyncCopies(kGroups, place);
}

inline void SyncNamedBarrier(int barrier, unsigned threads, BATON_PLACE) {
  gpu_emulator::SyncNamedBarrier(barrier, threads, place);
}
inline void ArriveNamedBarrier(int barrier, unsigned threads, BATON_PLACE) {
  gpu_emulator::ArriveNamedBarrier(barrier, threads, place);
}
inline unsigned LoadAcquire(const unsigned* address, BATON_PLACE) {
  return gpu_emulator::LoadFlag(address, place);
}
inline void StoreRelease(unsigned* address, unsigned value, BATON_PLACE) {
  gpu_emulator::StoreFlag(address, value, place);
}
inline unsigned AddAcquireRelease(unsigned* address, unsigned value, BATON_PLACE) {
  return gpu_emulator::AddToFlag(address, value, place);
}
inline unsigned PackBF16(float low, float high) {
  return RoundToHalf(HalfType::kBF16, low) | unsigned{RoundToHalf(HalfType::kBF16, high)} << 16;
}
inline unsigned PackF16(float low, float high) {
  return RoundToHalf(HalfType::kF16, low) | unsigned{RoundToHalf(HalfType::kF16, high)} << 16;
}
// The product of two 16-bit numbers is exact in f32, unless it is below the numbers of a bf16.
inline unsigned MultiplyBF16(unsigned a, unsigned b) {
  const auto product = [](unsigned x, unsigned y) {
    return unsigned{
        F32ToBF16(BF16ToF32(static_cast<uint16_t>(x)) * BF16ToF32(static_cast<uint16_t>(y)))};
  };
  return product(a & 0xffffu, b & 0xffffu) | product(a >> 16, b >> 16) << 16;
}
inline unsigned MultiplyF16(unsigned a, unsigned b) {
  const auto product = [](unsigned x, unsigned y) {
    return unsigned{
        F32ToF16(F16ToF32(static_cast<uint16_t>(x)) * F16ToF32(static_cast<uint16_t>(y)))};
  };
  return product(a & 0xffffu, b & 0xffffu) | product(a >> 16, b >> 16) << 16;
}
inline float WidenF16(uint16_t bits) { return F16ToF32(bits); }

inline float MaxOrNan(float a, float b) {
  return gpu_emulator::WithDeviceNan(a != a || a > b ? a : b);
}

// As wrong as it may be: the rounded quotient, one less or one more in the last place.
inline float ApproximateReciprocal(float x) {
  const uint32_t error = (std::bit_cast<uint32_t>(x) * 2654435761u >> 16) % 3;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(1 / x) + error - 1);
}

}  // namespace baton
