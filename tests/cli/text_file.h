// Makes an input file from a text.
#pragma once

#include <cstdio>
#include <string>

#include "cli/input_file.h"

namespace baton {

inline InputFile TextFile(const std::string& text) {
  std::FILE* const file = std::tmpfile();
  std::fwrite(text.data(), 1, text.size(), file);
  std::rewind(file);
  return {file, "text"};
}

}  // namespace baton
