// Small StepBuffers on a CPU, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "model/step_buffers.h"
#include "tests/model/tiny_model.h"

namespace baton {

class StepBuffersTest : public ::testing::Test {
 protected:
  StepBuffersTest() : model_("q4_1", 1), stream_(model_.device->CreateStream()) {
    buffers_ = *StepBuffers::Create(model_.config.Decoder(), layout_,
                                    {.max_tokens = 12,
                                     .max_sequences = 4,
                                     .max_logit_rows = 6,
                                     .max_context = 20,
                                     .max_extra_runs = 4,
                                     .max_shifted_queries = 8,
                                     .max_embeddings = 2},
                                    *model_.device);
  }
  void Upload(const StepInput& input, int32_t rows, int32_t logit_rows) {
    InputCopies copies;
    buffers_->Upload(input, rows, logit_rows, copies);
    copies.Enqueue(model_.device->ops(), *stream_);
  }
  template <typename T>
  static std::vector<T> Values(const T* data, size_t count) {
    return {data, data + count};
  }

  TinyModel model_;
  std::unique_ptr<Stream> stream_;
  const KvLayout layout_ = *KvLayout::Create({.layers = 2, .kv_heads = 2, .head_dim = 16},
                                             KvLayoutKind::kBlockMajor, 4, 11);
  std::unique_ptr<StepBuffers> buffers_;
};

}  // namespace baton
