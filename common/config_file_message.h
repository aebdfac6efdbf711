// What a user reads about a wrong file of --config.
//
// Thread safety: pure function.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// What a file may name at one place.
struct FileNames {
  std::vector<std::string> options;   // "--kv-blocks"
  std::vector<std::string> commands;  // "up"
};

// `what`: CLI11's message. It calls every file INI, and names a wrong line without the reason.
// `names` returns what may stand at the top of the file (""), or below the name of a command. Both
// are used for the nearest name.
std::string ConfigFileMessage(const std::string& file, std::string_view what,
                              const std::function<FileNames(const std::string& command)>& names);

}  // namespace baton
