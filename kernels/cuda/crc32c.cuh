// CRC32C of the bytes that a block copies.
//
// A block reads rows of kCopyStep bytes. Thread t has bytes [16 t, 16 t + 16) of each row. It keeps
// the remainder of its own bytes, as if all other bytes were zeros. Before it adds 16 bytes of the
// next row, it moves the remainder over one row. Both steps use lookup tables, which the block
// makes in shared memory (slicing: Kounavis and Berry, "Novel Table Lookup-Based Algorithms for
// High-Performance CRC Generation", 2008). At the end, the remainders of all threads are moved to
// the end of the slice and added.
//
// Remainders are reflected: bit 31 is x^0. They are without the inversions at the begin and the end
// of CRC32C.
#pragma once

#include "kernels/cuda/copy_params.h"
#include "kernels/cuda/device_code.cuh"

namespace baton::crc {

inline constexpr uint32_t kPolynomial = 0x82F63B78;
inline constexpr int kPiece = 16;  // bytes that a thread takes of a row
inline constexpr int kStepPower = 12;
static_assert(int64_t{1} << kStepPower == kCopyStep, "powers[kStepPower] moves over one row");

struct CrcShared {
  uint32_t tables[kPiece][256];  // [i][b]: remainder of byte b and i zero bytes
  uint32_t moves[4][256];        // [i][b]: the remainder b << 8 i, moved over one row
  uint32_t warps[kCopyThreads / 32];
};
static_assert(sizeof(CrcShared) <= kChecksumSharedBytes, "the launch reserves this much");

// Product of two remainders modulo the polynomial.
__device__ inline uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 0; bit < 32; ++bit) {
    product ^= (a & 0x80000000u) != 0 ? b : 0;
    a <<= 1;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

// Moves a remainder over `bytes` zero bytes.
__device__ inline uint32_t Move(uint32_t remainder, int64_t bytes, const uint32_t* powers) {
  for (int i = 0; bytes != 0; ++i, bytes >>= 1) {
    if ((bytes & 1) != 0) remainder = Multiply(remainder, powers[i]);
  }
  return remainder;
}

// REQUIRES: a block of kCopyThreads, which is 256.
__device__ inline void MakeTables(CrcShared& shared, const uint32_t* powers) {
  const uint32_t byte = threadIdx.x;
  uint32_t crc = byte;
  for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
  shared.tables[0][byte] = crc;
  for (int i = 0; i < 4; ++i) shared.moves[i][byte] = Multiply(byte << (8 * i), powers[kStepPower]);
  __syncthreads();
  for (int i = 1; i < kPiece; ++i) {
    crc = (crc >> 8) ^ shared.tables[0][crc & 0xff];
    shared.tables[i][byte] = crc;
  }
  __syncthreads();
}

// Returns the remainder after one more row, of which this thread has `piece`.
__device__ inline uint32_t AddPiece(const CrcShared& shared, uint32_t remainder,
                                    const uint4& piece) {
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum ^= shared.moves[i][remainder >> (8 * i) & 0xff];
  const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    sum ^= shared.tables[kPiece - 1 - i][words[i / 4] >> (8 * (i % 4)) & 0xff];
  }
  return sum;
}

__device__ inline uint32_t AddByte(const CrcShared& shared, uint32_t remainder, uint32_t byte) {
  return (remainder >> 8) ^ shared.tables[0][(remainder ^ byte) & 0xff];
}

// Joins the threads' remainders into that of all rows. The result is thread 0's.
__device__ inline uint32_t JoinThreads(CrcShared& shared, uint32_t remainder,
                                       const uint32_t* powers) {
  int power = 4;  // 16 bytes
  for (int distance = 1; distance < 32; distance *= 2, ++power) {
    const uint32_t later = __shfl_down_sync(0xffffffffu, remainder, distance);
    remainder = Multiply(remainder, powers[power]) ^ later;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = remainder;
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  for (int warp = 1; warp < kCopyThreads / 32; ++warp) {
    remainder = Multiply(remainder, powers[power]) ^ shared.warps[warp];
  }
  return remainder;
}

}  // namespace baton::crc
