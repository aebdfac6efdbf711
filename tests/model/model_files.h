// Small model files of tests/testdata/models, complete or with changes.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "model/gguf/gguf_reader.h"
#include "tests/model/gguf_builder.h"

namespace baton {

inline std::string TinyModelPath(const std::string& name) {
  return std::string(BATON_TESTDATA) + "/models/tiny-" + name + ".gguf";
}

// Copies a model file without some keys and tensors. The caller may add others.
inline GgufBuilder CopyModel(const GgufFile& file, const std::set<std::string>& without) {
  GgufBuilder builder;
  for (const std::string_view key : file.keys()) {
    if (without.contains(std::string(key))) continue;
    const GgufValue& value = *file.Find(key);
    const std::string bytes(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
    if (value.type == GgufValueType::kString) {
      builder.String(key, bytes);
    } else if (value.type == GgufValueType::kArray) {
      builder.Array(key, value.element_type, value.count, bytes);
    } else {
      builder.Key(key, value.type, bytes);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (without.contains(std::string(tensor.name))) continue;
    builder.Tensor(tensor.name,
                   {tensor.dimensions.begin(), tensor.dimensions.begin() + tensor.dimension_count},
                   tensor.type,
                   {reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()});
  }
  return builder;
}

}  // namespace baton
