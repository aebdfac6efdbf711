// Functions for instructions of PTX that have no name in CUDA C++.
//
// Under nvcc each function is one instruction. In a host build the emulator implements it. The PTX
// ISA defines the layout of fragments, chapter "Warp Level Matrix Multiply-Accumulate
// Instructions". With group = lane / 4 and pair = lane % 4:
//
//   m16n8k32, s8. Four integers of 8 bits in a register, the lowest column or row first.
//     a[0], a[1]: row group, group + 8; columns 4·pair …; a[2], a[3]: the same, 16 columns later
//     b[0]: rows 4·pair … of column group; b[1]: 16 rows later
//   m16n8k16, bf16 and f16. Two numbers in a register.
//     a[0], a[1]: row group, group + 8; columns 2·pair …; a[2], a[3]: the same, 8 columns later
//     b[0]: rows 2·pair … of column group; b[1]: 8 rows later
//   Results of both: d[0], d[1]: row group, columns 2·pair, 2·pair + 1; d[2], d[3]: row group + 8.
//
// If a function is marked "whole warp", all lanes of a warp must call it at the same place.
#pragma once

#include "kernels/cuda/device_code.cuh"

#ifdef __CUDACC__

namespace baton {

__device__ __forceinline__ unsigned SharedAddress(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// d += a · b, whole warp. Sums of integers wrap around.
__device__ __forceinline__ void MmaM16N8K32S8(int (&d)[4], const unsigned (&a)[4],
                                              const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void MmaM16N8K16S8(int (&d)[4], const unsigned (&a)[2], unsigned b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

__device__ __forceinline__ void MmaM16N8K16Bf16(float (&d)[4], const unsigned (&a)[4],
                                                const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void MmaM16N8K16F16(float (&d)[4], const unsigned (&a)[4],
                                               const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads matrices of 8 rows of 16 bytes from shared memory, whole warp. Lane i gives the address of
// row i % 8 of matrix i / 8. Register r[m] gets bytes 4·(lane % 4) … of row lane / 4 of matrix m.
__device__ __forceinline__ void LdMatrixX2(unsigned (&r)[2], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared_row))
               : "memory");
}

__device__ __forceinline__ void LdMatrixX4(unsigned (&r)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared_row))
               : "memory");
}

// The same, but each 8x8 matrix of 16-bit elements is transposed.
__device__ __forceinline__ void LdMatrixX2Transposed(unsigned (&r)[2], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared_row))
               : "memory");
}

__device__ __forceinline__ void LdMatrixX4Transposed(unsigned (&r)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared_row))
               : "memory");
}

// Starts a copy of 16 bytes; both addresses are multiples of 16. If not `valid`, writes zeros and
// reads nothing.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

// The same, for a copy that is always valid. It takes fewer instructions.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(SharedAddress(shared)), "l"(global)
               : "memory");
}

// The thread's copies since the last call form a group.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the thread's newest `kGroups` groups of copies have landed. Other threads see
// them after a barrier.
template <int kGroups>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Barrier 1 to 15 of the block, among `threads` threads; whole warps.
__device__ __forceinline__ void SyncNamedBarrier(int barrier, unsigned threads) {
  asm volatile("bar.sync %0,%1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void ArriveNamedBarrier(int barrier, unsigned threads) {
  asm volatile("bar.arrive %0,%1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Loads and stores that order memory accesses of the whole device, for flags.
__device__ __forceinline__ unsigned LoadAcquire(const unsigned* address) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void StoreRelease(unsigned* address, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0],%1;" ::"l"(address), "r"(value) : "memory");
}

// Adds to a counter and returns its value before. It releases what the thread has written or knows
// of, and acquires what earlier calls released. A barrier of the block before it passes on what the
// other threads wrote, and one after it what the call acquired (PTX ISA, "Memory Consistency
// Model": causality order is transitive). So one thread can order the accesses of all. A
// __threadfence() in every thread would wait for each of them.
__device__ __forceinline__ unsigned AddAcquireRelease(unsigned* address, unsigned value) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0,[%1],%2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

// Rounds two numbers to 16 bits, to nearest even, as operands of a tensor core (NUMERICS_T1 §1):
// numbers out of range become the largest finite one of their sign, NaN stays NaN. `low` goes to
// the lower half of the register.
__device__ __forceinline__ unsigned PackBF16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.satfinite.bf16x2.f32 %0,%1,%2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ unsigned PackF16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.satfinite.f16x2.f32 %0,%1,%2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Multiplies two pairs of 16-bit numbers. Each product rounds to nearest even; subnormals are kept.
// sm_80 has no product of bf16 alone, and adding −0 changes nothing.
__device__ __forceinline__ unsigned MultiplyBF16(unsigned a, unsigned b) {
  unsigned product;
  asm("fma.rn.bf16x2 %0,%1,%2,%3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}
__device__ __forceinline__ unsigned MultiplyF16(unsigned a, unsigned b) {
  unsigned product;
  asm("mul.rn.f16x2 %0,%1,%2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Widens the bits of an f16. Exact, subnormals too; a NaN stays one.
__device__ __forceinline__ float WidenF16(uint16_t bits) {
  float wide;
  asm("cvt.f32.f16 %0,%1;" : "=f"(wide) : "h"(bits));
  return wide;
}

// The larger number. NaN if one of them is.
__device__ __forceinline__ float MaxOrNan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0,%1,%2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// 1 / x with an error of at most 1 ulp. REQUIRES: x and the result are normal numbers.
__device__ __forceinline__ float ApproximateReciprocal(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

}  // namespace baton

#else
#include <gpu_emulator/ptx_language.h>
#endif
