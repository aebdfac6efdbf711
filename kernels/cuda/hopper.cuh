// Functions for instructions of sm_90a: barriers in shared memory (mbarrier), bulk copies and tile
// copies (TMA), and matrix products of a warpgroup (wgmma). Other architectures do not have these
// instructions, not even compute_90 without "a". So kernels use this file inside
// `#ifdef __CUDA_ARCH_FEAT_SM90_ALL`, or in files that are compiled for sm_90a only.
//
// Sources: PTX ISA, chapters "mbarrier", "Data Movement and Conversion Instructions: cp.async.bulk"
// and "Asynchronous Warpgroup Level Matrix Instructions". kernels/cuda/ptx.cuh has the rest.
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor_map.h"

#ifdef __CUDACC__

namespace baton {

// Returns true in one lane of the warp, always the same one. Whole warp. nvcc then knows that one
// lane issues the copies, and keeps their addresses in registers of the warp. With another
// condition, such as lane == 0, nvcc makes each copy a loop over the lanes: 40 to 50 clocks.
__device__ __forceinline__ bool ElectOne() {
  unsigned elected;
  asm volatile("{.reg .pred p; elect.sync _|p,0xffffffff; selp.u32 %0,1,0,p;}" : "=r"(elected));
  return elected != 0;
}

// ---- barriers in shared memory ---------------------------------------------------------------
//
// A barrier counts arrivals and bytes. A phase ends when both counts are complete, and the next one
// starts with the same number of arrivals. Phases have parity 0, 1, 0, …

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to copies. Other threads see them after __syncthreads().
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void ArriveBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

// Arrives, and adds to the bytes that copies must write before the phase ends.
__device__ __forceinline__ void ArriveAndExpect(uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity has ended. A fresh barrier is in phase 0, and the phase
// before it, of parity 1, counts as ended.
__device__ __forceinline__ void WaitBarrier(uint64_t* barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p;}"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  }
}

// ---- bulk and tile copies --------------------------------------------------------------------
//
// One thread issues a copy. Addresses and sizes of bulk copies are multiples of 16 bytes; a tile
// begins at a multiple of 128 bytes. A tile has its first coordinate fastest. Elements outside the
// tensor are zero, and count as bytes like others.

__device__ __forceinline__ void LoadBulk(void* shared, const void* global, unsigned bytes,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(
          SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// The same, for memory that no kernel writes. It may come before WaitForEarlierKernels
// (kernel_order.cuh).
__device__ __forceinline__ void LoadConstantBulk(void* shared, const void* global, unsigned bytes,
                                                 uint64_t* barrier) {
  LoadBulk(shared, global, bytes, barrier);
}

__device__ __forceinline__ void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier,
                                         int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0],[%1,{%3,%4}],[%2];" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(c0), "r"(c1)
      : "memory");
}

__device__ __forceinline__ void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier,
                                         int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0],[%1,{%3,%4,%5}],[%2];" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ __forceinline__ void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier,
                                         int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0],[%1,{%3,%4,%5,%6}],[%2];" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

__device__ __forceinline__ void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier,
                                         int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0],[%1,{%3,%4,%5,%6,%7}],[%2];" ::"r"(SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

__device__ __forceinline__ void StoreBulk(void* global, const void* shared, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0],[%1],%2;" ::"l"(global),
               "r"(SharedAddress(shared)), "r"(bytes)
               : "memory");
}

// The thread's stores since the last call form a group.
__device__ __forceinline__ void CommitBulkStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the newest `kGroups` groups have read their shared memory.
template <int kGroups>
__device__ __forceinline__ void WaitBulkStores() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

// Orders this thread's earlier accesses to shared memory before copies and matrix products that are
// issued later, also by other threads after a barrier.
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- matrix products of a warpgroup ----------------------------------------------------------
//
// Four warps, the first of which has a number that is a multiple of 4, compute d [64, cols] += a
// [64, 16] · b [16, cols]. Warp w has rows 16·w …; its fragments of a and d are those of m16n8k16
// (kernels/cuda/ptx.cuh), d[4·j …] for columns 8·j …. Products run asynchronously: between a
// product and its wait, d must not be touched.

// Describes a matrix in shared memory with 16-bit elements. Let "rows" be the dimension that is not
// summed over, k the other, and S the bytes of the swizzle. Byte offsets of an element, before the
// swizzle of its address:
//   k fastest, swizzled:    (row % 8)·S + (row / 8)·stride + 2·k
//   k fastest, kNone:       (row % 8)·16 + (row / 8)·stride + 2·(k % 8) + (k / 8)·leading
//   row fastest, swizzled:  2·(row % (S/2)) + (row / (S/2))·leading + (k % 8)·S + (k / 8)·stride
//   row fastest, kNone:     2·(row % 8) + (row / 8)·stride + (k % 8)·16 + (k / 8)·leading
// Strides are multiples of 16. The swizzle's pattern begins at multiples of 8·S.
__device__ __forceinline__ uint64_t MatrixDescriptor(const void* shared, unsigned leading,
                                                     unsigned stride, SharedSwizzle swizzle) {
  const uint64_t mode = swizzle == SharedSwizzle::kNone ? 0 : 4 - static_cast<uint64_t>(swizzle);
  return (SharedAddress(shared) & 0x3ffffu) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | mode << 62;
}

// Ties registers to this place: nvcc then moves no access to them across it. A product changes its
// sums after its instruction, which nvcc does not know. Registers: float, int, unsigned, arrays.
__device__ __forceinline__ void FenceRegisters(float& value) {
  asm volatile("" : "+f"(value)::"memory");
}
__device__ __forceinline__ void FenceRegisters(int& value) {
  asm volatile("" : "+r"(value)::"memory");
}
__device__ __forceinline__ void FenceRegisters(unsigned& value) {
  asm volatile("" : "+r"(value)::"memory");
}
template <typename T, int kCount>
__device__ __forceinline__ void FenceRegisters(T (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) FenceRegisters(values[i]);
}

// Before the first product, and after other accesses to d or to a's registers. Names all registers
// of the products that follow: d, and a if it is in registers. Whole warpgroup, as all functions
// below. The emulator fails where a name is missing.
template <typename... Registers>
__device__ __forceinline__ void FenceMatrixRegisters(Registers&... registers) {
  (FenceRegisters(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitMatrixProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits for all but the newest `kGroups` groups of products. Names the registers that become free:
// d unless a later product adds to it, and a if it is in registers.
template <int kGroups, typename... Registers>
__device__ __forceinline__ void WaitMatrixProducts(Registers&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  (FenceRegisters(registers), ...);
}

}  // namespace baton

#else
#include <gpu_emulator/hopper_language.h>
#endif
