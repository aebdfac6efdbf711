#include "common/thread_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace baton {
namespace {

// As in include/uapi/linux/sched/types.h, up to the fields of the kernel's first version. The C
// library of Debian 12 has neither this struct nor the system calls.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // the slice, for policies that share time
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};

constexpr long kThisThread = 0;
constexpr unsigned int kNoFlags = 0;

std::optional<SchedulingAttributes> Attributes() {
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, kThisThread, &attributes, sizeof(attributes), kNoFlags) != 0) {
    return std::nullopt;
  }
  const bool shares_time = attributes.policy == SCHED_OTHER || attributes.policy == SCHED_BATCH;
  return shares_time ? std::optional(attributes) : std::nullopt;
}

bool AskFor(int64_t slice_ns) {
  std::optional<SchedulingAttributes> attributes = Attributes();
  if (!attributes) return false;
  attributes->size = sizeof(*attributes);
  attributes->runtime_ns = static_cast<uint64_t>(slice_ns);
  if (syscall(SYS_sched_setattr, kThisThread, &*attributes, kNoFlags) != 0) return false;
  return SliceNs() == slice_ns;  // an older kernel ignores the request
}

}  // namespace

bool AskForShortSlice() { return AskFor(kShortSliceNs); }

ShortSliceForNewThreads::ShortSliceForNewThreads()
    : before_ns_(SliceNs()), changed_(AskForShortSlice()) {}

ShortSliceForNewThreads::~ShortSliceForNewThreads() {
  if (changed_ && before_ns_) AskFor(*before_ns_);
}

std::optional<int64_t> SliceNs() {
  const std::optional<SchedulingAttributes> attributes = Attributes();
  if (!attributes || attributes->runtime_ns == 0) return std::nullopt;
  return static_cast<int64_t>(attributes->runtime_ns);
}

}  // namespace baton
