#include "kernels/cpu/cpu_stream.h"

#include <cstring>

#include "common/check.h"

namespace baton {
namespace {

class CpuOpGraph final : public OpGraph {
 public:
  explicit CpuOpGraph(std::vector<CpuStream::Operation> operations)
      : operations_(std::move(operations)) {}
  size_t op_count() const override { return operations_.size(); }
  const std::vector<CpuStream::Operation>& operations() const { return operations_; }

 private:
  std::vector<CpuStream::Operation> operations_;
};

}  // namespace

void CpuStream::BeginCapture() {
  CHECK(!capturing_) << "BeginCapture inside a capture";
  capturing_ = true;
}

std::unique_ptr<OpGraph> CpuStream::EndCapture() {
  CHECK(capturing_) << "EndCapture without BeginCapture";
  capturing_ = false;
  return std::make_unique<CpuOpGraph>(std::exchange(recorded_, {}));
}

// A device's graphs are its own: whoever mixes devices has a bug.
void CpuStream::Launch(const OpGraph& graph) {
  for (const Operation& operation : static_cast<const CpuOpGraph&>(graph).operations()) {
    Enqueue(operation);
  }
}

void CpuStream::LaunchUntil(const OpGraph& graph, const std::function<bool()>& stop) {
  CHECK(!capturing_) << "LaunchUntil inside a capture";
  for (const Operation& operation : static_cast<const CpuOpGraph&>(graph).operations()) {
    if (stop()) return;
    operation(*this);
  }
}

void CpuStream::Copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  Enqueue([=](CpuStream&) { std::memmove(destination, source, bytes); });
}

}  // namespace baton
