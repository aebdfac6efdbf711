#include "model/device_writer.h"

namespace baton {

absl::Status DeviceWriter::Upload(void* to) {
  if (stream_ == nullptr) stream_ = device_.CreateStream();
  stream_->Copy(to, host_.data(), host_.size());
  stream_->Synchronize();
  return device_.Health();
}

}  // namespace baton
