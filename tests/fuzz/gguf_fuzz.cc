// libFuzzer target for the GGUF reader: any bytes give a file or a status, never a crash. Build it
// with clang++, -DBATON_FUZZ=ON and -DBATON_SANITIZE=fuzzer-no-link,address,undefined. Use
// tests/testdata/models/tiny-q4_0.gguf as a seed.
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
