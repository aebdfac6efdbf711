// Generated seeds for fuzz targets. A target writes them into its corpus directory if that is
// empty, so the seeds always match the code.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct FuzzSeed {
  std::string name;
  std::string bytes;
};

// Writes the seeds into the first argument that is an empty directory. Call it from
// LLVMFuzzerInitialize.
inline void WriteSeeds(int argc, char** argv, const std::vector<FuzzSeed>& seeds) {
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path directory = argv[i];
    if (std::string_view(argv[i]).starts_with("-")) continue;
    if (!std::filesystem::is_directory(directory) || !std::filesystem::is_empty(directory)) return;
    for (const FuzzSeed& seed : seeds) {
      std::ofstream(directory / ("seed-" + seed.name), std::ios::binary) << seed.bytes;
    }
    return;
  }
}

}  // namespace baton
