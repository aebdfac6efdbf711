// libFuzzer target: any bytes are a GGUF file or a status, never a crash. Build with clang++,
// -DBATON_FUZZ=ON and -DBATON_SANITIZE=fuzzer-no-link,address,undefined; seed it with
// tests/testdata/models/tiny-q4_0.gguf.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/model/gguf_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = baton::GgufFile::FromBytes(std::as_bytes(std::span(data, size)));
  if (file.ok()) {
    baton::ExerciseGguf(**file);
  } else if (file.status().message().empty()) {
    std::abort();
  }
  return 0;
}
