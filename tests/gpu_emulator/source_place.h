// Line of a kernel that calls a primitive. Functions of the device language have one as their last
// parameter, with the caller's line as default.
#pragma once

#include <source_location>
#include <string>

namespace baton::gpu_emulator {

class SourcePlace {
 public:
  SourcePlace() = default;
  SourcePlace(std::source_location location) : location_(location) {}  // NOLINT: implicit

  const char* file() const { return location_.file_name(); }
  int line() const { return static_cast<int>(location_.line()); }
  bool operator==(const SourcePlace& other) const {
    return line() == other.line() && file() == other.file();  // one literal for a call
  }

 private:
  std::source_location location_;
};

inline std::string ToString(SourcePlace place) {
  return std::string(place.file()) + ":" + std::to_string(place.line());
}

}  // namespace baton::gpu_emulator
