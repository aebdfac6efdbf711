// Stream that copies immediately and captures nothing, for tests that upload without ops.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>

#include "kernels/device.h"

namespace baton {

class ImmediateStream final : public Stream {
 public:
  void BeginCapture() override {}
  std::unique_ptr<OpGraph> EndCapture() override { return nullptr; }
  bool capturing() const override { return false; }
  void Launch(const OpGraph&) override {}
  void Copy(void* destination, const void* source, size_t bytes) override {
    std::memcpy(destination, source, bytes);
  }
  void Synchronize() override {}
};

}  // namespace baton
