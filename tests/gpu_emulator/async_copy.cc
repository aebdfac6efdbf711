#include "tests/gpu_emulator/async_copy.h"

#include <algorithm>
#include <cstring>

#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {

void PendingCopies::Land(const Copy& copy) {
  if (copy.valid > 0) NoteRead(copy.from, copy.valid);
  NoteWrite(copy.to, copy.bytes);
  const UnrecordedAccesses unrecorded;
  std::memcpy(copy.to, copy.from, copy.valid);
  std::memset(static_cast<std::byte*>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
}

void PendingCopies::Issue(void* to, const void* from, uint32_t bytes, uint32_t valid,
                          bool lands_now) {
  const Copy copy = {to, from, bytes, valid, groups_};
  if (lands_now) {
    Land(copy);
    return;
  }
  if (valid > 0) NoteRead(from, valid);
  NoteWrite(to, bytes);
  copies_.push_back(copy);
}

void PendingCopies::Wait(uint32_t groups) {
  const auto waited = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return copy.group + groups >= groups_;
  });
  std::for_each(copies_.begin(), waited, &PendingCopies::Land);
  copies_.erase(copies_.begin(), waited);
}

void PendingCopies::WaitAll() {
  std::for_each(copies_.begin(), copies_.end(), &PendingCopies::Land);
  copies_.clear();
}

void PendingCopies::Forget() {
  copies_.clear();
  groups_ = 0;
}

}  // namespace baton::gpu_emulator
