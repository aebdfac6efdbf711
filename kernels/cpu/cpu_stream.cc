#include "kernels/cpu/cpu_stream.h"

#include <cstring>

#include "common/check.h"
#include "kernels/cpu/cpu_event.h"

namespace baton {
namespace {

class CpuOpGraph final : public OpGraph {
 public:
  using Operations = std::vector<CpuStream::Operation>;

  explicit CpuOpGraph(Operations operations)
      : operations_(std::make_shared<const Operations>(std::move(operations))) {}
  size_t op_count() const override { return operations_->size(); }
  const std::shared_ptr<const Operations>& operations() const { return operations_; }

 private:
  const std::shared_ptr<const Operations> operations_;
};

// Every graph of a device is a CpuOpGraph. A caller that mixes devices has a bug.
const std::shared_ptr<const CpuOpGraph::Operations>& OperationsOf(const OpGraph& graph) {
  return static_cast<const CpuOpGraph&>(graph).operations();
}

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

void CpuStream::Launch(const OpGraph& graph) {
  if (capturing_) {
    for (const Operation& operation : *OperationsOf(graph)) recorded_.push_back(operation);
    return;
  }
  Enqueue([operations = OperationsOf(graph)](CpuStream& stream) {
    for (const Operation& operation : *operations) operation(stream);
  });
}

void CpuStream::LaunchUntil(const OpGraph& graph, const std::function<bool()>& stop) {
  CHECK(!capturing_) << "LaunchUntil inside a capture";
  Enqueue([operations = OperationsOf(graph), stop](CpuStream& stream) {
    for (const Operation& operation : *operations) {
      if (stop()) return;
      operation(stream);
    }
  });
}

void CpuStream::Copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  Enqueue([=](CpuStream&) { std::memmove(destination, source, bytes); });
}

void CpuStream::Record(Event& event) {
  CHECK(!capturing_) << "Record inside a capture";
  if (thread_ != nullptr) thread_->Push(static_cast<CpuEvent&>(event).Begin());
}

void CpuStream::Call(std::function<void()> function) {
  CHECK(!capturing_) << "Call inside a capture";
  if (thread_ != nullptr) {
    thread_->Push(std::move(function));
  } else {
    function();
  }
}

}  // namespace baton
