#include "kernels/cuda/cuda_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/cuda/cuda_event.h"

namespace baton {
namespace {

class CudaGraph final : public OpGraph {
 public:
  CudaGraph(std::shared_ptr<CudaContext> context, std::vector<CudaCommand> commands,
            CuGraphExec exec)
      : context_(std::move(context)), commands_(std::move(commands)), exec_(exec) {}
  // If the graph is running, the driver frees it afterwards.
  ~CudaGraph() override {
    if (exec_ == nullptr) return;
    context_->Check("cuGraphExecDestroy", context_->Enter().GraphExecDestroy(exec_)).IgnoreError();
  }
  size_t op_count() const override { return commands_.size(); }
  const std::vector<CudaCommand>& commands() const { return commands_; }
  CuGraphExec exec() const { return exec_; }  // null: no commands, or the device has failed

 private:
  const std::shared_ptr<CudaContext> context_;
  const std::vector<CudaCommand> commands_;
  const CuGraphExec exec_;
};

std::string TextOf(const TiledTensor& tensor) {
  std::string sizes, strides, box;
  for (int i = 0; i < tensor.rank; ++i) {
    const char* const comma = i == 0 ? "" : ", ";
    absl::StrAppend(&sizes, comma, tensor.sizes[i]);
    absl::StrAppend(&strides, comma, tensor.stride_bytes[i]);
    absl::StrAppend(&box, comma, tensor.box[i]);
  }
  return absl::StrCat("sizes [", sizes, "], strides [", strides, "] bytes, box [", box, "]");
}

}  // namespace

CudaStream::CudaStream(std::shared_ptr<CudaContext> context, CudaKernels& kernels,
                       CudaMemory& memory)
    : context_(std::move(context)), kernels_(kernels), memory_(memory) {
  context_->Expect("cuStreamCreate",
                   context_->Enter().StreamCreate(&stream_, kCuStreamNonBlocking));
}

CudaStream::~CudaStream() {
  Synchronize();
  calls_.reset();
  if (stream_ != nullptr) {
    context_->Check("cuStreamDestroy", context_->Enter().StreamDestroy(stream_)).IgnoreError();
  }
}

void CudaStream::BeginCapture() {
  CHECK(!capturing_) << "BeginCapture inside a capture";
  capturing_ = true;
}

std::unique_ptr<OpGraph> CudaStream::EndCapture() {
  CHECK(capturing_) << "EndCapture without BeginCapture";
  capturing_ = false;
  std::vector<CudaCommand> commands = std::exchange(recorded_, {});
  const CuGraphExec exec = commands.empty() ? nullptr : Instantiate(commands);
  return std::make_unique<CudaGraph>(context_, std::move(commands), exec);
}

// Relaxed: the first launch of a kernel may make the driver load it, which a stricter capture could
// forbid. So may a library's call. Nothing but launches, copies and such calls happens inside the
// capture.
CuGraphExec CudaStream::Instantiate(const std::vector<CudaCommand>& commands) {
  if (!context_->Health().ok()) return nullptr;
  const CudaDriver& driver = context_->Enter();
  if (!context_->Expect("cuStreamBeginCapture",
                        driver.StreamBeginCapture(stream_, kCuCaptureRelaxed))) {
    return nullptr;
  }
  behind_kernel_ = false;
  for (const CudaCommand& command : commands) Issue(command);
  behind_kernel_ = false;
  CuGraph graph = nullptr;
  CuGraphExec exec = nullptr;
  if (context_->Expect("cuStreamEndCapture", driver.StreamEndCapture(stream_, &graph))) {
    // The upload takes the device memory that the first launch would take otherwise.
    if (context_->Expect("cuGraphInstantiate", driver.GraphInstantiate(&exec, graph, 0))) {
      context_->Expect("cuGraphUpload", driver.GraphUpload(exec, stream_));
    }
    context_->Expect("cuGraphDestroy", driver.GraphDestroy(graph));
  }
  return exec;
}

absl::Status CudaStream::Prepare(const std::function<void()>& enqueue) {
  CHECK(!capturing_ && !preparing_) << "Prepare inside a capture or a Prepare";
  RETURN_IF_ERROR(context_->Health());
  preparing_ = true;
  enqueue();
  preparing_ = false;
  CHECK(!capturing_) << "Prepare ends inside a capture";
  const absl::Status prepared = std::exchange(prepared_, absl::OkStatus());
  const absl::Status health = context_->Health();
  return health.ok() ? prepared : health;
}

void CudaStream::Fail(const absl::Status& error) {
  if (preparing_) return prepared_.Update(error);
  context_->Fail(error);
}

void CudaStream::Launch(const OpGraph& graph) {
  const auto& cuda_graph = static_cast<const CudaGraph&>(graph);
  if (capturing_) {
    recorded_.insert(recorded_.end(), cuda_graph.commands().begin(), cuda_graph.commands().end());
    return;
  }
  if (preparing_ || cuda_graph.exec() == nullptr || !context_->Health().ok()) return;
  behind_kernel_ = false;
  context_->Expect("cuGraphLaunch", context_->Enter().GraphLaunch(cuda_graph.exec(), stream_));
}

void CudaStream::LaunchUntil(const OpGraph& graph, const std::function<bool()>& stop) {
  CHECK(!capturing_) << "LaunchUntil inside a capture";
  if (!stop()) Launch(graph);
}

void CudaStream::Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
                        size_t bytes) {
  if (shape.grid[0] == 0 || shape.grid[1] == 0 || shape.grid[2] == 0) return;
  if (!context_->Health().ok()) return;
  if (const absl::Status legal = CheckLaunch(kernel, shape); !legal.ok()) {
    return Fail(legal);
  }
  const absl::StatusOr<CuFunction> function = kernels_.Find(kernel, shape.shared_bytes);
  if (!function.ok()) return Fail(function.status());
  if (preparing_) return;
  if (!capturing_) return IssueLaunch(*function, shape, params);
  const auto* const begin = static_cast<const std::byte*>(params);
  recorded_.push_back({.function = *function, .shape = shape, .params = {begin, begin + bytes}});
}

void CudaStream::Copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0 || preparing_ || !context_->Health().ok()) return;
  if (!capturing_) return IssueCopy(destination, source, bytes);
  recorded_.push_back({.destination = destination, .source = source, .bytes = bytes});
}

void CudaStream::CallLibrary(std::function<void(CuStream)> call) {
  if (preparing_ || !context_->Health().ok()) return;
  if (!capturing_) return IssueCall(call);
  recorded_.push_back({.call = std::move(call)});
}

void CudaStream::Issue(const CudaCommand& command) {
  if (command.call != nullptr) {
    IssueCall(command.call);
  } else if (command.function == nullptr) {
    IssueCopy(command.destination, command.source, command.bytes);
  } else {
    IssueLaunch(command.function, command.shape, command.params.data());
  }
}

void CudaStream::IssueCall(const std::function<void(CuStream)>& call) {
  behind_kernel_ = false;
  call(stream_);
}

void CudaStream::IssueCopy(void* destination, const void* source, size_t bytes) {
  behind_kernel_ = false;
  context_->Expect("cuMemcpyAsync", context_->Enter().MemcpyAsync(
                                        reinterpret_cast<CuDevicePointer>(destination),
                                        reinterpret_cast<CuDevicePointer>(source), bytes, stream_));
}

void CudaStream::IssueLaunch(CuFunction function, const LaunchShape& shape, const void* params) {
  void* pointers[] = {const_cast<void*>(params)};  // the driver only reads it
  const auto grid = [&](int i) { return static_cast<unsigned int>(shape.grid[i]); };  // checked
  if (std::exchange(behind_kernel_, true) && context_->early_kernels()) {
    CuLaunchAttribute early;
    const CuLaunchConfig config = {
        .grid = {grid(0), grid(1), grid(2)},
        .block = {shape.block[0], shape.block[1], shape.block[2]},
        .shared_bytes = shape.shared_bytes,
        .stream = stream_,
        .attributes = &early,
        .attribute_count = 1,
    };
    context_->Expect("cuLaunchKernelEx",
                     context_->Enter().LaunchKernelEx(&config, function, pointers, nullptr));
    return;
  }
  context_->Expect("cuLaunchKernel",
                   context_->Enter().LaunchKernel(function, grid(0), grid(1), grid(2),
                                                  shape.block[0], shape.block[1], shape.block[2],
                                                  shape.shared_bytes, stream_, pointers, nullptr));
}

void CudaStream::Synchronize() {
  if (stream_ != nullptr) {
    context_->Expect("cuStreamSynchronize", context_->Enter().StreamSynchronize(stream_));
  }
  if (calls_ != nullptr) CudaCallThread::Wait(calls_->returned(), calls_->pushed());
}

void CudaStream::Record(Event& event) {
  CHECK(!capturing_ && !preparing_) << "Record inside a capture or a Prepare";
  behind_kernel_ = false;
  auto& cuda_event = static_cast<CudaEvent&>(event);
  if (calls_ == nullptr) {
    cuda_event.Record(stream_, nullptr, 0);
  } else {
    cuda_event.Record(stream_, calls_->returned(), calls_->pushed());
  }
}

void CudaStream::Call(std::function<void()> function) {
  CHECK(!capturing_ && !preparing_) << "Call inside a capture or a Prepare";
  behind_kernel_ = false;
  if (calls_ == nullptr) calls_ = std::make_unique<CudaCallThread>(context_);
  calls_->Push(stream_, std::move(function));
}

void CudaStream::CallBetweenLimits(std::function<void()> function) {
  CHECK(!capturing_) << "CallBetweenLimits inside a capture";
  function();
}

std::byte* CudaStream::Workspace(std::string_view purpose, size_t bytes) {
  auto at = workspaces_.find(purpose);
  if (at == workspaces_.end()) at = workspaces_.try_emplace(std::string(purpose)).first;
  auto& buffers = at->second;
  if (buffers.empty() || buffers.back()->size() < bytes) {
    // At least twice the last size, so that growth costs few allocations.
    const size_t least = buffers.empty() ? 0 : 2 * buffers.back()->size();
    absl::StatusOr<std::unique_ptr<DeviceBuffer>> buffer =
        memory_.Allocate(std::max(bytes, least), purpose);
    if (!buffer.ok()) {
      Fail(buffer.status());
      return nullptr;
    }
    buffers.push_back(*std::move(buffer));
  }
  return buffers.back()->data();
}

bool CudaStream::EncodeTiles(const TiledTensor& tensor, TensorMap& map) {
  CHECK(tensor.element_bytes == 2) << "tiles with elements of " << tensor.element_bytes << " bytes";
  if (!context_->Health().ok()) return false;
  constexpr uint32_t kDense[kMostTileRank] = {1, 1, 1, 1, 1};
  const CuResult result = context_->Enter().TensorMapEncodeTiled(
      &map, kCuTileUint16, static_cast<uint32_t>(tensor.rank),
      const_cast<void*>(tensor.address),  // the driver only keeps it
      tensor.sizes.data(), tensor.stride_bytes.data() + 1, tensor.box.data(), kDense,
      kCuTileInterleaveNone, static_cast<CuTileSwizzle>(tensor.swizzle), kCuTilePromotion256,
      kCuTileFillZeros);
  if (result != kCuSuccess) {
    LOG_FIRST_N(WARNING, 1) << "the driver refuses the tensor map of " << TextOf(tensor)
                            << ", with error " << result
                            << ": kernels for such tensors copy without tiles, and are slower";
  }
  return result == kCuSuccess;
}

}  // namespace baton
