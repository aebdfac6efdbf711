// Source line of a kernel that calls a primitive. It is the last parameter of functions of the
// device language. Its default is the caller's line.
#pragma once

#include <string>

namespace baton::gpu_emulator {

class SourcePlace {
 public:
  // The place of the call, also in a default argument. clang 14, which builds the fuzz targets, has
  // no std::source_location.
  static constexpr SourcePlace Current(const char* file = __builtin_FILE(),
                                       int line = __builtin_LINE()) {
    SourcePlace place;
    place.file_ = file;
    place.line_ = line;
    return place;
  }

  const char* file() const { return file_; }
  int line() const { return line_; }
  bool operator==(const SourcePlace& other) const {
    return line() == other.line() && file() == other.file();  // one literal for a call
  }

 private:
  const char* file_ = "";
  int line_ = 0;
};

inline std::string ToString(SourcePlace place) {
  return std::string(place.file()) + ":" + std::to_string(place.line());
}

}  // namespace baton::gpu_emulator
