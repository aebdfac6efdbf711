#include "tests/gpu_emulator/pending_products.h"

#include <algorithm>
#include <cstring>

#include "tests/gpu_emulator/sanitizers.h"

namespace baton::gpu_emulator {
namespace {

bool Names(NamedRegisters registers, const RegisterRange& range) {
  return std::ranges::any_of(registers, [&](const RegisterRange& r) { return r.contains(range); });
}

}  // namespace

const char* PendingProducts::CheckFenced(const RegisterRange& range) const {
  for (const FencedRange& fenced : fenced_) {
    if (!fenced.range.contains(range)) continue;
    const auto offset = static_cast<const std::byte*>(range.address) -
                        static_cast<const std::byte*>(fenced.range.address);
    if (std::memcmp(range.address, fenced.values.data() + offset, range.bytes) == 0) return "";
    return "a product's registers changed after the fence that named them";
  }
  return "no FenceMatrixRegisters named the registers of this product";
}

const char* PendingProducts::Issue(const RegisterRange& sums, const RegisterRange& a) {
  const UnrecordedAccesses unrecorded;
  // Between the products that add to the same sums no fence is needed.
  const bool continues = std::ranges::any_of(
      open_, [&](const Operands& operands) { return operands.sums.address == sums.address; });
  const char* error = continues ? "" : CheckFenced(sums);
  if (*error == '\0' && a.bytes > 0) error = CheckFenced(a);
  ++issued_;
  open_.push_back({sums, a});
  return error;
}

void PendingProducts::Fence(NamedRegisters registers) { Remember(registers); }

uint64_t PendingProducts::Before(uint32_t groups) const {
  return groups >= groups_.size() ? 0 : groups_[groups_.size() - 1 - groups];
}

const char* PendingProducts::Wait(uint64_t products, NamedRegisters registers) {
  const UnrecordedAccesses unrecorded;
  const char* error = "";
  for (; waited_ < products; ++waited_) {
    const Operands done = open_.front();
    open_.pop_front();
    const bool continues = std::ranges::any_of(open_, [&](const Operands& operands) {
      return operands.sums.address == done.sums.address;
    });
    if (!continues && !Names(registers, done.sums)) {
      error = "WaitMatrixProducts does not name the sums that it makes free";
    }
    if (done.a.bytes > 0 && !Names(registers, done.a)) {
      error = "WaitMatrixProducts does not name the registers of `a` that it makes free";
    }
  }
  return error;
}

void PendingProducts::Remember(NamedRegisters registers) {
  const UnrecordedAccesses unrecorded;
  for (const RegisterRange& range : registers) {
    auto known = std::ranges::find_if(fenced_, [&](const FencedRange& fenced) {
      return fenced.range.address == range.address && fenced.range.bytes == range.bytes;
    });
    if (known == fenced_.end()) known = fenced_.insert(fenced_.end(), {range, {}});
    const auto* values = static_cast<const std::byte*>(range.address);
    known->values.assign(values, values + range.bytes);
  }
}

}  // namespace baton::gpu_emulator
