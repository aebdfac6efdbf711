// The functions of kernels/cuda/hopper.cuh for kernels that are compiled as host C++.
#pragma once

#include <cstdint>

#include "tests/gpu_emulator/bulk_copy.h"
#include "tests/gpu_emulator/mbarrier.h"
#include "tests/gpu_emulator/ptx_language.h"
#include "tests/gpu_emulator/warpgroup_products.h"

namespace baton {

// PTX does not say which lane is elected. Here it is the last one, because kernels often test for
// the first.
inline bool ElectOne(BATON_PLACE) {
  return gpu_emulator::Vote(0xffffffffu, true, place).ballot >> threadIdx.x % 32 == 1;
}

BATON_MEMORY_CALL void InitBarrier(uint64_t* barrier, unsigned arrivals, BATON_PLACE) {
  gpu_emulator::InitMbarrier(barrier, arrivals, place);
}
inline void FenceBarrierInit(BATON_PLACE) { gpu_emulator::FenceMbarrierInit(place); }
BATON_MEMORY_CALL void ArriveBarrier(uint64_t* barrier, BATON_PLACE) {
  gpu_emulator::ArriveMbarrier(barrier, 0, place);
}
BATON_MEMORY_CALL void ArriveAndExpect(uint64_t* barrier, unsigned bytes, BATON_PLACE) {
  gpu_emulator::ArriveMbarrier(barrier, bytes, place);
}
BATON_MEMORY_CALL void WaitBarrier(uint64_t* barrier, unsigned parity, BATON_PLACE) {
  gpu_emulator::WaitMbarrier(barrier, parity, place);
}

BATON_MEMORY_CALL void LoadBulk(void* shared, const void* global, unsigned bytes, uint64_t* barrier,
                                BATON_PLACE) {
  gpu_emulator::IssueBulkLoad(shared, global, bytes, barrier, false, place);
}
BATON_MEMORY_CALL void LoadConstantBulk(void* shared, const void* global, unsigned bytes,
                                        uint64_t* barrier, BATON_PLACE) {
  gpu_emulator::IssueBulkLoad(shared, global, bytes, barrier, true, place);
}
BATON_MEMORY_CALL void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier, int c0,
                                int c1, BATON_PLACE) {
  const int c[] = {c0, c1};
  gpu_emulator::IssueTileLoad(shared, map, barrier, c, 2, place);
}
BATON_MEMORY_CALL void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier, int c0,
                                int c1, int c2, BATON_PLACE) {
  const int c[] = {c0, c1, c2};
  gpu_emulator::IssueTileLoad(shared, map, barrier, c, 3, place);
}
BATON_MEMORY_CALL void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier, int c0,
                                int c1, int c2, int c3, BATON_PLACE) {
  const int c[] = {c0, c1, c2, c3};
  gpu_emulator::IssueTileLoad(shared, map, barrier, c, 4, place);
}
BATON_MEMORY_CALL void LoadTile(void* shared, const TensorMap* map, uint64_t* barrier, int c0,
                                int c1, int c2, int c3, int c4, BATON_PLACE) {
  const int c[] = {c0, c1, c2, c3, c4};
  gpu_emulator::IssueTileLoad(shared, map, barrier, c, 5, place);
}
BATON_MEMORY_CALL void StoreBulk(void* global, const void* shared, unsigned bytes, BATON_PLACE) {
  gpu_emulator::IssueBulkStore(global, shared, bytes, place);
}
inline void CommitBulkStores() { gpu_emulator::CommitBulkStoreGroup(); }
template <int kGroups>
BATON_MEMORY_CALL void WaitBulkStores(BATON_PLACE) {
  gpu_emulator::WaitBulkStoreGroups(kGroups, place);
}
inline void FenceProxyAsync(BATON_PLACE) { gpu_emulator::FenceAsyncProxy(place); }

inline uint64_t MatrixDescriptor(const void* shared, unsigned leading, unsigned stride,
                                 SharedSwizzle swizzle, BATON_PLACE) {
  const uint64_t mode = swizzle == SharedSwizzle::kNone ? 0 : 4 - static_cast<uint64_t>(swizzle);
  return gpu_emulator::SharedOffset(shared, place) >> 4 |
         uint64_t{gpu_emulator::MatrixStride(leading, place) >> 4} << 16 |
         uint64_t{gpu_emulator::MatrixStride(stride, place) >> 4} << 32 | mode << 62;
}
// A call has its place as default argument, so it cannot take a pack of registers.
template <typename T>
void FenceRegisters(T&) {}
inline void FenceMatrixRegisters(BATON_PLACE) { gpu_emulator::FenceProducts({}, place); }
template <typename A>
void FenceMatrixRegisters(A& a, BATON_PLACE) {
  gpu_emulator::FenceProducts({{&a, sizeof(a)}}, place);
}
template <typename A, typename B>
void FenceMatrixRegisters(A& a, B& b, BATON_PLACE) {
  gpu_emulator::FenceProducts({{&a, sizeof(a)}, {&b, sizeof(b)}}, place);
}
template <typename A, typename B, typename C>
void FenceMatrixRegisters(A& a, B& b, C& c, BATON_PLACE) {
  gpu_emulator::FenceProducts({{&a, sizeof(a)}, {&b, sizeof(b)}, {&c, sizeof(c)}}, place);
}
template <typename A, typename B, typename C, typename D>
void FenceMatrixRegisters(A& a, B& b, C& c, D& d, BATON_PLACE) {
  gpu_emulator::FenceProducts({{&a, sizeof(a)}, {&b, sizeof(b)}, {&c, sizeof(c)}, {&d, sizeof(d)}},
                              place);
}
inline void CommitMatrixProducts(BATON_PLACE) { gpu_emulator::CommitProducts(place); }
template <int kGroups>
BATON_MEMORY_CALL void WaitMatrixProducts(BATON_PLACE) {
  gpu_emulator::WaitProducts(kGroups, {}, place);
}
template <int kGroups, typename A>
BATON_MEMORY_CALL void WaitMatrixProducts(A& a, BATON_PLACE) {
  gpu_emulator::WaitProducts(kGroups, {{&a, sizeof(a)}}, place);
}
template <int kGroups, typename A, typename B>
BATON_MEMORY_CALL void WaitMatrixProducts(A& a, B& b, BATON_PLACE) {
  gpu_emulator::WaitProducts(kGroups, {{&a, sizeof(a)}, {&b, sizeof(b)}}, place);
}
template <int kGroups, typename A, typename B, typename C>
BATON_MEMORY_CALL void WaitMatrixProducts(A& a, B& b, C& c, BATON_PLACE) {
  gpu_emulator::WaitProducts(kGroups, {{&a, sizeof(a)}, {&b, sizeof(b)}, {&c, sizeof(c)}}, place);
}

}  // namespace baton
