// The copies that one CUDA thread issued with cp.async and has not waited for.
//
// A late copy reads its source and writes its target inside the wait. ThreadSanitizer is told of
// each copy twice: when it is issued and when it lands.
//
// Thread safety: belongs to the fiber of its CUDA thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton::gpu_emulator {

class PendingCopies {
 public:
  // Copies `valid` bytes and writes zeros behind them, up to `bytes`.
  void Issue(void* to, const void* from, uint32_t bytes, uint32_t valid, bool lands_now);
  void Commit() { ++groups_; }  // the copies since the last Commit form a group
  void Wait(uint32_t groups);   // lands all but the newest `groups` groups
  void WaitAll();               // also lands copies without a group
  void Forget();                // they never land
  bool empty() const { return copies_.empty(); }

 private:
  struct Copy {
    void* to;
    const void* from;
    uint32_t bytes;
    uint32_t valid;
    uint64_t group;
  };
  static void Land(const Copy& copy);

  std::vector<Copy> copies_;
  uint64_t groups_ = 0;  // committed
};

}  // namespace baton::gpu_emulator
