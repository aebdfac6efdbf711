// Reads everything in an opened GGUF file, for tests with damaged files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/gguf/gguf_dequant.h"
#include "model/gguf/gguf_reader.h"

namespace baton {

// Returns a number that depends on all that was read, so the compiler cannot remove any read.
inline uint64_t ExerciseGguf(const GgufFile& file) {
  uint64_t sum = file.alignment() + file.version();
  for (const std::string_view key : file.keys()) {
    const GgufValue& value = *file.Find(key);
    sum += GgufMetadata::FormatValue(value).size() + GgufMetadata::DescribeType(value).size();
    sum += file.GetString(key).ok() + file.GetU32(key).ok() + file.GetI64(key).ok() +
           file.GetF32(key).ok() + file.GetBool(key).ok() + file.GetStringArray(key).ok() +
           file.GetI32Array(key).ok() + file.GetF32Array(key).ok() + file.GetBoolArray(key).ok();
  }
  std::vector<float> values;
  for (const GgufTensor& tensor : file.tensors()) {
    sum += tensor.ShapeString().size() + GgmlTypeName(tensor.type).size();
    if (!IsLoadable(tensor.type)) continue;
    values.resize(tensor.values);
    sum += Dequantize(tensor.type, tensor.data, values).ok();
  }
  return sum;
}

}  // namespace baton
